//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Sums of rows of bfloat16 have the bits of those of float32. A register of words holds two columns in each: shifted
// up, the word is the even one as a float32, and without its lower half the odd one. So sums are kept of even and of
// odd columns, and no lane moves until they are stored.

const pairBF16 = 2 * lanesF32 // columns of a register

var sumsBF16 = sums{sizeBF16, tileBF16, nearColumns}

// tileBF16 is up to three registers: the compiler keeps all that is added to the sums of a slot in registers at once,
// and of four it has too few.
func tileBF16(w int, _ bool) (int, sumTile) {
	switch n := (w + lanesF32 - 1) / lanesF32; {
	case n <= 1:
		return w, narrowBF16
	case n == 2:
		return w, sum1BF16
	case n <= 4:
		return w, sum2BF16
	case n <= 6:
		return w, sum3BF16
	case n <= 8:
		return 2 * pairBF16, sum2BF16
	}
	return 3 * pairBF16, sum3BF16
}

// narrowBF16 is a tile of w columns, no more than a register of float32 has.
//
//go:noinline
//go:nocheckptr
func narrowBF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	in := firstF32(w)
	var a f32s
	if !first {
		a = partF32(y, in, w)
	}
	for _, col := range cols {
		row := int(col) - base
		v := partBF16(unsafe.Add(x, row*stride), in, w)
		if c.at != nil {
			v = fillF32(*(*float32)(c.of(row))).Mul(v)
			c.at = unsafe.Add(c.at, c.step)
		}
		a = a.Add(v)
	}
	storePartF32(y, a, in, w)
	clearUpper()
}

// sum1BF16 is a tile of two registers of float32, the second of which ends where the tile does.
//
//go:noinline
//go:nocheckptr
func sum1BF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := w - lanesF32
	var a0, a1 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, end*sizeF32))
	}
	for _, col := range cols {
		row := int(col) - base
		r := unsafe.Add(x, row*stride)
		v0, v1 := wideBF16(r), wideBF16(unsafe.Add(r, end*sizeBF16))
		if c.at != nil {
			b := fillF32(*(*float32)(c.of(row)))
			c.at = unsafe.Add(c.at, c.step)
			v0, v1 = b.Mul(v0), b.Mul(v1)
		}
		a0, a1 = a0.Add(v0), a1.Add(v1)
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, end*sizeF32)) = a1
	clearUpper()
}

// loadPairF32 loads the sums of the columns of a register from y, storePairF32 stores them.
func loadPairF32(y unsafe.Pointer) (even, odd f32s) {
	return unweaveF32(*(*u32s)(y), *(*u32s)(unsafe.Add(y, stepF32)))
}

func storePairF32(y unsafe.Pointer, even, odd f32s) {
	*(*u32s)(y), *(*u32s)(unsafe.Add(y, stepF32)) = weaveF32(even.ToBits(), odd.ToBits())
}

// addPairF32 adds the columns of a register, timesPairF32 multiples of them. upper: the upper half of each word.
func addPairF32(v, upper u32s, even, odd f32s) (f32s, f32s) {
	return even.Add(v.ShiftAllLeft(16).BitsToFloat32()), odd.Add(v.And(upper).BitsToFloat32())
}

func timesPairF32(b f32s, v, upper u32s, even, odd f32s) (f32s, f32s) {
	return even.Add(b.Mul(v.ShiftAllLeft(16).BitsToFloat32())), odd.Add(b.Mul(v.And(upper).BitsToFloat32()))
}

// sum2BF16 is a tile of two registers.
//
//go:noinline
//go:nocheckptr
func sum2BF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - pairBF16) * sizeBF16
	var e0, o0, e1, o1 f32s
	if !first {
		e0, o0 = loadPairF32(y)
		e1, o1 = loadPairF32(unsafe.Add(y, 2*end))
	}
	upper := fillU32(0xffff0000)
	if c.at == nil {
		for _, col := range cols {
			r := unsafe.Add(x, (int(col)-base)*stride)
			e0, o0 = addPairF32(*(*u32s)(r), upper, e0, o0)
			e1, o1 = addPairF32(*(*u32s)(unsafe.Add(r, end)), upper, e1, o1)
		}
	} else {
		for _, col := range cols {
			row := int(col) - base
			r, b := unsafe.Add(x, row*stride), fillF32(*(*float32)(c.of(row)))
			e0, o0 = timesPairF32(b, *(*u32s)(r), upper, e0, o0)
			e1, o1 = timesPairF32(b, *(*u32s)(unsafe.Add(r, end)), upper, e1, o1)
			c.at = unsafe.Add(c.at, c.step)
		}
	}
	storePairF32(y, e0, o0)
	storePairF32(unsafe.Add(y, 2*end), e1, o1)
	clearUpper()
}

// sum3BF16 is a tile of three registers.
//
//go:noinline
//go:nocheckptr
func sum3BF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - pairBF16) * sizeBF16
	var e0, o0, e1, o1, e2, o2 f32s
	if !first {
		e0, o0 = loadPairF32(y)
		e1, o1 = loadPairF32(unsafe.Add(y, 2*stepF32))
		e2, o2 = loadPairF32(unsafe.Add(y, 2*end))
	}
	upper := fillU32(0xffff0000)
	if c.at == nil {
		for _, col := range cols {
			r := unsafe.Add(x, (int(col)-base)*stride)
			e0, o0 = addPairF32(*(*u32s)(r), upper, e0, o0)
			e1, o1 = addPairF32(*(*u32s)(unsafe.Add(r, stepF32)), upper, e1, o1)
			e2, o2 = addPairF32(*(*u32s)(unsafe.Add(r, end)), upper, e2, o2)
		}
	} else {
		for _, col := range cols {
			row := int(col) - base
			r, b := unsafe.Add(x, row*stride), fillF32(*(*float32)(c.of(row)))
			e0, o0 = timesPairF32(b, *(*u32s)(r), upper, e0, o0)
			e1, o1 = timesPairF32(b, *(*u32s)(unsafe.Add(r, stepF32)), upper, e1, o1)
			e2, o2 = timesPairF32(b, *(*u32s)(unsafe.Add(r, end)), upper, e2, o2)
			c.at = unsafe.Add(c.at, c.step)
		}
	}
	storePairF32(y, e0, o0)
	storePairF32(unsafe.Add(y, 2*stepF32), e1, o1)
	storePairF32(unsafe.Add(y, 2*end), e2, o2)
	clearUpper()
}
