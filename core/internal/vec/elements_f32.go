//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Loops over elements: whole registers, and what is left of the last one.

//go:nocheckptr
func axpyF32(y, x []float32, c float32) {
	x = x[:len(y)]
	b := fillF32(c)
	j := 0
	for ; j+lanesF32 <= len(y); j += lanesF32 {
		*(*f32s)(unsafe.Pointer(&y[j])) = (*(*f32s)(unsafe.Pointer(&y[j]))).
			Add(b.Mul(*(*f32s)(unsafe.Pointer(&x[j]))))
	}
	if n := len(y) - j; n > 0 {
		in := firstF32(n)
		v := partF32(unsafe.Pointer(&y[j]), in, n).Add(b.Mul(partF32(unsafe.Pointer(&x[j]), in, n)))
		storePartF32(unsafe.Pointer(&y[j]), v, in, n)
	}
	clearUpper()
}

//go:nocheckptr
func addF32(y, x []float32) {
	x = x[:len(y)]
	j := 0
	for ; j+lanesF32 <= len(y); j += lanesF32 {
		*(*f32s)(unsafe.Pointer(&y[j])) = (*(*f32s)(unsafe.Pointer(&y[j]))).Add(*(*f32s)(unsafe.Pointer(&x[j])))
	}
	if n := len(y) - j; n > 0 {
		in := firstF32(n)
		v := partF32(unsafe.Pointer(&y[j]), in, n).Add(partF32(unsafe.Pointer(&x[j]), in, n))
		storePartF32(unsafe.Pointer(&y[j]), v, in, n)
	}
	clearUpper()
}

//go:nocheckptr
func scaleF32(y []float32, c float32) {
	b := fillF32(c)
	j := 0
	for ; j+lanesF32 <= len(y); j += lanesF32 {
		*(*f32s)(unsafe.Pointer(&y[j])) = (*(*f32s)(unsafe.Pointer(&y[j]))).Mul(b)
	}
	if n := len(y) - j; n > 0 {
		in := firstF32(n)
		storePartF32(unsafe.Pointer(&y[j]), partF32(unsafe.Pointer(&y[j]), in, n).Mul(b), in, n)
	}
	clearUpper()
}

//go:nocheckptr
func plusF32(z, x, y []float32) {
	x, y = x[:len(z)], y[:len(z)]
	j := 0
	for ; j+lanesF32 <= len(z); j += lanesF32 {
		*(*f32s)(unsafe.Pointer(&z[j])) = (*(*f32s)(unsafe.Pointer(&x[j]))).Add(*(*f32s)(unsafe.Pointer(&y[j])))
	}
	if n := len(z) - j; n > 0 {
		in := firstF32(n)
		v := partF32(unsafe.Pointer(&x[j]), in, n).Add(partF32(unsafe.Pointer(&y[j]), in, n))
		storePartF32(unsafe.Pointer(&z[j]), v, in, n)
	}
	clearUpper()
}

//go:nocheckptr
func minusF32(z, x, y []float32) {
	x, y = x[:len(z)], y[:len(z)]
	j := 0
	for ; j+lanesF32 <= len(z); j += lanesF32 {
		*(*f32s)(unsafe.Pointer(&z[j])) = (*(*f32s)(unsafe.Pointer(&x[j]))).Sub(*(*f32s)(unsafe.Pointer(&y[j])))
	}
	if n := len(z) - j; n > 0 {
		in := firstF32(n)
		v := partF32(unsafe.Pointer(&x[j]), in, n).Sub(partF32(unsafe.Pointer(&y[j]), in, n))
		storePartF32(unsafe.Pointer(&z[j]), v, in, n)
	}
	clearUpper()
}

