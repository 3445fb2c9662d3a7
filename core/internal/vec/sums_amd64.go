//go:build goexperiment.simd

package vec

import (
	"math"
	"simd/archsimd"
	"unsafe"
)

// Tiles of sums in registers of 512 bits, up to 256 columns: a row is read once, where loops of 256 bits come back for
// its next columns. docs/decisions/0028-sums-in-512-bits.md has the figures.

var (
	wideSumsF32  = sums{sizeF32, wideTileF32, math.MaxInt}
	wideSumsBF16 = sums{sizeBF16, wideTileBF16, math.MaxInt}
)

// wideTileF32 leaves what two registers hold to loops of 256 bits.
func wideTileF32(w int, weighted bool) (int, sumTile) {
	switch n := (w + wideLanes - 1) / wideLanes; {
	case n <= 3:
		return tileF32(w, weighted)
	case n == 4:
		return w, wide4F32
	case n <= 8:
		return w, wide8F32
	case w < 16*wideLanes || weighted:
		return 8 * wideLanes, wide8F32
	}
	return 16 * wideLanes, wide16F32
}

// wideTileBF16 leaves what a register holds to loops of 256 bits.
func wideTileBF16(w int, weighted bool) (int, sumTile) {
	switch n := (w + wideColumns - 1) / wideColumns; {
	case n <= 1:
		return tileBF16(w, weighted)
	case n == 2:
		return w, wide2BF16
	case n <= 4:
		return w, wide4BF16
	case w < 8*wideColumns || weighted:
		return 4 * wideColumns, wide4BF16
	}
	return 8 * wideColumns, wide8BF16
}

// addWide adds four registers of a row, timesWide multiples of them.
func addWide(r unsafe.Pointer, at0, at1, at2, at3 int, a0, a1, a2, a3 wideF32) (b0, b1, b2, b3 wideF32) {
	return a0.Add(*(*wideF32)(unsafe.Add(r, at0))), a1.Add(*(*wideF32)(unsafe.Add(r, at1))),
		a2.Add(*(*wideF32)(unsafe.Add(r, at2))), a3.Add(*(*wideF32)(unsafe.Add(r, at3)))
}

func timesWide(b wideF32, r unsafe.Pointer, at0, at1, at2, at3 int, a0, a1, a2, a3 wideF32) (b0, b1, b2, b3 wideF32) {
	return a0.Add(b.Mul(*(*wideF32)(unsafe.Add(r, at0)))), a1.Add(b.Mul(*(*wideF32)(unsafe.Add(r, at1)))),
		a2.Add(b.Mul(*(*wideF32)(unsafe.Add(r, at2)))), a3.Add(b.Mul(*(*wideF32)(unsafe.Add(r, at3))))
}

func loadWide(y unsafe.Pointer, at0, at1, at2, at3 int, first bool) (a0, a1, a2, a3 wideF32) {
	if first {
		return a0, a1, a2, a3
	}
	return *(*wideF32)(unsafe.Add(y, at0)), *(*wideF32)(unsafe.Add(y, at1)),
		*(*wideF32)(unsafe.Add(y, at2)), *(*wideF32)(unsafe.Add(y, at3))
}

func storeWide(y unsafe.Pointer, at0, at1, at2, at3 int, a0, a1, a2, a3 wideF32) {
	*(*wideF32)(unsafe.Add(y, at0)), *(*wideF32)(unsafe.Add(y, at1)) = a0, a1
	*(*wideF32)(unsafe.Add(y, at2)), *(*wideF32)(unsafe.Add(y, at3)) = a2, a3
}

// wide4F32 is a tile of three or four registers.
//
//go:noinline
//go:nocheckptr
func wide4F32(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - wideLanes) * sizeF32
	a0, a1, a2, a3 := loadWide(y, 0, wideBytes, 2*wideBytes, end, first)
	row := int(cols[0]) - base
	r, p := unsafe.Add(x, row*stride), c.of(row)
	if c.at == nil {
		for k := 1; ; k++ {
			a0, a1, a2, a3 = addWide(r, 0, wideBytes, 2*wideBytes, end, a0, a1, a2, a3)
			if k >= len(cols) {
				break
			}
			r = unsafe.Add(x, (int(cols[k])-base)*stride)
		}
	} else {
		for k := 1; ; k++ {
			b := archsimd.BroadcastFloat32x16(*(*float32)(p))
			a0, a1, a2, a3 = timesWide(b, r, 0, wideBytes, 2*wideBytes, end, a0, a1, a2, a3)
			if k >= len(cols) {
				break
			}
			row := int(cols[k]) - base
			r, p = unsafe.Add(x, row*stride), c.next(row)
		}
	}
	storeWide(y, 0, wideBytes, 2*wideBytes, end, a0, a1, a2, a3)
	clearUpper()
}

