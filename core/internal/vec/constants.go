//go:build goexperiment.simd && (amd64 || arm64)

package vec

// Constants of the functions in functions_*.go: minimax and Taylor polynomials, those of the logarithm and
// of tanh from Cephes, with the highest power first.

const (
	shiftF32, biasF32, magicF32 = 23, 127, 0x1.8p23
	shiftF64, biasF64, magicF64 = 52, 1023, 0x1.8p52

	// ln 2 is high + low, high with so few bits that its products with small integers are exact.
	highF32, lowF32 = 0.693359375, -2.12194440e-4
	highF64, lowF64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10

	// Beyond these e^x is infinite, and zero.
	mostExpF32, leastExpF32 = 90, -106
	mostExpF64, leastExpF64 = 711, -747

	// The least normal number, what numbers below it are multiplied with, and the logarithm of that.
	leastF32, raiseF32, logRaiseF32 = 0x1p-126, 0x1p25, 17.32867951399863
)

// Polynomials: each coefficient in all lanes of a register, since to broadcast it takes longer than its product.
var (
	expPolyF32 = lanesOfF32(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
		5.0000001201e-1, 1, 1)
	// (e^x - 1)/x for small x
	expm1PolyF32 = lanesOfF32(1.0/362880, 1.0/40320, 1.0/5040, 1.0/720, 1.0/120, 1.0/24, 1.0/6, 1.0/2, 1)
	tanhPolyF32  = lanesOfF32(-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
		-3.33332819422e-1)
	logPolyF32 = lanesOfF32(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
		-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
)

func lanesOfF32(numbers ...float32) [][lanesF32]float32 {
	c := make([][lanesF32]float32, len(numbers))
	for i := range c {
		for j := range c[i] {
			c[i][j] = numbers[i]
		}
	}
	return c
}

// expPolyF64 is e^x, and leaves out what is below 2^-57.
func expPolyF64(x f64s) f64s {
	p := fillF64(1.0/6227020800).MulAdd(x, fillF64(1.0/479001600)).MulAdd(x, fillF64(1.0/39916800))
	p = p.MulAdd(x, fillF64(1.0/3628800)).MulAdd(x, fillF64(1.0/362880)).MulAdd(x, fillF64(1.0/40320))
	p = p.MulAdd(x, fillF64(1.0/5040)).MulAdd(x, fillF64(1.0/720)).MulAdd(x, fillF64(1.0/120))
	p = p.MulAdd(x, fillF64(1.0/24)).MulAdd(x, fillF64(1.0/6)).MulAdd(x, fillF64(0.5))
	return p.MulAdd(x, fillF64(1)).MulAdd(x, fillF64(1))
}
