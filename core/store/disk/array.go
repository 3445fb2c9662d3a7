package disk

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/internal/view"
	"sar/core/mem"
)

// Array is where the numbers of an array lie in a file.
type Array struct {
	File   *File
	Name   string // names it in errors
	Offset int64
	DType  dtypes.Type
	Shape  []int64
	Len    int64 // number of elements
	// fortran says that the first dimension runs fastest (.npy files alone).
	Fortran bool
	// Derive gives the rows from one on, where they follow from other arrays and are in no file of their own.
	Derive func(first int64, dst []byte) error
}

func (a *Array) Bytes() int64    { return a.Len * int64(a.DType.Size()) }
func (a *Array) RowBytes() int64 { return TensorInfo{DType: a.DType, Shape: a.Shape}.RowBytes() }

// Batch is how many elements streams carry at a time: large enough that a
// system call is cheap, small enough to stay in cache.
const Batch = 1 << 15

var rawPool = sync.Pool{New: func() any { b := make([]byte, 8*Batch); return &b }}

// Ints reads elements [first, first+len(dst)) of an integer array as int64.
func (a *Array) Ints(first int64, dst []int64) error {
	raw := rawPool.Get().(*[]byte)
	defer rawPool.Put(raw)
	size := a.DType.Size()
	for len(dst) > 0 {
		n := min(len(dst), Batch)
		b := (*raw)[:n*size]
		off := a.Offset + first*int64(size)
		if err := a.File.ReadAt(b, off, a.Name); err != nil {
			return err
		}
		if i := Widen(dst[:n], b, a.DType); i >= 0 {
			return a.File.Bad(off+int64(i*size), "values of "+a.Name+" that fit int64", "%d", uint64(dst[i]))
		}
		first += int64(n)
		dst = dst[n:]
	}
	return nil
}

// Widen converts len(dst) little-endian integers, at any address. It returns the first
// index whose value does not fit int64, or -1.
func Widen(dst []int64, b []byte, d dtypes.Type) int {
	switch d {
	case dtypes.Int64:
		copy(dst, view.Numbers[int64](b))
	case dtypes.Int32:
		widen[int32](dst, b)
	case dtypes.Uint64:
		copy(dst, view.Numbers[int64](b))
		return slices.IndexFunc(dst, func(v int64) bool { return v < 0 }) // 1<<63 or more
	case dtypes.Uint32:
		widen[uint32](dst, b)
	case dtypes.Int16:
		widen[int16](dst, b)
	case dtypes.Uint16:
		widen[uint16](dst, b)
	case dtypes.Int8:
		widen[int8](dst, b)
	case dtypes.Uint8, dtypes.Bool:
		widen[uint8](dst, b)
	default:
		panic(fmt.Sprintf("store: %s is not an integer type", d))
	}
	return -1
}

func widen[T int8 | int16 | int32 | uint8 | uint16 | uint32](dst []int64, b []byte) {
	for i, v := range view.Numbers[T](b)[:len(dst)] {
		dst[i] = int64(v)
	}
}

// WantVector checks that an array is a vector of n integers.
func (a *Array) WantVector(n int64) error {
	if len(a.Shape) != 1 || !a.DType.IsInteger() {
		return a.File.Bad(a.Offset, a.Name+" as a vector of integers", "%s of shape %v", a.DType, a.Shape)
	}
	if a.Len != n {
		return a.File.Bad(a.Offset, fmt.Sprintf("%d elements of %s", n, a.Name), "%d", a.Len)
	}
	return nil
}

// ReadAll copies the whole array into dst.
func (a *Array) ReadAll(dst []byte) error {
	if int64(len(dst)) != a.Bytes() {
		return argument.Errorf("%s is %s of shape %v, %d bytes: the memory given for it has %d", a.Name, a.DType, a.Shape,
			a.Bytes(), len(dst))
	}
	if a.Derive != nil {
		return a.Derive(0, dst)
	}
	return a.File.readLarge(dst, a.Offset, a.Name)
}

// ReadRows reads whole rows, from row first on, into dst.
func (a *Array) ReadRows(first int64, dst []byte) error {
	row := a.RowBytes()
	if first < 0 || (row > 0 && (int64(len(dst))%row != 0 || first > a.Shape[0]-int64(len(dst))/row)) ||
		(row == 0 && len(dst) > 0) {
		return argument.Errorf("%s has rows of %d bytes, %d of them: %d bytes from row %d on do not fit", a.Name, row,
			a.Shape[0], len(dst), first)
	}
	if a.Fortran {
		return a.fortranRows(first, dst)
	}
	if a.Derive != nil {
		return a.Derive(first, dst)
	}
	return a.File.readLarge(dst, a.Offset+first*row, a.Name)
}

func Infos(m map[string]Array) []TensorInfo {
	out := make([]TensorInfo, 0, len(m))
	for name, a := range m {
		out = append(out, TensorInfo{Name: name, DType: a.DType, Shape: append([]int64(nil), a.Shape...)})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// MapInt32s maps elements first to first+n-1 of an array of int32, after their checksums were checked.
func (a *Array) MapInt32s(first, n int64) (mem.Array[int32], error) {
	return mem.Map[int32](mem.Structure, a.File.OS, a.Offset+4*first, int(n))
}

// Verify holds an array against its checksums.
func (a *Array) Verify() error {
	if a.File.Sums == nil || a.Len == 0 {
		return nil
	}
	return a.File.Check(Checksums{*a.File.Sums.of(a.Offset)})
}

// fortranRows reads rows of an array in Fortran order into dst in row-major
// order: dst[i, j, k] = data[first + i + rows * (j + shape[1] * k)]. Every
// column is one read, so that callers want many rows at a time.
func (a *Array) fortranRows(first int64, dst []byte) error {
	size, rows, cols := int64(a.DType.Size()), a.Shape[0], int64(1)
	for _, d := range a.Shape[1:] {
		cols *= d
	}
	if len(dst) == 0 {
		return nil
	}
	n := int64(len(dst)) / (cols * size)
	column := make([]byte, n*size)
	index := make([]int64, len(a.Shape)) // of the column, in row-major order
	for c := range cols {
		at, stride := int64(0), int64(1)
		for d := 1; d < len(a.Shape); d++ {
			at += index[d] * stride
			stride *= a.Shape[d]
		}
		if err := a.File.ReadAt(column, a.Offset+(at*rows+first)*size, a.Name); err != nil {
			return err
		}
		for i := range n {
			copy(dst[(i*cols+c)*size:], column[i*size:(i+1)*size])
		}
		for d := len(index) - 1; d > 0; d-- {
			if index[d]++; index[d] < a.Shape[d] {
				break
			}
			index[d] = 0
		}
	}
	return nil
}