// wide8F32 is a tile of five to eight registers.
//
//go:noinline
//go:nocheckptr
func wide8F32(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - wideLanes) * sizeF32
	at4, at5, at6 := min(4*wideBytes, end), min(5*wideBytes, end), min(6*wideBytes, end)
	a0, a1, a2, a3 := loadWide(y, 0, wideBytes, 2*wideBytes, 3*wideBytes, first)
	a4, a5, a6, a7 := loadWide(y, at4, at5, at6, end, first)
	row := int(cols[0]) - base
	r, p := unsafe.Add(x, row*stride), c.of(row)
	if c.at == nil {
		for k := 1; ; k++ {
			a0, a1, a2, a3 = addWide(r, 0, wideBytes, 2*wideBytes, 3*wideBytes, a0, a1, a2, a3)
			a4, a5, a6, a7 = addWide(r, at4, at5, at6, end, a4, a5, a6, a7)
			if k >= len(cols) {
				break
			}
			r = unsafe.Add(x, (int(cols[k])-base)*stride)
		}
	} else {
		for k := 1; ; k++ {
			b := archsimd.BroadcastFloat32x16(*(*float32)(p))
			a0, a1, a2, a3 = timesWide(b, r, 0, wideBytes, 2*wideBytes, 3*wideBytes, a0, a1, a2, a3)
			a4, a5, a6, a7 = timesWide(b, r, at4, at5, at6, end, a4, a5, a6, a7)
			if k >= len(cols) {
				break
			}
			row := int(cols[k]) - base
			r, p = unsafe.Add(x, row*stride), c.next(row)
		}
	}
	storeWide(y, 0, wideBytes, 2*wideBytes, 3*wideBytes, a0, a1, a2, a3)
	storeWide(y, at4, at5, at6, end, a4, a5, a6, a7)
	clearUpper()
}

// wide16F32 is 256 columns without coefficients. Of their sums the compiler keeps two on the stack; with coefficients
// it would keep more, and take half as long again.
//
//go:noinline
//go:nocheckptr
func wide16F32(y, x unsafe.Pointer, _, stride int, cols []int32, base int, _ coefficients, first bool) {
	a0, a1, a2, a3 := loadWide(y, 0, wideBytes, 2*wideBytes, 3*wideBytes, first)
	a4, a5, a6, a7 := loadWide(y, 4*wideBytes, 5*wideBytes, 6*wideBytes, 7*wideBytes, first)
	a8, a9, a10, a11 := loadWide(y, 8*wideBytes, 9*wideBytes, 10*wideBytes, 11*wideBytes, first)
	a12, a13, a14, a15 := loadWide(y, 12*wideBytes, 13*wideBytes, 14*wideBytes, 15*wideBytes, first)
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		a0, a1, a2, a3 = addWide(r, 0, wideBytes, 2*wideBytes, 3*wideBytes, a0, a1, a2, a3)
		a4, a5, a6, a7 = addWide(r, 4*wideBytes, 5*wideBytes, 6*wideBytes, 7*wideBytes, a4, a5, a6, a7)
		a8, a9, a10, a11 = addWide(r, 8*wideBytes, 9*wideBytes, 10*wideBytes, 11*wideBytes, a8, a9, a10, a11)
		a12, a13, a14, a15 = addWide(r, 12*wideBytes, 13*wideBytes, 14*wideBytes, 15*wideBytes, a12, a13, a14, a15)
		if k >= len(cols) {
			break
		}
		r = unsafe.Add(x, (int(cols[k])-base)*stride)
	}
	storeWide(y, 0, wideBytes, 2*wideBytes, 3*wideBytes, a0, a1, a2, a3)
	storeWide(y, 4*wideBytes, 5*wideBytes, 6*wideBytes, 7*wideBytes, a4, a5, a6, a7)
	storeWide(y, 8*wideBytes, 9*wideBytes, 10*wideBytes, 11*wideBytes, a8, a9, a10, a11)
	storeWide(y, 12*wideBytes, 13*wideBytes, 14*wideBytes, 15*wideBytes, a12, a13, a14, a15)
	clearUpper()
}

