//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Sums of rows of bfloat16 times coefficients, as sums_f32.go has them of rows of float32, and with the same bits. A
// register of words holds two columns in each: shifted up, the word is the even one as a float32, and without its lower
// half the odd one. So sums are kept of even and of odd columns, and no lane moves until they are stored.

const (
	pairBF16 = 2 * lanesF32 // columns of a register
	mostBF16 = 3 * pairBF16 // and of a tile
)

// halfSumF32 walks the columns in tiles of up to three registers: the compiler keeps all that is added to the sums
// of a slot in registers at once, and of four it has too few.
func halfSumF32(g *Gather[float32]) {
	if len(g.Y) > nearColumns {
		halfSumHeadsF32(g, 1)
		return
	}
	halfSumColumnsF32(g, 0, len(g.Y), unsafe.Pointer(unsafe.SliceData(g.C)), sizeF32)
}

// halfSumHeadsF32 takes one head after the other, in whose sums the coefficients of a slot are heads apart.
func halfSumHeadsF32(g *Gather[float32], heads int) {
	if len(g.Y) == 0 || len(g.Col) == 0 {
		if g.First {
			clear(g.Y)
		}
		return
	}
	sums, d := *g, len(g.Y)/heads
	sums.Out = nil // of another loop
	nearF32(&sums, len(g.Y), heads, func(g *Gather[float32]) {
		for h := range heads {
			c := unsafe.Pointer(unsafe.SliceData(g.C[min(h, len(g.C)):]))
			halfSumColumnsF32(g, h*d, (h+1)*d, c, heads*sizeF32)
		}
	})
}

// halfSumColumnsF32 is columns [from, to), with coefficients step bytes apart.
func halfSumColumnsF32(g *Gather[float32], from, to int, c unsafe.Pointer, step int) {
	for from < to {
		w := to - from
		if w > 4*pairBF16 {
			w = mostBF16
		} else if w > mostBF16 {
			w = 2 * pairBF16
		}
		y := unsafe.Pointer(unsafe.SliceData(g.Y[from:to]))
		x := unsafe.Pointer(unsafe.SliceData(g.Half[min(from, len(g.Half)):]))
		tileBF16(w)(y, x, w, g.Stride*sizeBF16, g.Col, int(g.Base), c, step, g.First)
		from += w
	}
}

// halfSumsF32 has next to nothing to do between two rows of one tile.
func halfSumsF32(g *Gather[float32], runs []Run) {
	if g.D == 0 || g.D > mostBF16 {
		gatherEach(g, runs, halfSumF32)
		return
	}
	sum, x, stride, base := tileBF16(g.D), unsafe.Pointer(unsafe.SliceData(g.Half)), g.Stride*sizeBF16, int(g.Base)
	for _, r := range runs {
		var c unsafe.Pointer
		if g.C != nil {
			c = unsafe.Pointer(unsafe.SliceData(g.C[r.At:][:r.To-r.From]))
		}
		y := unsafe.Pointer(unsafe.SliceData(g.Y[r.Y:][:g.D]))
		sum(y, x, g.D, stride, g.Col[r.From:r.To], base, c, sizeF32, g.First)
	}
}

// tileBF16 is the loop over tiles of w columns, which is no more than three registers have.
func tileBF16(w int) func(
	y, x unsafe.Pointer, w, stride int, cols []int32, base int, c unsafe.Pointer, step int, first bool,
) {
	switch (w + lanesF32 - 1) / lanesF32 {
	case 1:
		return narrowBF16
	case 2:
		return sum1BF16
	case 3, 4:
		return sum2BF16
	}
	return sum3BF16
}

