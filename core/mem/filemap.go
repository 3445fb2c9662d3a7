package mem

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FileMap is part of a file in the address space, counted as Mapped. Its pages are the system's
// page cache: it reads them when they are touched and drops them when memory is short. Who writes
// to Data gets a private copy of the page, and the file stays as it is. Touching a page beyond the
// end of a file that was made shorter kills the process (SIGBUS).
type FileMap struct {
	Data    []byte
	mapping []byte
}

// fileMaps are those that are there.
var fileMaps struct {
	sync.RWMutex
	list []*FileMap
}

// MapFile maps n > 0 bytes of a file from off on. The file must be that long, and may be closed afterwards.
func MapFile(fd int, off, n int64) (*FileMap, error) {
	start := off &^ (page - 1)
	// Without NORESERVE the system counts all pages as if they were going to be written to, and
	// refuses files larger than memory.
	m, err := unix.Mmap(fd, start, int(off+n-start), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mem: mapping %d bytes of a file: %w", n, err)
	}
	f := &FileMap{Data: m[off-start:], mapping: m}
	Count(Mapped, int64(len(m)))
	fileMaps.Lock()
	defer fileMaps.Unlock()
	fileMaps.list = append(fileMaps.list, f)
	return f, nil
}

// Free unmaps it. It may be called again.
func (f *FileMap) Free() {
	fileMaps.Lock()
	defer fileMaps.Unlock()
	if f.mapping == nil {
		return
	}
	fileMaps.list = slices.DeleteFunc(fileMaps.list, func(g *FileMap) bool { return g == f })
	Count(Mapped, -int64(len(f.mapping)))
	_ = unix.Munmap(f.mapping) // of a mapping that we made and never split: cannot fail
	f.Data, f.mapping = nil, nil
}

// Prefetch asks the system to read n bytes of Data from off on, and does not wait for them. It is
// advice: a refusal changes nothing.
func (f *FileMap) Prefetch(off, n int64) {
	lead := int64(len(f.mapping) - len(f.Data))
	from := (lead + off) &^ (page - 1)
	to := min(lead+off+n, int64(len(f.mapping)))
	if from < to {
		_ = unix.Madvise(f.mapping[from:to], unix.MADV_WILLNEED)
	}
}

// FileBacked says whether b begins in a FileMap.
func FileBacked(b []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	fileMaps.RLock()
	defer fileMaps.RUnlock()
	return slices.ContainsFunc(fileMaps.list, func(f *FileMap) bool {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(f.mapping)))
		return at >= start && at < start+uintptr(len(f.mapping))
	})
}
