//go:build goexperiment.simd && (amd64 || arm64)

package vec

import (
	"math"
	"unsafe"
)

// Functions of one number. Most are a pass that makes the argument of an exponential, the exponential,
// and a pass that makes the function of it. z must not be x.

// polyF32 is a polynomial in x.
func polyF32(x f32s, c [][lanesF32]float32) f32s {
	p := *(*f32s)(unsafe.Pointer(&c[0]))
	for c = c[1:]; len(c) >= 4; c = c[4:] {
		p = p.MulAdd(x, *(*f32s)(unsafe.Pointer(&c[0]))).MulAdd(x, *(*f32s)(unsafe.Pointer(&c[1])))
		p = p.MulAdd(x, *(*f32s)(unsafe.Pointer(&c[2]))).MulAdd(x, *(*f32s)(unsafe.Pointer(&c[3])))
	}
	for i := range c {
		p = p.MulAdd(x, *(*f32s)(unsafe.Pointer(&c[i])))
	}
	return p
}

// someF32 loads n lanes, and zeros for the others.
func someF32(p unsafe.Pointer, n int) f32s {
	if n == lanesF32 {
		return *(*f32s)(p)
	}
	return partF32(p, firstF32(n), n)
}

// storeSomeF32 stores n lanes.
func storeSomeF32(p unsafe.Pointer, v f32s, n int) {
	if n == lanesF32 {
		*(*f32s)(p) = v
	} else {
		storePartF32(p, v, firstF32(n), n)
	}
}

// expF32: x = n·ln 2 + r with |r| ≤ ln 2 / 2; a polynomial of r, times 2^n in two factors, so that results
// below the normal range come out rounded once more and not wrong. Adding magic leaves n in the low bits
// of a sum.
//
//go:nocheckptr
func expF32(y, x []float32) {
	x = x[:len(y)]
	log2e, magic, half := fillF32(math.Log2E), fillF32(magicF32), fillF32(0.5)
	high, low := fillF32(-highF32), fillF32(-lowF32)
	most, least := fillF32(mostExpF32), fillF32(leastExpF32)
	bias, c := fillU32(biasF32<<shiftF32), unsafe.Pointer(unsafe.SliceData(expPolyF32))
	for j := 0; j < len(y); j += lanesF32 {
		n := min(lanesF32, len(y)-j)
		v := someF32(unsafe.Pointer(&x[j]), n)
		w := v.Min(most).Max(least)
		k := w.MulAdd(log2e, magic).Sub(magic)
		r := k.MulAdd(low, k.MulAdd(high, w))
		p := (*(*f32s)(c)).MulAdd(r, *(*f32s)(unsafe.Add(c, stepF32))) // polyF32 without its loop: this is in the softmax
		p = p.MulAdd(r, *(*f32s)(unsafe.Add(c, 2*stepF32))).MulAdd(r, *(*f32s)(unsafe.Add(c, 3*stepF32)))
		p = p.MulAdd(r, *(*f32s)(unsafe.Add(c, 4*stepF32))).MulAdd(r, *(*f32s)(unsafe.Add(c, 5*stepF32)))
		p = p.MulAdd(r, *(*f32s)(unsafe.Add(c, 6*stepF32))).MulAdd(r, *(*f32s)(unsafe.Add(c, 7*stepF32)))
		th := k.MulAdd(half, magic)
		tl := k.Sub(th.Sub(magic)).Add(magic)
		p = p.Mul(th.ToBits().ShiftAllLeft(shiftF32).Add(bias).BitsToFloat32())
		p = p.Mul(tl.ToBits().ShiftAllLeft(shiftF32).Add(bias).BitsToFloat32())
		storeSomeF32(unsafe.Pointer(&y[j]), p.IfElse(v.Equal(v), v), n) // NaN stays
	}
	clearUpper()
}

// negativeF32: z[j] = -c·|x[j]|
//
//go:nocheckptr
func negativeF32(z, x []float32, c float32) {
	up, down := fillF32(c), fillF32(-c)
	for j := 0; j < len(z); j += lanesF32 {
		n := min(lanesF32, len(z)-j)
		v := someF32(unsafe.Pointer(&x[j]), n)
		p := v.Mul(up).Min(v.Mul(down))
		storeSomeF32(unsafe.Pointer(&z[j]), p.IfElse(v.Equal(v), v), n) // NaN stays
	}
	clearUpper()
}

//go:nocheckptr
func sigmoidF32(z, x []float32) {
	negativeF32(z, x[:len(z)], 1)
	expF32(z, z)
	var zero f32s
	one := fillF32(1)
	for j := 0; j < len(z); j += lanesF32 {
		n := min(lanesF32, len(z)-j)
		v, e := someF32(unsafe.Pointer(&x[j]), n), someF32(unsafe.Pointer(&z[j]), n)
		p := e.IfElse(v.Less(zero), one).Div(one.Add(e))
		storeSomeF32(unsafe.Pointer(&z[j]), p, n)
	}
	clearUpper()
}

