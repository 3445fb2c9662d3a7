package disk

import (
	"fmt"

	"sar/core/mem"
)

// View maps a part of the file, for reads in no order. Bytes in memory are copied: they
// only stand in for files.
func (f *File) View(off, n int64, what string) (b mem.Array[byte], err error) {
	if f.OS != nil {
		return f.Map(off, n, what)
	}
	if b, err = mem.Make[byte](mem.Mapped, int(n)); err == nil {
		err = f.ReadAt(b.Data, off, what)
	}
	return b, err
}

// Map maps a part of the file. What is mapped is not read by blocks, so the whole range
// is held against its checksums now.
func (f *File) Map(off, n int64, what string) (mem.Array[byte], error) {
	if f.Sums != nil && n > 0 {
		if err := f.Check(Checksums{*f.Sums.of(off)}); err != nil {
			return mem.Array[byte]{}, err
		}
	}
	m, err := mem.Map[byte](mem.Mapped, f.OS, off, int(n))
	if err != nil {
		err = fmt.Errorf("%s: mapping %s: %w", f.Name, what, err)
	}
	return m, err
}
