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
)

// dtype is DLPack's, one lane.
type dtype struct{ code, bits uint8 }

// DLPack's codes of types.
const (
	codeInt, codeUint, codeFloat, codeBfloat, codeBool = 0, 1, 2, 4, 6
)

var (
	int32Type   = dtype{codeInt, 32}
	int64Type   = dtype{codeInt, 64}
	float32Type = dtype{codeFloat, 32}
	float64Type = dtype{codeFloat, 64}
)

func (d dtype) String() string {
	name, ok := map[uint8]string{codeInt: "int", codeUint: "uint", codeFloat: "float", codeBfloat: "bfloat", codeBool: "bool"}[d.code]
	switch {
	case !ok:
		return fmt.Sprintf("DLPack type %d of %d bits", d.code, d.bits)
	case d.code == codeBool && d.bits == 8:
		return name
	}
	return fmt.Sprintf("%s%d", name, d.bits)
}

// tensor is a DLTensor that was found to be contiguous and on the CPU. Its
// memory is the caller's, and valid until the export returns.
type tensor struct {
	name  string
	dtype dtype
	shape []int64
	n     int // elements
	data  unsafe.Pointer
}

const cpuDevice, maxDims = 1, 64

// view checks everything about t that does not depend on what it is for.
func view(name string, t *C.sar_const_tensor) (tensor, error) {
	if t == nil {
		return tensor{}, invalid("tensor %s is NULL", name)
	}
	if t.device.device_type != cpuDevice {
		return tensor{}, wrongType("tensor %s is on device type %d: the engine works on CPU tensors (device type 1)", name, t.device.device_type)
	}
	v := tensor{name: name, dtype: dtype{uint8(t.dtype.code), uint8(t.dtype.bits)}, n: 1}
	if t.dtype.lanes != 1 || v.dtype.bits == 0 || v.dtype.bits%8 != 0 {
		return tensor{}, wrongType("tensor %s has %d lanes of %d bits: one lane of whole bytes is needed", name, t.dtype.lanes, v.dtype.bits)
	}
	if t.ndim < 0 || t.ndim > maxDims || t.ndim > 0 && t.shape == nil {
		return tensor{}, invalid("tensor %s has %d dimensions, or no shape", name, t.ndim)
	}
	if t.ndim > 0 {
		v.shape = append(v.shape, unsafe.Slice((*int64)(unsafe.Pointer(t.shape)), t.ndim)...)
	}
	for _, d := range v.shape {
		if d < 0 {
			return tensor{}, invalid("tensor %s has shape %s", name, v.shapeString())
		}
		if d == 0 {
			v.n = 0
		}
	}
	for _, d := range v.shape {
		if v.n > 0 && d > math.MaxInt64/16/int64(v.n) {
			return tensor{}, invalid("tensor %s has shape %s, more elements than memory can hold", name, v.shapeString())
		}
		v.n *= int(d)
	}
	if err := v.checkStrides(t); err != nil {
		return tensor{}, err
	}
	if v.n == 0 {
		return v, nil // data may be anything, also NULL
	}
	if t.data == nil {
		return tensor{}, invalid("tensor %s of shape %s has no data", name, v.shapeString())
	}
	v.data = unsafe.Add(t.data, int(t.byte_offset))
	if size := uintptr(v.itemSize()); size&(size-1) == 0 && uintptr(v.data)%size != 0 {
		return tensor{}, invalid("tensor %s begins at %p, which is not aligned to its %d-byte elements", name, v.data, size)
	}
	return v, nil
}

// checkStrides accepts no strides, or those of a row-major tensor. A dimension
// of one element may have any stride.
func (v tensor) checkStrides(t *C.sar_const_tensor) error {
	if t.strides == nil || v.n == 0 || t.ndim == 0 {
		return nil
	}
	strides := unsafe.Slice((*int64)(unsafe.Pointer(t.strides)), t.ndim)
	want := int64(1)
	for i := len(v.shape) - 1; i >= 0; i-- {
		if v.shape[i] != 1 && strides[i] != want {
			return invalid("tensor %s of shape %s has strides %s: it must be contiguous and row-major", v.name, v.shapeString(), join(strides))
		}
		want *= v.shape[i]
	}
	return nil
}

func (v tensor) itemSize() int { return int(v.dtype.bits) / 8 }

func (v tensor) shapeString() string { return join(v.shape) }

func join(a []int64) string {
	parts := make([]string, len(a))
	for i, x := range a {
		parts[i] = fmt.Sprint(x)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// bytes is the memory of the tensor.
func (v tensor) bytes() []byte { return unsafe.Slice((*byte)(v.data), v.n*v.itemSize()) }

// must returns an error unless the tensor has this type.
func (v tensor) must(want dtype) error {
	if v.dtype != want {
		return wrongType("tensor %s is %s, and must be %s", v.name, v.dtype, want)
	}
	return nil
}

// rows reads the shape as [n, w]: further dimensions count as one.
func (v tensor) rows() (n, w int, err error) {
	if len(v.shape) == 0 {
		return 0, 0, invalid("tensor %s has no dimensions, and must have rows", v.name)
	}
	w = 1
	for _, d := range v.shape[1:] {
		if d == 0 {
			return int(v.shape[0]), 0, nil
		}
		w *= int(d)
	}
	return int(v.shape[0]), w, nil
}

// elements is the tensor as a slice of T; its type was checked.
func elements[T any](v tensor) []T {
	if v.n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(v.data), v.n)
}

// vector reads a tensor of one dimension.
func vector[T any](name string, t *C.sar_const_tensor, want dtype) ([]T, error) {
	v, err := view(name, t)
	if err != nil {
		return nil, err
	}
	if err := v.must(want); err != nil {
		return nil, err
	}
	if len(v.shape) != 1 {
		return nil, invalid("tensor %s has shape %s, and must have one dimension", name, v.shapeString())
	}
	return elements[T](v), nil
}

func constant(t *C.DLTensor) *C.sar_const_tensor { return (*C.sar_const_tensor)(unsafe.Pointer(t)) }