// tanhF32 has a polynomial where the exponential would cancel.
//
//go:nocheckptr
func tanhF32(z, x []float32) {
	negativeF32(z, x[:len(z)], 2)
	expF32(z, z)
	var zero f32s
	one, near, far := fillF32(1), fillF32(0.625), fillF32(-0.625)
	for j := 0; j < len(z); j += lanesF32 {
		n := min(lanesF32, len(z)-j)
		v, e := someF32(unsafe.Pointer(&x[j]), n), someF32(unsafe.Pointer(&z[j]), n)
		p := one.Sub(e).Div(one.Add(e))
		p = zero.Sub(p).IfElse(v.Less(zero), p)
		s := v.Mul(v)
		q := polyF32(s, tanhPolyF32)
		p = q.Mul(s).MulAdd(v, v).IfElse(v.Less(near).And(v.Greater(far)), p)
		storeSomeF32(unsafe.Pointer(&z[j]), p, n)
	}
	clearUpper()
}

// eluF32 has a polynomial where the exponential less 1 would cancel.
//
//go:nocheckptr
func eluF32(z, x []float32, c float32) {
	expF32(z, x[:len(z)])
	var zero f32s
	one, scale, far := fillF32(1), fillF32(c), fillF32(-0.5)
	for j := 0; j < len(z); j += lanesF32 {
		n := min(lanesF32, len(z)-j)
		v, e := someF32(unsafe.Pointer(&x[j]), n), someF32(unsafe.Pointer(&z[j]), n)
		q := polyF32(v, expm1PolyF32)
		p := q.Mul(v).IfElse(v.Greater(far), e.Sub(one)).Mul(scale)
		storeSomeF32(unsafe.Pointer(&z[j]), v.IfElse(v.Greater(zero), p), n)
	}
	clearUpper()
}

// splitF32: w = m·2^k with m between √½ and √2, of positive normal numbers.
func splitF32(w f32s) (m, k f32s) {
	bits, magic, unit := w.ToBits(), fillF32(magicF32), fillF32(1)
	m = bits.And(fillU32(1<<shiftF32 - 1)).Or(unit.ToBits()).BitsToFloat32()
	k = bits.ShiftAllRight(shiftF32).Add(magic.ToBits()).BitsToFloat32().Sub(magic).Sub(fillF32(biasF32))
	large := m.Greater(fillF32(math.Sqrt2))
	return m.Mul(fillF32(0.5)).IfElse(large, m), k.Add(unit).IfElse(large, k)
}

// lnF32 is the logarithm of m·2^k, with m less 1.
func lnF32(m, k f32s) f32s {
	q, s := polyF32(m, logPolyF32), m.Mul(m)
	l := q.Mul(m).Mul(s)
	l = k.MulAdd(fillF32(-2.121944400546905827679e-4), l)
	l = s.MulAdd(fillF32(-0.5), l)
	return k.MulAdd(fillF32(0.693359375), m.Add(l))
}

//go:nocheckptr
func softplusF32(z, x []float32) {
	negativeF32(z, x[:len(z)], 1)
	expF32(z, z)
	var zero f32s
	one, linear := fillF32(1), fillF32(20)
	for j := 0; j < len(z); j += lanesF32 {
		n := min(lanesF32, len(z)-j)
		v, e := someF32(unsafe.Pointer(&x[j]), n), someF32(unsafe.Pointer(&z[j]), n)
		w := one.Add(e)
		m, k := splitF32(w)
		// log1p(e), with what the rounding of 1 + e has left out
		p := v.Max(zero).Add(lnF32(m.Sub(one), k).Add(e.Sub(w.Sub(one)).Div(w)))
		p = v.IfElse(v.Greater(linear), p)
		storeSomeF32(unsafe.Pointer(&z[j]), p.IfElse(v.Equal(v), v), n)
	}
	clearUpper()
}

//go:nocheckptr
func logF32(z, x []float32) {
	x = x[:len(z)]
	var zero f32s
	one, least, scale, logScale := fillF32(1), fillF32(leastF32), fillF32(raiseF32), fillF32(logRaiseF32)
	infinite, none := fillF32(float32(math.Inf(1))), fillF32(float32(math.NaN()))
	for j := 0; j < len(z); j += lanesF32 {
		n := min(lanesF32, len(z)-j)
		v := someF32(unsafe.Pointer(&x[j]), n)
		m, k := splitF32(v.Mul(scale).IfElse(v.Less(least), v)) // below the normal range
		l := lnF32(m.Sub(one), k)
		p := l.Sub(logScale).IfElse(v.Less(least), l)
		p = infinite.IfElse(v.Equal(infinite), p)
		p = zero.Sub(infinite).IfElse(v.Equal(zero), p)
		p = none.IfElse(v.Less(zero), p)
		storeSomeF32(unsafe.Pointer(&z[j]), p.IfElse(v.Equal(v), v), n)
	}
	clearUpper()
}
