//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Loops of float64 take whole registers, and plain Go what is left of a row. They are fewer and plainer than those of
// float32: what a sum has added up so far goes through the first cache, and most loops call others for each row. A
// helper that takes a function is inlined with it, so that nothing is called for a register.

// atF64 is the register at p, j bytes on.
func atF64(p unsafe.Pointer, j int) *f64s { return (*f64s)(unsafe.Add(p, j)) }

// dataF64 is where x begins.
func dataF64(x []float64) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }

// eachF64: z = f(x, y), a register at a time. It returns how many elements that were.
func eachF64(z, x, y []float64, f func(x, y f64s) f64s) (j int) {
	for ; j+lanesF64 <= len(z); j += lanesF64 {
		*(*f64s)(unsafe.Pointer(&z[j])) = f(*(*f64s)(unsafe.Pointer(&x[j])), *(*f64s)(unsafe.Pointer(&y[j])))
	}
	clearUpper()
	return j
}

func axpyF64(y, x []float64, c float64) {
	b := fillF64(c)
	j := eachF64(y, y, x, func(y, x f64s) f64s { return y.Add(b.Mul(x)) })
	axpyScalar(y[j:], x[j:], c)
}

func addF64(y, x []float64) {
	j := eachF64(y, y, x, func(y, x f64s) f64s { return y.Add(x) })
	addScalar(y[j:], x[j:])
}

func scaleF64(y []float64, c float64) {
	b := fillF64(c)
	j := eachF64(y, y, y, func(y, _ f64s) f64s { return y.Mul(b) })
	scaleScalar(y[j:], c)
}

func plusF64(z, x, y []float64) {
	j := eachF64(z, x, y, func(x, y f64s) f64s { return x.Add(y) })
	plusScalar(z[j:], x[j:], y[j:])
}

func minusF64(z, x, y []float64) {
	j := eachF64(z, x, y, func(x, y f64s) f64s { return x.Sub(y) })
	minusScalar(z[j:], x[j:], y[j:])
}

func timesF64(z, x, y []float64) {
	j := eachF64(z, x, y, func(x, y f64s) f64s { return x.Mul(y) })
	timesScalar(z[j:], x[j:], y[j:])
}

func overF64(z, x, y []float64) {
	j := eachF64(z, x, y, func(x, y f64s) f64s { return x.Div(y) })
	overScalar(z[j:], x[j:], y[j:])
}

func leakyF64(z, x, y []float64, c float64) {
	var zero f64s
	slope := fillF64(c)
	j := eachF64(z, x, y, func(x, y f64s) f64s { return y.IfElse(x.Greater(zero), y.Mul(slope)) })
	leakyScalar(z[j:], x[j:], y[j:], c)
}

func gateF64(z, x, y []float64) {
	var zero f64s
	j := eachF64(z, x, y, func(x, y f64s) f64s { return zero.IfElse(x.LessEqual(zero), y) })
	gateScalar(z[j:], x[j:], y[j:])
}

func timesEachF64(z, x, c []float64, d int) {
	for g, s := range c {
		to, from, b := z[g*d:(g+1)*d], x[g*d:(g+1)*d], fillF64(s)
		for j := eachF64(to, from, from, func(x, _ f64s) f64s { return x.Mul(b) }); j < d; j++ {
			to[j] = from[j] * s
		}
	}
}

func scatterAddF64(y, x []float64, index []int32, w int) {
	if w < lanesF64 {
		scatterAddScalar(y, x, index, w)
		return
	}
	for k, i := range index {
		addF64(y[int(i)*w:][:w], x[k*w:][:w])
	}
}
