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

// eachF32: z = f(x, y), a register at a time. It returns how many elements that were.
func eachF32(z, x, y []float32, f func(x, y f32s) f32s) (j int) {
	x, y = x[:len(z)], y[:len(z)]
	for ; j+lanesF32 <= len(z); j += lanesF32 {
		*(*f32s)(unsafe.Pointer(&z[j])) = f(*(*f32s)(unsafe.Pointer(&x[j])), *(*f32s)(unsafe.Pointer(&y[j])))
	}
	clearUpper()
	return j
}

func scaleF32(y []float32, c float32) {
	b := fillF32(c)
	j := eachF32(y, y, y, func(y, _ f32s) f32s { return y.Mul(b) })
	scaleScalar(y[j:], c)
}

func plusF32(z, x, y []float32) {
	j := eachF32(z, x, y, func(x, y f32s) f32s { return x.Add(y) })
	plusScalar(z[j:], x[j:], y[j:])
}

func minusF32(z, x, y []float32) {
	j := eachF32(z, x, y, func(x, y f32s) f32s { return x.Sub(y) })
	minusScalar(z[j:], x[j:], y[j:])
}

func timesF32(z, x, y []float32) {
	j := eachF32(z, x, y, func(x, y f32s) f32s { return x.Mul(y) })
	timesScalar(z[j:], x[j:], y[j:])
}

func overF32(z, x, y []float32) {
	j := eachF32(z, x, y, func(x, y f32s) f32s { return x.Div(y) })
	overScalar(z[j:], x[j:], y[j:])
}

func leakyF32(z, x, y []float32, c float32) {
	var zero f32s
	slope := fillF32(c)
	j := eachF32(z, x, y, func(x, y f32s) f32s { return y.IfElse(x.Greater(zero), y.Mul(slope)) })
	leakyScalar(z[j:], x[j:], y[j:], c)
}

func gateF32(z, x, y []float32) {
	var zero f32s
	j := eachF32(z, x, y, func(x, y f32s) f32s { return zero.IfElse(x.LessEqual(zero), y) })
	gateScalar(z[j:], x[j:], y[j:])
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
