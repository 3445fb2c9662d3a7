//go:build goexperiment.simd && amd64

package vec

import (
	"simd/archsimd"
	"unsafe"
)

// rowsSIMD moves rows of 16, 32 and 64 bytes a register at a time: what Go copies
// takes several times as long.
//
//go:nocheckptr
func rowsSIMD[T Float](z, x []T, stride int, base int32, index []int32, w int) {
	var t T
	size := int(unsafe.Sizeof(t))
	if w*size != 16 && w*size != 32 && w*size != 64 || len(index) == 0 {
		rowsScalar(z, x, stride, base, index, w)
		return
	}
	to, from, step := unsafe.Pointer(unsafe.SliceData(z[:len(index)*w])), unsafe.Pointer(unsafe.SliceData(x)), stride*size
	switch w * size {
	case 16:
		for _, i := range index {
			archsimd.LoadUint8x16Array((*[16]uint8)(unsafe.Add(from, int(i-base)*step))).StoreArray((*[16]uint8)(to))
			to = unsafe.Add(to, 16)
		}
	case 32:
		for _, i := range index {
			archsimd.LoadUint8x32Array((*[32]uint8)(unsafe.Add(from, int(i-base)*step))).StoreArray((*[32]uint8)(to))
			to = unsafe.Add(to, 32)
		}
	default:
		for _, i := range index {
			at := unsafe.Add(from, int(i-base)*step)
			archsimd.LoadUint8x32Array((*[32]uint8)(at)).StoreArray((*[32]uint8)(to))
			archsimd.LoadUint8x32Array((*[32]uint8)(unsafe.Add(at, 32))).StoreArray((*[32]uint8)(unsafe.Add(to, 32)))
			to = unsafe.Add(to, 64)
		}
	}
	archsimd.ClearAVXUpperBits()
}

// scatterAddF32 adds rows of four a register at a time.
//
//go:nocheckptr
func scatterAddF32(y, x []float32, index []int32, w int) {
	if w != 4 || len(index) == 0 {
		scatterAddScalar(y, x, index, w)
		return
	}
	to, from := unsafe.Pointer(unsafe.SliceData(y)), unsafe.Pointer(unsafe.SliceData(x[:len(index)*w]))
	for _, i := range index {
		at := (*[4]float32)(unsafe.Add(to, int(i)*16))
		archsimd.LoadFloat32x4Array(at).Add(archsimd.LoadFloat32x4Array((*[4]float32)(from))).StoreArray(at)
		from = unsafe.Add(from, 16)
	}
	archsimd.ClearAVXUpperBits()
}

// scatterAddF64 is the same of float64.
//
//go:nocheckptr
func scatterAddF64(y, x []float64, index []int32, w int) {
	if w != 4 || len(index) == 0 {
		scatterAddScalar(y, x, index, w)
		return
	}
	to, from := unsafe.Pointer(unsafe.SliceData(y)), unsafe.Pointer(unsafe.SliceData(x[:len(index)*w]))
	for _, i := range index {
		at := (*[4]float64)(unsafe.Add(to, int(i)*32))
		archsimd.LoadFloat64x4Array(at).Add(archsimd.LoadFloat64x4Array((*[4]float64)(from))).StoreArray(at)
		from = unsafe.Add(from, 32)
	}
	archsimd.ClearAVXUpperBits()
}
