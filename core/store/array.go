package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"sar/core/internal/argument"
	"sync"
)

// array is where the numbers of an array lie in a file.
type array struct {
	f     *file
	what  string // names it in errors
	off   int64
	dtype DType
	shape []int64
	n     int64 // number of elements
	// fortran says that the first dimension runs fastest (.npy files alone).
	fortran bool
	// derive gives the numbers where they follow from other arrays and are in no file of their own.
	derive func(dst []byte) error
}

func (a *array) bytes() int64 { return a.n * int64(a.dtype.Size()) }

// batch is how many elements streams carry at a time: large enough that a
// system call is cheap, small enough to stay in cache.
const batch = 1 << 15

var rawPool = sync.Pool{New: func() any { b := make([]byte, 8*batch); return &b }}

// ints reads elements [first, first+len(dst)) of an integer array as int64.
func (a *array) ints(first int64, dst []int64) error {
	raw := rawPool.Get().(*[]byte)
	defer rawPool.Put(raw)
	size := a.dtype.Size()
	for len(dst) > 0 {
		n := min(len(dst), batch)
		b := (*raw)[:n*size]
		off := a.off + first*int64(size)
		if err := a.f.readAt(b, off, a.what); err != nil {
			return err
		}
		if i := widen(dst[:n], b, a.dtype); i >= 0 {
			return a.f.bad(off+int64(i*size), "values of "+a.what+" that fit int64", "%d", uint64(dst[i]))
		}
		first += int64(n)
		dst = dst[n:]
	}
	return nil
}

// bools reads elements as 0 or 1: any non-zero value of an integer or bool array is 1.
func (a *array) bools(first int64, dst []uint8) error {
	if a.dtype.Size() == 1 {
		if err := a.f.readAt(dst, a.off+first, a.what); err != nil {
			return err
		}
		for i, v := range dst {
			if v != 0 {
				dst[i] = 1
			}
		}
		return nil
	}
	var wide [512]int64
	for len(dst) > 0 {
		n := min(len(dst), len(wide))
		if err := a.ints(first, wide[:n]); err != nil {
			return err
		}
		for i, v := range wide[:n] {
			dst[i] = 0
			if v != 0 {
				dst[i] = 1
			}
		}
		first += int64(n)
		dst = dst[n:]
	}
	return nil
}

// widen converts len(dst) little-endian integers. It returns the first index
// whose value does not fit int64, or -1.
func widen(dst []int64, b []byte, d DType) int {
	switch d {
	case Int64:
		for i := range dst {
			dst[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	case Int32:
		for i := range dst {
			dst[i] = int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
	case Uint64:
		for i := range dst {
			v := binary.LittleEndian.Uint64(b[8*i:])
			dst[i] = int64(v)
			if v > math.MaxInt64 {
				return i
			}
		}
	case Uint32:
		for i := range dst {
			dst[i] = int64(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case Int16:
		for i := range dst {
			dst[i] = int64(int16(binary.LittleEndian.Uint16(b[2*i:])))
		}
	case Uint16:
		for i := range dst {
			dst[i] = int64(binary.LittleEndian.Uint16(b[2*i:]))
		}
	case Int8:
		for i := range dst {
			dst[i] = int64(int8(b[i]))
		}
	case Uint8, Bool:
		for i := range dst {
			dst[i] = int64(b[i])
		}
	default:
		panic(fmt.Sprintf("store: %s is not an integer type", d))
	}
	return -1
}

// wantIDs checks that an array is a vector of n integers.
func (a *array) wantIDs(n int64) error {
	if len(a.shape) != 1 || !a.dtype.IsInteger() {
		return a.f.bad(a.off, a.what+" as a vector of integers", "%s of shape %v", a.dtype, a.shape)
	}
	if a.n != n {
		return a.f.bad(a.off, fmt.Sprintf("%d elements of %s", n, a.what), "%d", a.n)
	}
	return nil
}

// read copies the whole array into dst.
func (a *array) read(dst []byte) error {
	if int64(len(dst)) != a.bytes() {
		return argument.Errorf("%s is %s of shape %v, %d bytes: the memory given for it has %d", a.what, a.dtype, a.shape, a.bytes(), len(dst))
	}
	if a.derive != nil {
		return a.derive(dst)
	}
	return a.f.readLarge(dst, a.off, a.what)
}

// rows reads whole rows, from row first on, into dst.
func (a *array) rows(first int64, dst []byte) error {
	row := TensorInfo{DType: a.dtype, Shape: a.shape}.RowBytes()
	if first < 0 || (row > 0 && (int64(len(dst))%row != 0 || first > a.shape[0]-int64(len(dst))/row)) || (row == 0 && len(dst) > 0) {
		return argument.Errorf("%s has rows of %d bytes, %d of them: %d bytes from row %d on do not fit", a.what, row, a.shape[0], len(dst), first)
	}
	if a.fortran {
		return a.fortranRows(first, dst)
	}
	if a.derive != nil {
		all := make([]byte, a.bytes())
		if err := a.derive(all); err != nil {
			return err
		}
		copy(dst, all[first*row:])
		return nil
	}
	return a.f.readLarge(dst, a.off+first*row, a.what)
}