// narrowBF16 is a tile of w columns, no more than a register of float32 has.
//
//go:noinline
//go:nocheckptr
func narrowBF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c unsafe.Pointer, step int, first bool) {
	in := firstF32(w)
	var a f32s
	if !first {
		a = partF32(y, in, w)
	}
	for k, col := range cols {
		v := partBF16(unsafe.Add(x, (int(col)-base)*stride), in, w)
		if c != nil {
			v = fillF32(*(*float32)(unsafe.Add(c, k*step))).Mul(v)
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
func sum1BF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c unsafe.Pointer, step int, first bool) {
	end := w - lanesF32
	var a0, a1 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, end*sizeF32))
	}
	for k, col := range cols {
		r := unsafe.Add(x, (int(col)-base)*stride)
		v0, v1 := wideBF16(r), wideBF16(unsafe.Add(r, end*sizeBF16))
		if c != nil {
			b := fillF32(*(*float32)(unsafe.Add(c, k*step)))
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

// sum2BF16 is a tile of two registers. The last register of a tile ends where the tile does, so the columns that it
// shares with the one before get the same sum twice.
//
//go:noinline
//go:nocheckptr
func sum2BF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c unsafe.Pointer, step int, first bool) {
	end := w - pairBF16
	var e0, o0, e1, o1 f32s
	if !first {
		e0, o0 = loadPairF32(y)
		e1, o1 = loadPairF32(unsafe.Add(y, end*sizeF32))
	}
	odd, last := fillU32(0xffff0000), end*sizeBF16
	if c == nil {
		for _, col := range cols {
			r := unsafe.Add(x, (int(col)-base)*stride)
			v0 := *(*u32s)(r)
			e0 = e0.Add(v0.ShiftAllLeft(16).BitsToFloat32())
			o0 = o0.Add(v0.And(odd).BitsToFloat32())
			v1 := *(*u32s)(unsafe.Add(r, last))
			e1 = e1.Add(v1.ShiftAllLeft(16).BitsToFloat32())
			o1 = o1.Add(v1.And(odd).BitsToFloat32())
		}
	} else {
		for _, col := range cols {
			r := unsafe.Add(x, (int(col)-base)*stride)
			b := fillF32(*(*float32)(c))
			v0 := *(*u32s)(r)
			e0 = e0.Add(b.Mul(v0.ShiftAllLeft(16).BitsToFloat32()))
			o0 = o0.Add(b.Mul(v0.And(odd).BitsToFloat32()))
			v1 := *(*u32s)(unsafe.Add(r, last))
			e1 = e1.Add(b.Mul(v1.ShiftAllLeft(16).BitsToFloat32()))
			o1 = o1.Add(b.Mul(v1.And(odd).BitsToFloat32()))
			c = unsafe.Add(c, step)
		}
	}
	storePairF32(y, e0, o0)
	storePairF32(unsafe.Add(y, end*sizeF32), e1, o1)
	clearUpper()
}

// sum3BF16 is a tile of three registers.
//
//go:noinline
//go:nocheckptr
func sum3BF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c unsafe.Pointer, step int, first bool) {
	end := w - pairBF16
	var e0, o0, e1, o1, e2, o2 f32s
	if !first {
		e0, o0 = loadPairF32(y)
		e1, o1 = loadPairF32(unsafe.Add(y, 2*stepF32))
		e2, o2 = loadPairF32(unsafe.Add(y, end*sizeF32))
	}
	odd, last := fillU32(0xffff0000), end*sizeBF16
	if c == nil {
		for _, col := range cols {
			r := unsafe.Add(x, (int(col)-base)*stride)
			v0 := *(*u32s)(r)
			e0 = e0.Add(v0.ShiftAllLeft(16).BitsToFloat32())
			o0 = o0.Add(v0.And(odd).BitsToFloat32())
			v1 := *(*u32s)(unsafe.Add(r, stepF32))
			e1 = e1.Add(v1.ShiftAllLeft(16).BitsToFloat32())
			o1 = o1.Add(v1.And(odd).BitsToFloat32())
			v2 := *(*u32s)(unsafe.Add(r, last))
			e2 = e2.Add(v2.ShiftAllLeft(16).BitsToFloat32())
			o2 = o2.Add(v2.And(odd).BitsToFloat32())
		}
	} else {
		for _, col := range cols {
			r := unsafe.Add(x, (int(col)-base)*stride)
			b := fillF32(*(*float32)(c))
			v0 := *(*u32s)(r)
			e0 = e0.Add(b.Mul(v0.ShiftAllLeft(16).BitsToFloat32()))
			o0 = o0.Add(b.Mul(v0.And(odd).BitsToFloat32()))
			v1 := *(*u32s)(unsafe.Add(r, stepF32))
			e1 = e1.Add(b.Mul(v1.ShiftAllLeft(16).BitsToFloat32()))
			o1 = o1.Add(b.Mul(v1.And(odd).BitsToFloat32()))
			v2 := *(*u32s)(unsafe.Add(r, last))
			e2 = e2.Add(b.Mul(v2.ShiftAllLeft(16).BitsToFloat32()))
			o2 = o2.Add(b.Mul(v2.And(odd).BitsToFloat32()))
			c = unsafe.Add(c, step)
		}
	}
	storePairF32(y, e0, o0)
	storePairF32(unsafe.Add(y, 2*stepF32), e1, o1)
	storePairF32(unsafe.Add(y, end*sizeF32), e2, o2)
	clearUpper()
}
