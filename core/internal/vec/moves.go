//go:build goexperiment.simd && (amd64 || arm64)

package vec

import (
	"simd/archsimd"
	"unsafe"
)

// rowsSIMD moves rows of 16, 32 and 64 bytes by registers of 16: what Go copies takes several times as
// long.
//
//go:nocheckptr
func rowsSIMD[T Float](z, x []T, stride int, base int32, index []int32, w int) {
	var t T
	size := int(unsafe.Sizeof(t))
	if w*size != 16 && w*size != 32 && w*size != 64 || len(index) == 0 {
		rowsScalar(z, x, stride, base, index, w)
		return
	}
	to, from := unsafe.Pointer(unsafe.SliceData(z[:len(index)*w])), unsafe.Pointer(unsafe.SliceData(x))
	step := stride * size
	switch w * size {
	case 16:
		for _, i := range index {
			move16(to, unsafe.Add(from, int(i-base)*step))
			to = unsafe.Add(to, 16)
		}
	case 32:
		for _, i := range index {
			at := unsafe.Add(from, int(i-base)*step)
			move16(to, at)
			move16(unsafe.Add(to, 16), unsafe.Add(at, 16))
			to = unsafe.Add(to, 32)
		}
	default:
		for _, i := range index {
			at := unsafe.Add(from, int(i-base)*step)
			move16(to, at)
			move16(unsafe.Add(to, 16), unsafe.Add(at, 16))
			move16(unsafe.Add(to, 32), unsafe.Add(at, 32))
			move16(unsafe.Add(to, 48), unsafe.Add(at, 48))
			to = unsafe.Add(to, 64)
		}
	}
	clearUpper()
}

func move16(to, from unsafe.Pointer) {
	archsimd.LoadUint8x16Array((*[16]uint8)(from)).StoreArray((*[16]uint8)(to))
}