//go:nocheckptr
func timesF32(z, x, y []float32) {
	x, y = x[:len(z)], y[:len(z)]
	j := 0
	for ; j+lanesF32 <= len(z); j += lanesF32 {
		*(*f32s)(unsafe.Pointer(&z[j])) = (*(*f32s)(unsafe.Pointer(&x[j]))).Mul(*(*f32s)(unsafe.Pointer(&y[j])))
	}
	if n := len(z) - j; n > 0 {
		in := firstF32(n)
		v := partF32(unsafe.Pointer(&x[j]), in, n).Mul(partF32(unsafe.Pointer(&y[j]), in, n))
		storePartF32(unsafe.Pointer(&z[j]), v, in, n)
	}
	clearUpper()
}

//go:nocheckptr
func overF32(z, x, y []float32) {
	x, y = x[:len(z)], y[:len(z)]
	j := 0
	for ; j+lanesF32 <= len(z); j += lanesF32 {
		*(*f32s)(unsafe.Pointer(&z[j])) = (*(*f32s)(unsafe.Pointer(&x[j]))).Div(*(*f32s)(unsafe.Pointer(&y[j])))
	}
	if n := len(z) - j; n > 0 {
		in := firstF32(n)
		v := partF32(unsafe.Pointer(&x[j]), in, n).Div(partF32(unsafe.Pointer(&y[j]), in, n))
		storePartF32(unsafe.Pointer(&z[j]), v, in, n)
	}
	clearUpper()
}

//go:nocheckptr
func leakyF32(z, x, y []float32, c float32) {
	x, y = x[:len(z)], y[:len(z)]
	var zero f32s
	slope := fillF32(c)
	j := 0
	for ; j+lanesF32 <= len(z); j += lanesF32 {
		up := *(*f32s)(unsafe.Pointer(&y[j]))
		*(*f32s)(unsafe.Pointer(&z[j])) = up.IfElse((*(*f32s)(unsafe.Pointer(&x[j]))).Greater(zero), up.Mul(slope))
	}
	if n := len(z) - j; n > 0 {
		in := firstF32(n)
		up := partF32(unsafe.Pointer(&y[j]), in, n)
		v := up.IfElse(partF32(unsafe.Pointer(&x[j]), in, n).Greater(zero), up.Mul(slope))
		storePartF32(unsafe.Pointer(&z[j]), v, in, n)
	}
	clearUpper()
}

//go:nocheckptr
func gateF32(z, x, y []float32) {
	x, y = x[:len(z)], y[:len(z)]
	var zero f32s
	j := 0
	for ; j+lanesF32 <= len(z); j += lanesF32 {
		v := zero.IfElse((*(*f32s)(unsafe.Pointer(&x[j]))).LessEqual(zero), *(*f32s)(unsafe.Pointer(&y[j])))
		*(*f32s)(unsafe.Pointer(&z[j])) = v
	}
	if n := len(z) - j; n > 0 {
		in := firstF32(n)
		v := zero.IfElse(partF32(unsafe.Pointer(&x[j]), in, n).LessEqual(zero), partF32(unsafe.Pointer(&y[j]), in, n))
		storePartF32(unsafe.Pointer(&z[j]), v, in, n)
	}
	clearUpper()
}

// timesEachF32 takes one register at a time of each group.
//
//go:nocheckptr
func timesEachF32(z, x, c []float32, d int) {
	n := len(c)
	if n == 0 || d == 0 {
		return
	}
	to, from := unsafe.Pointer(unsafe.SliceData(z[:n*d])), unsafe.Pointer(unsafe.SliceData(x[:n*d]))
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in := firstF32(tail)
	for _, s := range c {
		b := fillF32(s)
		for j := 0; j < full; j += stepF32 {
			*(*f32s)(unsafe.Add(to, j)) = (*(*f32s)(unsafe.Add(from, j))).Mul(b)
		}
		if tail > 0 {
			storePartF32(unsafe.Add(to, full), partF32(unsafe.Add(from, full), in, tail).Mul(b), in, tail)
		}
		to, from = unsafe.Add(to, d*sizeF32), unsafe.Add(from, d*sizeF32)
	}
	clearUpper()
}
