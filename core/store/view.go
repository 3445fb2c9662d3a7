package store

import (
	"fmt"

	"golang.org/x/sys/unix"

	"sar/core/mem"
)

// view maps a part of the file, for reads in no order. done gives it back.
// Bytes in memory are copied: they only stand in for files.
func (f *file) view(off, n int64, what string) (b []byte, done func(), err error) {
	if n == 0 {
		return nil, func() {}, nil
	}
	if f.os == nil {
		b = make([]byte, n)
		return b, func() {}, f.readAt(b, off, what)
	}
	m, err := f.mapped(off, n, what)
	if err != nil {
		return nil, nil, err
	}
	return m.Data, m.Free, nil
}

// mapped maps n > 0 bytes of the file. What is mapped is not read by blocks, so
// the whole range is held against its checksums now.
func (f *file) mapped(off, n int64, what string) (*mem.FileMap, error) {
	if f.sums != nil {
		if err := f.check(checksums{*f.sums.of(off)}); err != nil {
			return nil, err
		}
	}
	m, err := mem.MapFile(int(f.os.Fd()), off, n)
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %s: %w", f.name, what, err)
	}
	return m, nil
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