// The lanes of two registers in turn, and what undoes that.
var (
	evenLanes = [16]uint32{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}
	oddLanes  = [16]uint32{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}
	lowLanes  = [16]uint32{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
	highLanes = [16]uint32{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
)

// loadWidePair loads the sums of the columns of a register of bfloat16 from y, storeWidePair stores them.
func loadWidePair(y unsafe.Pointer, first bool) (even, odd wideF32) {
	if first {
		return even, odd
	}
	low, high := *(*wideF32)(y), *(*wideF32)(unsafe.Add(y, wideBytes))
	return low.ConcatPermute(high, archsimd.LoadUint32x16Array(&evenLanes)),
		low.ConcatPermute(high, archsimd.LoadUint32x16Array(&oddLanes))
}

func storeWidePair(y unsafe.Pointer, even, odd wideF32) {
	*(*wideF32)(y) = even.ConcatPermute(odd, archsimd.LoadUint32x16Array(&lowLanes))
	*(*wideF32)(unsafe.Add(y, wideBytes)) = even.ConcatPermute(odd, archsimd.LoadUint32x16Array(&highLanes))
}

// addWidePair adds the columns of a register, timesWidePair multiples of them. upper: the upper half of each word.
func addWidePair(v, upper wideU32, even, odd wideF32) (wideF32, wideF32) {
	return even.Add(v.ShiftAllLeft(16).BitsToFloat32()), odd.Add(v.And(upper).BitsToFloat32())
}

func timesWidePair(b wideF32, v, upper wideU32, even, odd wideF32) (wideF32, wideF32) {
	return even.Add(b.Mul(v.ShiftAllLeft(16).BitsToFloat32())), odd.Add(b.Mul(v.And(upper).BitsToFloat32()))
}

// wide2BF16 is a tile of two registers.
//
//go:noinline
//go:nocheckptr
func wide2BF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - wideColumns) * sizeBF16
	e0, o0 := loadWidePair(y, first)
	e1, o1 := loadWidePair(unsafe.Add(y, 2*end), first)
	upper := archsimd.BroadcastUint32x16(0xffff0000)
	if c.at == nil {
		for _, col := range cols {
			r := unsafe.Add(x, (int(col)-base)*stride)
			e0, o0 = addWidePair(*(*wideU32)(r), upper, e0, o0)
			e1, o1 = addWidePair(*(*wideU32)(unsafe.Add(r, end)), upper, e1, o1)
		}
	} else {
		for _, col := range cols {
			row := int(col) - base
			r, b := unsafe.Add(x, row*stride), archsimd.BroadcastFloat32x16(*(*float32)(c.of(row)))
			e0, o0 = timesWidePair(b, *(*wideU32)(r), upper, e0, o0)
			e1, o1 = timesWidePair(b, *(*wideU32)(unsafe.Add(r, end)), upper, e1, o1)
			c.at = unsafe.Add(c.at, c.step)
		}
	}
	storeWidePair(y, e0, o0)
	storeWidePair(unsafe.Add(y, 2*end), e1, o1)
	clearUpper()
}

