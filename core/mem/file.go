package mem

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Map maps n elements of a file, from byte off on, which is a multiple of the element's
// size. The array is read-only. The file may be closed, but must keep its size until Free:
// reading what it has lost ends the process. The pages are counted like others, though the
// system may drop them and read them again.
func Map[T Elem](p Purpose, f *os.File, off int64, n int) (Array[T], error) {
	var zero T
	size := int64(unsafe.Sizeof(zero))
	st, err := f.Stat()
	if err != nil {
		return Array[T]{}, err
	}
	if n < 0 || off < 0 || off%size != 0 || off > st.Size() || int64(n) > (st.Size()-off)/size {
		return Array[T]{}, fmt.Errorf("mem: cannot map %d elements of %d bytes from byte %d on of %s, a file of %d bytes", n, size, off, f.Name(), st.Size())
	}
	if n == 0 {
		return Array[T]{purpose: p}, nil
	}
	start := off &^ (page - 1)
	m, err := unix.Mmap(int(f.Fd()), start, int(off-start+int64(n)*size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return Array[T]{}, fmt.Errorf("mem: mapping %s: %w", f.Name(), err)
	}
	Count(p, int64(len(m)))
	return Array[T]{Data: unsafe.Slice((*T)(unsafe.Pointer(&m[off-start])), n), mapping: m, purpose: p, file: true}, nil
}

func unmapFile(b []byte) { _ = unix.Munmap(b) } // of a mapping that we made and never split: cannot fail

// Forget tells the system that the pages of a mapped file need not stay resident. They are
// read again where they are used.
func (a *Array[T]) Forget() {
	if a.file {
		_ = unix.Madvise(a.mapping, unix.MADV_DONTNEED)
	}
}
