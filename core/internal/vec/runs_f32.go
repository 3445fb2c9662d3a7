//go:build goexperiment.simd && (amd64 || arm64)

package vec

import (
	"slices"
	"unsafe"
)

// Loops over narrow rows, one after the other: those that fill a register, and single numbers. Others take
// the loops of plain Go.

//go:nocheckptr
func sumRowsF32(y, x []float32) {
	at, from, end := unsafe.Pointer(unsafe.SliceData(y)), unsafe.Pointer(unsafe.SliceData(x)), len(x)*sizeF32
	switch {
	case len(y) == lanesF32:
		a := *(*f32s)(at)
		for j := 0; j < end; j += stepF32 {
			a = a.Add(*(*f32s)(unsafe.Add(from, j)))
		}
		*(*f32s)(at) = a
	case len(y) == 16/sizeF32:
		a := loadQuadF32(at)
		for j := 0; j < end; j += 16 {
			a = a.Add(loadQuadF32(unsafe.Add(from, j)))
		}
		storeQuadF32(at, a)
	default:
		sumRowsScalar(y, x)
		return
	}
	clearUpper()
}

//go:nocheckptr
func mostRowsF32(y, x []float32) {
	at, from, end := unsafe.Pointer(unsafe.SliceData(y)), unsafe.Pointer(unsafe.SliceData(x)), len(x)*sizeF32
	switch {
	case len(y) == lanesF32:
		a := *(*f32s)(at)
		for j := 0; j < end; j += stepF32 {
			a = a.Max(*(*f32s)(unsafe.Add(from, j)))
		}
		*(*f32s)(at) = a
	case len(y) == 16/sizeF32:
		a := loadQuadF32(at)
		for j := 0; j < end; j += 16 {
			a = a.Max(loadQuadF32(unsafe.Add(from, j)))
		}
		storeQuadF32(at, a)
	case len(y) == 1 && len(x) >= lanesF32:
		a, last := fillF32(y[0]), end-stepF32
		for j := 0; j < last; j += stepF32 {
			a = a.Max(*(*f32s)(unsafe.Add(from, j)))
		}
		var lanes [lanesF32]float32
		*(*f32s)(unsafe.Pointer(&lanes)) = a.Max(*(*f32s)(unsafe.Add(from, last))) // reaches back over the one before
		clearUpper()
		y[0] = slices.Max(lanes[:])
		return
	default:
		mostRowsScalar(y, x)
		return
	}
	clearUpper()
}

//go:nocheckptr
func lessRowF32(z, y, x []float32) {
	at, from, end := unsafe.Pointer(unsafe.SliceData(y)), unsafe.Pointer(unsafe.SliceData(x)), len(x)*sizeF32
	to := unsafe.Pointer(unsafe.SliceData(z[:len(x)]))
	switch {
	case len(y) == lanesF32:
		a := *(*f32s)(at)
		for j := 0; j < end; j += stepF32 {
			*(*f32s)(unsafe.Add(to, j)) = (*(*f32s)(unsafe.Add(from, j))).Sub(a)
		}
	case len(y) == 16/sizeF32:
		a := loadQuadF32(at)
		for j := 0; j < end; j += 16 {
			storeQuadF32(unsafe.Add(to, j), loadQuadF32(unsafe.Add(from, j)).Sub(a))
		}
	case len(y) == 1 && len(x) >= lanesF32:
		a, last := fillF32(y[0]), end-stepF32
		v := *(*f32s)(unsafe.Add(from, last)) // reaches back over the one before, and z may be x
		for j := 0; j < last; j += stepF32 {
			*(*f32s)(unsafe.Add(to, j)) = (*(*f32s)(unsafe.Add(from, j))).Sub(a)
		}
		*(*f32s)(unsafe.Add(to, last)) = v.Sub(a)
	default:
		lessRowScalar(z, y, x)
		return
	}
	clearUpper()
}

// scatterAddF32 takes the loops of whole rows for those that fill a register.
//
//go:nocheckptr
func scatterAddF32(y, x []float32, index []int32, w int) {
	switch {
	case len(index) == 0:
	case w == 16/sizeF32:
		to, from := unsafe.Pointer(unsafe.SliceData(y)), unsafe.Pointer(unsafe.SliceData(x[:len(index)*w]))
		for _, i := range index {
			at := unsafe.Add(to, int(i)*16)
			storeQuadF32(at, loadQuadF32(at).Add(loadQuadF32(from)))
			from = unsafe.Add(from, 16)
		}
		clearUpper()
	case w >= lanesF32:
		for k, i := range index {
			addF32(y[int(i)*w:][:w], x[k*w:][:w])
		}
	default:
		scatterAddScalar(y, x, index, w)
	}
}
