package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"sar/core/internal/view"
)

// hugeBytes is the size of a huge page, and hugeLeast the least result that is
// worth asking for them.
const hugeBytes, hugeLeast = 2 << 20, 4 << 20

// adviseHuge asks for huge pages behind a result that is about to be written
// whole. Such a result is often a fresh mapping, and then taking its page
// faults 4 KiB at a time is part of a kernel's time (8 % at 256 columns and 47
// edges a row). Only huge pages that lie inside y are asked for,
// so no memory is used that y does not fill. It is advice: a refusal changes
// nothing, so its error is of no interest.
func adviseHuge[T Float](y []T) {
	b := view.Bytes(y)
	if len(b) < hugeLeast {
		return
	}
	_ = unix.Madvise(wholeHuge(b), unix.MADV_HUGEPAGE)
}

// wholeHuge is the part of b that is whole huge pages.
func wholeHuge(b []byte) []byte {
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (hugeBytes - 1))
	if skip >= len(b) {
		return nil
	}
	return b[skip : skip+(len(b)-skip)&^(hugeBytes-1)]
}
