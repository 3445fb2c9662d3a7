package disk

import (
	"slices"

	"sar/core/internal/dtypes"
)

// MaxDims is how many dimensions an array may have.
const MaxDims = 32

// TensorInfo describes an array on disk. Shape is [rows, ...].
type TensorInfo struct {
	// Name is "ntype/feature" or "src:rel:dst/feature" in partitions, and the
	// plain name in a whole graph.
	Name  string      `json:"name"`
	DType dtypes.Type `json:"dtype"`
	Shape []int64     `json:"shape"`
}

// Bytes is the size of the whole array.
func (t TensorInfo) Bytes() int64 {
	n := int64(t.DType.Size())
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// RowBytes is the size of one row.
func (t TensorInfo) RowBytes() int64 {
	n := int64(t.DType.Size())
	for _, d := range t.Shape[1:] {
		n *= d
	}
	return n
}

// Elements multiplies a shape, and says whether the array of elements of the
// given size fits limit bytes.
func Elements(shape []int64, size int, limit int64) (int64, bool) {
	if slices.ContainsFunc(shape, func(d int64) bool { return d < 0 }) {
		return 0, false
	}
	if slices.Contains(shape, 0) {
		return 0, true
	}
	n := int64(1)
	for _, d := range shape {
		if d > limit/n {
			return 0, false
		}
		n *= d
	}
	return n, n <= limit/int64(size)
}
