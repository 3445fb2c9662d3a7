package store

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// view maps a part of the file, for reads in no order. done gives it back.
// Bytes in memory are copied: they only stand in for files.
func (f *file) view(off, n int64, what string) (b []byte, done func(), err error) {
	if n == 0 {
		return nil, func() {}, nil
	}
	if f.sums != nil { // what is mapped is not read by blocks: all of it is checked now
		if err := f.check(checksums{*f.sums.of(off)}); err != nil {
			return nil, nil, err
		}
	}
	if f.os == nil {
		b = make([]byte, n)
		return b, func() {}, f.readAt(b, off, what)
	}
	const page = 4096
	start := off &^ (page - 1)
	m, err := unix.Mmap(int(f.os.Fd()), start, int(off+n-start), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: mapping %s: %w", f.name, what, err)
	}
	return m[off-start:], func() { _ = unix.Munmap(m) }, nil
}

// drop tells the kernel that the pages read so far need not stay resident.
func (g *gather) drop() {
	if g.f.os == nil || len(g.view) == 0 {
		return
	}
	const page = 4096
	lead := int((page - g.off%page) % page)
	if n := (len(g.view) - lead) &^ (page - 1); n > 0 {
		_ = unix.Madvise(g.view[lead:lead+n], unix.MADV_DONTNEED)
	}
}
