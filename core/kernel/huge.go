package kernel

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"sar/core/internal/ascending"
	"sar/core/internal/view"
	"sar/core/mem"
)

// A product that reads its source rows at random from memory beyond the caches
// spends 15 % of its time on translating addresses of 4 KiB pages. Most source
// rows are the result of another operation, are read once or twice and gone.
// But the features of a graph are read in every epoch, and for such memory huge
// pages pay: copying a gigabyte into them takes about as long as what they save
// in reading hundred gigabytes. So the pool remembers a few large arrays of
// source rows, and asks for huge pages behind one when that much was read of it.
const (
	rereadKnown  = 4
	rereadLooks  = 64
	rereadFactor = 100
)

// rereadLeast is the least size in bytes. A variable for tests.
var rereadLeast = 128 << 20

// reread is what the pool knows of an array of source rows.
type reread struct {
	at      uintptr // where the array lies; nothing is read through it
	size    int
	print   uint64 // of its content: other content is another array
	read    float64
	settled bool
}

// willRead notes that slots rows of width elements of x are about to be read.
func willRead[T any](p *Pool, x []T, slots int64, width int) {
	b := view.Bytes(x)
	// Pages of a file belong to the page cache: in huge pages they would be private copies.
	if len(b) >= rereadLeast && !mem.FileBacked(b) && p.rereads(b, float64(slots)*float64(width*view.Size[T]())) {
		collapse(b)
	}
}

// rereads adds to what was read of b and tells whether now is the time to put
// it into huge pages.
func (p *Pool) rereads(b []byte, bytes float64) bool {
	at, print := uintptr(unsafe.Pointer(unsafe.SliceData(b))), fingerprint(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.known, func(r reread) bool { return r.at == at && r.size == len(b) })
	r := reread{at: at, size: len(b), print: print}
	if i >= 0 {
		if p.known[i].print == print {
			r = p.known[i]
		}
		p.known = slices.Delete(p.known, i, i+1)
	} else if len(p.known) == rereadKnown {
		p.known = slices.Delete(p.known, 0, 1) // what was not read for longest
	}
	r.read += bytes
	now := !r.settled && r.read >= rereadFactor*float64(len(b))
	r.settled = r.settled || now
	p.known = append(p.known, r)
	return now
}

// fingerprint mixes a few words of b. Memory that another array was put into has
// another one; so has an array that changes from epoch to epoch.
func fingerprint(b []byte) uint64 {
	h := uint64(math.MaxUint64)
	for look := range rereadLooks {
		at := (len(b) - 8) / rereadLooks * look
		h = (h ^ binary.LittleEndian.Uint64(b[at:])) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// collapse moves what lies in b into huge pages, as far as they lie inside b, by
// advice to the system: it changes no content, and a refusal changes nothing.
func collapse(b []byte) {
	if b = wholeHuge(b); len(b) == 0 {
		return
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(b, unix.MADV_COLLAPSE) // Linux 6.1; before, the system does it when it has time
}

// windowSlots is about how many slots of a window there are, from a look at some
// of the rows.
func windowSlots(a *CSR, cursor []int64, colEnd int32) int64 {
	const looks = 128
	n := a.Rows()
	var inside, seen int64
	for look := range min(n, looks) {
		i := n * look / min(n, looks)
		inside += ascending.RunEnd(a.Col, cursor[i], a.at(i+1), colEnd) - cursor[i]
		seen += a.at(i+1) - a.at(i)
	}
	if seen == 0 {
		return 0
	}
	return int64(float64(inside) / float64(seen) * float64(a.at(n)-a.at(0)))
}

// hugeBytes is the size of a huge page, and hugeLeast the least result that is
// worth asking for them.
const hugeBytes, hugeLeast = 2 << 20, 4 << 20

// adviseHuge asks for huge pages behind a result that is about to be written
// whole. Such a result is often a fresh mapping, and then taking its page
// faults 4 KiB at a time is part of a kernel's time (8 % at 256 columns and 47
// edges a row). Only huge pages that lie inside y are asked for,
// so no memory is used that y does not fill. It is advice: a refusal changes
// nothing, so its error is of no interest.
func adviseHuge[T any](y []T) {
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
