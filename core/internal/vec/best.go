//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Loops of greatest and least elements, of float32 alone: those of float64 are plain Go.

//go:nocheckptr
func winF32(best, x []float32, won []int32, edge int32, least bool) {
	x, won = x[:len(best)], won[:len(best)]
	e := fillI32(edge)
	j := 0
	for ; j+lanesF32 <= len(best); j += lanesF32 {
		to, at := unsafe.Pointer(&best[j]), unsafe.Pointer(&won[j])
		b, v, w := *(*f32s)(to), *(*f32s)(unsafe.Pointer(&x[j])), *(*i32s)(at)
		better := v.Greater(b)
		if least {
			better = v.Less(b)
		}
		better = better.Or(v.Equal(b).And(w.Greater(e)))
		*(*f32s)(to) = v.IfElse(better, b)
		*(*i32s)(at) = e.IfElse(better, w)
	}
	clearUpper()
	if j < len(best) {
		winScalar(best[j:], x[j:], won[j:], edge, least)
	}
}

//go:nocheckptr
func pickF32(z, x []float32, won []int32, edge int32) {
	x, won = x[:len(z)], won[:len(z)]
	var zero f32s
	e := fillI32(edge)
	j := 0
	for ; j+lanesF32 <= len(z); j += lanesF32 {
		mine := e.Equal(*(*i32s)(unsafe.Pointer(&won[j])))
		*(*f32s)(unsafe.Pointer(&z[j])) = (*(*f32s)(unsafe.Pointer(&x[j]))).IfElse(mine, zero)
	}
	if n := len(z) - j; n > 0 {
		in := firstF32(n)
		mine := e.Equal(partF32(unsafe.Pointer(&won[j]), in, n).ToBits().BitsToInt32())
		storePartF32(unsafe.Pointer(&z[j]), partF32(unsafe.Pointer(&x[j]), in, n).IfElse(mine, zero), in, n)
	}
	clearUpper()
}
