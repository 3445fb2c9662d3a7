package store

import (
	"fmt"

	"sar/core/mem"
)

// view maps a part of the file, for reads in no order. Bytes in memory are copied: they
// only stand in for files.
func (f *file) view(off, n int64, what string) (b mem.Array[byte], err error) {
	if f.os != nil {
		return f.mapped(off, n, what)
	}
	if b, err = mem.Make[byte](mem.Mapped, int(n)); err == nil {
		err = f.readAt(b.Data, off, what)
	}
	return b, err
}

// mapped maps a part of the file. What is mapped is not read by blocks, so the whole range
// is held against its checksums now.
func (f *file) mapped(off, n int64, what string) (mem.Array[byte], error) {
	if f.sums != nil && n > 0 {
		if err := f.check(checksums{*f.sums.of(off)}); err != nil {
			return mem.Array[byte]{}, err
		}
	}
	m, err := mem.Map[byte](mem.Mapped, f.os, off, int(n))
	if err != nil {
		err = fmt.Errorf("%s: mapping %s: %w", f.name, what, err)
	}
	return m, err
}
