package export

/*
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"sar/core/session"
)

// number lists the types of tensors that the exports read.
type number interface {
	int32 | int64 | float32 | float64
}

// tensor is a DLTensor that was found to be contiguous and on the CPU. Its
// memory is the caller's, and valid until the export returns.
type tensor struct {
	name  string
	place int // in an array of the caller's, else -1
	dtype session.DType
	shape shape
	n     int // elements
	data  unsafe.Pointer
}

const cpuDevice, maxDims = 1, 64

// view checks everything about t that does not depend on what it is for.
func view(name string, t *C.DLTensor) tensor { return viewAt(name, -1, t) }

// views does so with an array of n tensors.
func views(name string, first *C.DLTensor, n C.int32_t) []tensor {
	if n < 0 || n > 0 && first == nil {
		refuse("%s is an array of %d tensors at %p", name, n, first)
	}
	out := make([]tensor, n)
	for i := range out {
		out[i] = viewAt(name, i, &unsafe.Slice(first, n)[i])
	}
	return out
}

func viewAt(name string, place int, t *C.DLTensor) tensor {
	v := tensor{name: name, place: place, n: 1}
	if t == nil {
		refuse("tensor %s is NULL", v)
	}
	if t.device.device_type != cpuDevice {
		refuseType("tensor %s is on device type %d: the engine works on CPU tensors (device type 1)", v, t.device.device_type)
	}
	var known bool
	if v.dtype, known = session.DTypeOf(uint8(t.dtype.code), uint8(t.dtype.bits)); !known || t.dtype.lanes != 1 {
		refuseType("tensor %s has %d lanes of %d bits of DLPack's type %d, which is not known here", v, t.dtype.lanes,
			t.dtype.bits, t.dtype.code)
	}
	if t.ndim < 0 || t.ndim > maxDims || t.ndim > 0 && t.shape == nil {
		refuse("tensor %s has %d dimensions, or no shape", v, t.ndim)
	}
	if t.ndim > 0 {
		v.shape = append(v.shape, unsafe.Slice((*int64)(unsafe.Pointer(t.shape)), t.ndim)...)
	}
	v.count()
	v.checkStrides(t)
	if v.n == 0 {
		return v // data may be anything, also NULL
	}
	if t.data == nil {
		refuse("tensor %s of shape %s has no data", v, v.shape)
	}
	v.data = unsafe.Add(t.data, int(t.byte_offset))
	if size := uintptr(v.itemSize()); size&(size-1) == 0 && uintptr(v.data)%size != 0 {
		refuse("tensor %s begins at %p, which is not aligned to its %d-byte elements", v, v.data, size)
	}
	return v
}

// String is what messages call the tensor.
func (v tensor) String() string {
	if v.place < 0 {
		return v.name
	}
	return fmt.Sprintf("%s[%d]", v.name, v.place)
}

// count multiplies the shape.
func (v *tensor) count() {
	for _, d := range v.shape {
		if d < 0 {
			refuse("tensor %s has shape %s", *v, v.shape)
		}
		if d == 0 {
			v.n = 0
		}
	}
	for _, d := range v.shape {
		if v.n > 0 && d > math.MaxInt64/16/int64(v.n) {
			refuse("tensor %s has shape %s, more elements than memory can hold", *v, v.shape)
		}
		v.n *= int(d)
	}
}

// checkStrides accepts no strides, or those of a row-major tensor. A dimension
// of one element may have any stride.
func (v tensor) checkStrides(t *C.DLTensor) {
	if t.strides == nil || v.n == 0 || t.ndim == 0 {
		return
	}
	strides := unsafe.Slice((*int64)(unsafe.Pointer(t.strides)), t.ndim)
	want := int64(1)
	for i := len(v.shape) - 1; i >= 0; i-- {
		if v.shape[i] != 1 && strides[i] != want {
			refuse("tensor %s of shape %s has strides %s: it must be contiguous and row-major", v, v.shape, shape(strides))
		}
		want *= v.shape[i]
	}
}

func (v tensor) itemSize() int { return v.dtype.Size() }

// shape is the sizes of the dimensions, as users write them.
type shape []int64

func (s shape) String() string { return strings.ReplaceAll(fmt.Sprint([]int64(s)), " ", ", ") }

// bytes is the memory of the tensor.
func (v tensor) bytes() []byte { return unsafe.Slice((*byte)(v.data), v.n*v.itemSize()) }

// rows reads the shape as [n, w]: further dimensions count as one.
func (v tensor) rows() (n, w int) {
	if len(v.shape) == 0 {
		refuse("tensor %s has no dimensions, and must have rows", v)
	}
	w = 1
	for _, d := range v.shape[1:] {
		if d == 0 {
			return int(v.shape[0]), 0
		}
		w *= int(d)
	}
	return int(v.shape[0]), w
}

// isFloat refuses tensors that are neither float32 nor float64.
func (v tensor) isFloat() tensor {
	if v.dtype != session.DTypeFor[float32]() && v.dtype != session.DTypeFor[float64]() {
		refuseType("tensor %s is %s, and must be float32 or float64", v, v.dtype)
	}
	return v
}

// like refuses a tensor that has not the type of x.
func (v tensor) like(x tensor) tensor {
	if v.dtype != x.dtype {
		refuseType("tensor %s is %s and %s is %s: they must be the same", v, v.dtype, x, x.dtype)
	}
	return v
}

// byFloat picks the instance of a function for the float type of v.
func byFloat[F any](v tensor, single, double F) F {
	if v.isFloat().dtype == session.DTypeFor[float32]() {
		return single
	}
	return double
}

// elements is the tensor as a slice of T; its type is checked.
func elements[T number](v tensor) []T {
	if want := session.DTypeFor[T](); v.dtype != want {
		refuseType("tensor %s is %s, and must be %s", v, v.dtype, want)
	}
	if v.n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(v.data), v.n)
}

// halves is a tensor of bfloat16.
func halves(v tensor) []uint16 {
	if v.n == 0 {
		return []uint16{}
	}
	return unsafe.Slice((*uint16)(v.data), v.n)
}

// matrix is a tensor of T as [n, w].
func matrix[T session.Float](v tensor) session.Rows[T] {
	n, w := v.rows()
	return session.Rows[T]{Data: elements[T](v), N: n, Width: w}
}

// vector reads a tensor of one dimension.
func vector[T number](name string, t *C.DLTensor) []T { return line[T](view(name, t)) }

func line[T number](v tensor) []T {
	x := elements[T](v)
	if len(v.shape) != 1 {
		refuse("tensor %s has shape %s, and must have one dimension", v, v.shape)
	}
	return x
}

// optional reads one that may be NULL, which reads as nil; no elements do not.
func optional[T number](name string, t *C.DLTensor) []T {
	if t == nil {
		return nil
	}
	return vector[T](name, t)
}