// wide4BF16 is a tile of three or four registers.
//
//go:noinline
//go:nocheckptr
func wide4BF16(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - wideColumns) * sizeBF16
	at2 := min(2*wideBytes, end)
	e0, o0 := loadWidePair(y, first)
	e1, o1 := loadWidePair(unsafe.Add(y, 2*wideBytes), first)
	e2, o2 := loadWidePair(unsafe.Add(y, 2*at2), first)
	e3, o3 := loadWidePair(unsafe.Add(y, 2*end), first)
	upper := archsimd.BroadcastUint32x16(0xffff0000)
	if c.at == nil {
		for _, col := range cols {
			r := unsafe.Add(x, (int(col)-base)*stride)
			e0, o0 = addWidePair(*(*wideU32)(r), upper, e0, o0)
			e1, o1 = addWidePair(*(*wideU32)(unsafe.Add(r, wideBytes)), upper, e1, o1)
			e2, o2 = addWidePair(*(*wideU32)(unsafe.Add(r, at2)), upper, e2, o2)
			e3, o3 = addWidePair(*(*wideU32)(unsafe.Add(r, end)), upper, e3, o3)
		}
	} else {
		for _, col := range cols {
			row := int(col) - base
			r, b := unsafe.Add(x, row*stride), archsimd.BroadcastFloat32x16(*(*float32)(c.of(row)))
			e0, o0 = timesWidePair(b, *(*wideU32)(r), upper, e0, o0)
			e1, o1 = timesWidePair(b, *(*wideU32)(unsafe.Add(r, wideBytes)), upper, e1, o1)
			e2, o2 = timesWidePair(b, *(*wideU32)(unsafe.Add(r, at2)), upper, e2, o2)
			e3, o3 = timesWidePair(b, *(*wideU32)(unsafe.Add(r, end)), upper, e3, o3)
			c.at = unsafe.Add(c.at, c.step)
		}
	}
	storeWidePair(y, e0, o0)
	storeWidePair(unsafe.Add(y, 2*wideBytes), e1, o1)
	storeWidePair(unsafe.Add(y, 2*at2), e2, o2)
	storeWidePair(unsafe.Add(y, 2*end), e3, o3)
	clearUpper()
}

// wide8BF16 is 256 columns without coefficients: with a second loop for those, sums would be on the stack.
//
//go:noinline
//go:nocheckptr
func wide8BF16(y, x unsafe.Pointer, _, stride int, cols []int32, base int, _ coefficients, first bool) {
	e0, o0 := loadWidePair(y, first)
	e1, o1 := loadWidePair(unsafe.Add(y, 2*wideBytes), first)
	e2, o2 := loadWidePair(unsafe.Add(y, 4*wideBytes), first)
	e3, o3 := loadWidePair(unsafe.Add(y, 6*wideBytes), first)
	e4, o4 := loadWidePair(unsafe.Add(y, 8*wideBytes), first)
	e5, o5 := loadWidePair(unsafe.Add(y, 10*wideBytes), first)
	e6, o6 := loadWidePair(unsafe.Add(y, 12*wideBytes), first)
	e7, o7 := loadWidePair(unsafe.Add(y, 14*wideBytes), first)
	upper := archsimd.BroadcastUint32x16(0xffff0000)
	for _, col := range cols {
		r := unsafe.Add(x, (int(col)-base)*stride)
		e0, o0 = addWidePair(*(*wideU32)(r), upper, e0, o0)
		e1, o1 = addWidePair(*(*wideU32)(unsafe.Add(r, wideBytes)), upper, e1, o1)
		e2, o2 = addWidePair(*(*wideU32)(unsafe.Add(r, 2*wideBytes)), upper, e2, o2)
		e3, o3 = addWidePair(*(*wideU32)(unsafe.Add(r, 3*wideBytes)), upper, e3, o3)
		e4, o4 = addWidePair(*(*wideU32)(unsafe.Add(r, 4*wideBytes)), upper, e4, o4)
		e5, o5 = addWidePair(*(*wideU32)(unsafe.Add(r, 5*wideBytes)), upper, e5, o5)
		e6, o6 = addWidePair(*(*wideU32)(unsafe.Add(r, 6*wideBytes)), upper, e6, o6)
		e7, o7 = addWidePair(*(*wideU32)(unsafe.Add(r, 7*wideBytes)), upper, e7, o7)
	}
	storeWidePair(y, e0, o0)
	storeWidePair(unsafe.Add(y, 2*wideBytes), e1, o1)
	storeWidePair(unsafe.Add(y, 4*wideBytes), e2, o2)
	storeWidePair(unsafe.Add(y, 6*wideBytes), e3, o3)
	storeWidePair(unsafe.Add(y, 8*wideBytes), e4, o4)
	storeWidePair(unsafe.Add(y, 10*wideBytes), e5, o5)
	storeWidePair(unsafe.Add(y, 12*wideBytes), e6, o6)
	storeWidePair(unsafe.Add(y, 14*wideBytes), e7, o7)
	clearUpper()
}
