//go:build goexperiment.simd && (amd64 || arm64)

package vec

import (
	"math"
	"unsafe"
)

// Functions of one number in float64: plain Go of the exponential. z must not be x.

// expF64 is expF32.
func expF64(y, x []float64) {
	if j := wholeExpF64(y, x); j < len(y) {
		var last [lanesF64]float64
		copy(last[:], x[j:])
		wholeExpF64(last[:], last[:])
		copy(y[j:], last[:])
	}
}

// wholeExpF64 takes whole registers, and returns how many elements those were.
func wholeExpF64(y, x []float64) (j int) {
	log2e, magic, half := fillF64(math.Log2E), fillF64(magicF64), fillF64(0.5)
	high, low := fillF64(-highF64), fillF64(-lowF64)
	most, least := fillF64(mostExpF64), fillF64(leastExpF64)
	bias := fillU64(biasF64 << shiftF64)
	for ; j+lanesF64 <= len(y); j += lanesF64 {
		v := *(*f64s)(unsafe.Pointer(&x[j]))
		w := v.Min(most).Max(least)
		k := w.MulAdd(log2e, magic).Sub(magic)
		p := expPolyF64(k.MulAdd(low, k.MulAdd(high, w)))
		th := k.MulAdd(half, magic)
		tl := k.Sub(th.Sub(magic)).Add(magic)
		p = p.Mul(th.ToBits().ShiftAllLeft(shiftF64).Add(bias).BitsToFloat64())
		p = p.Mul(tl.ToBits().ShiftAllLeft(shiftF64).Add(bias).BitsToFloat64())
		*(*f64s)(unsafe.Pointer(&y[j])) = p.IfElse(v.Equal(v), v) // NaN stays
	}
	clearUpper()
	return j
}

func sigmoidF64(z, x []float64) {
	one, minus := fillF64(1), fillF64(-1)
	for j := eachF64(z, x, x, func(x, _ f64s) f64s { return minus.Mul(x) }); j < len(z); j++ {
		z[j] = -x[j]
	}
	expF64(z, z)
	for j := eachF64(z, z, z, func(e, _ f64s) f64s { return one.Div(one.Add(e)) }); j < len(z); j++ {
		z[j] = 1 / (1 + z[j])
	}
}

// tanhF64 has the function of package math where the exponential would cancel.
func tanhF64(z, x []float64) {
	negativeF64(z, x, 2)
	expF64(z, z)
	for j, e := range z {
		if v := x[j]; math.Abs(v) < 0.625 {
			z[j] = math.Tanh(v)
		} else {
			z[j] = math.Copysign((1-e)/(1+e), v)
		}
	}
}

func eluF64(z, x []float64, c float64) {
	expF64(z, x[:len(z)])
	for j, e := range z {
		switch v := x[j]; {
		case v > 0:
			z[j] = v
		case v > -0.5:
			z[j] = c * math.Expm1(v)
		default:
			z[j] = c * (e - 1)
		}
	}
}

func softplusF64(z, x []float64) {
	negativeF64(z, x, 1)
	expF64(z, z)
	for j, e := range z {
		if v := x[j]; v > 20 {
			z[j] = v
		} else {
			z[j] = max(v, 0) + math.Log1p(e)
		}
	}
}

// negativeF64: z[j] = -c*|x[j]|
func negativeF64(z, x []float64, c float64) {
	for j := range z {
		z[j] = -c * math.Abs(x[j])
	}
}
