package mem

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// files are the mappings of files that there are.
var files struct {
	sync.RWMutex
	list [][]byte
}

// Map maps n elements of a file, from byte off on, which is a multiple of the element's
// size. The file may be closed, but must keep its size until Free: touching what it has
// lost ends the process (SIGBUS). The pages are the system's page cache, which reads them
// when they are touched and may drop them, though all are counted.
//
// The array is read-only; with purpose Mapped, whoever writes to it gets a private copy of
// the page, and the file stays as it is.
func Map[T Elem](p Purpose, f *os.File, off int64, n int) (Array[T], error) {
	var zero T
	size := int64(unsafe.Sizeof(zero))
	st, err := f.Stat()
	if err != nil {
		return Array[T]{}, err
	}
	if n < 0 || off < 0 || off%size != 0 || off > st.Size() || int64(n) > (st.Size()-off)/size {
		return Array[T]{}, fmt.Errorf("mem: cannot map %d elements of %d bytes from byte %d on of %s, a file of %d bytes", n,
			size, off, f.Name(), st.Size())
	}
	if n == 0 {
		return Array[T]{purpose: p}, nil
	}
	prot := unix.PROT_READ
	if p == Mapped {
		prot |= unix.PROT_WRITE
	}
	start := off &^ (page - 1)
	// Without NORESERVE the system counts pages as if all were going to be written to, and
	// refuses files larger than memory.
	m, err := unix.Mmap(int(f.Fd()), start, int(off-start+int64(n)*size), prot, unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return Array[T]{}, fmt.Errorf("mem: mapping %s: %w", f.Name(), err)
	}
	Count(p, int64(len(m)))
	files.Lock()
	defer files.Unlock()
	files.list = append(files.list, m)
	return Array[T]{Data: unsafe.Slice((*T)(unsafe.Pointer(&m[off-start])), n), mapping: m, purpose: p, file: true}, nil
}

func unmapFile(m []byte) {
	files.Lock()
	defer files.Unlock()
	files.list = slices.DeleteFunc(files.list, func(b []byte) bool { return &b[0] == &m[0] })
	_ = unix.Munmap(m) // of a mapping that we made and never split: cannot fail
}

// FileBacked says whether b begins in a file that is mapped.
func FileBacked(b []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	files.RLock()
	defer files.RUnlock()
	return slices.ContainsFunc(files.list, func(m []byte) bool {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
		return at >= start && at < start+uintptr(len(m))
	})
}

// Forget tells the system that the pages of a mapped file need not stay resident. They are
// read again where they are used; what was written to them is lost.
func (a *Array[T]) Forget() {
	if a.file {
		_ = unix.Madvise(a.mapping, unix.MADV_DONTNEED)
	}
}
