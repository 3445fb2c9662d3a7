//go:build goexperiment.simd

package vec

import (
	"simd/archsimd"
	"unsafe"
)

// Sums of wide rows of bfloat16, and products with them, in registers of 512 bits, of which there are enough for the
// sums of 256 columns: a row is read once, where loops of 256 bits come back for every 48 columns. The bits of sums are
// theirs. docs/decisions/0027-near-rows.md has the figures.

type (
	wideF32 = archsimd.Float32x16
	wideU32 = archsimd.Uint32x16
)

const (
	wideColumns = 32 // of a register of bfloat16
	wideBytes   = 64
	halfTile    = 4 * wideColumns // columns with coefficients
	wholeTile   = 8 * wideColumns // and without
)

// avx512 is the table of AVX2, with these loops in place of its own.
func avx512() *table {
	t := portable("avx512", func() bool { return archsimd.X86.AVX2() && archsimd.X86.FMA() && archsimd.X86.AVX512VBMI2() })
	t.f32.HalfSum = func(g *Gather[float32]) {
		if !wideSums(g, 1) {
			halfSumF32(g)
		}
	}
	t.f32.HalfSums = func(g *Gather[float32], runs []Run) {
		if g.D < halfTile {
			halfSumsF32(g, runs)
			return
		}
		gatherEach(g, runs, t.f32.HalfSum)
	}
	t.f32.HalfSumHeads = func(g *Gather[float32], heads int) {
		if !wideSums(g, heads) {
			halfSumHeadsF32(g, heads)
		}
	}
	t.f32.HalfDotHeads = func(g *Gather[float32], heads int) {
		if !wideDots(g, g.Y, nil, heads) {
			halfDotHeadsF32(g, heads)
		}
	}
	t.f32.HalfDotSums = func(g *Gather[float32], w []float32, heads int) {
		if !wideDots(g, w, g.Y, heads) {
			halfDotSumsF32(g, w, heads)
		}
	}
	return t
}

// oneTile tells whether heads are whole registers, which together are a tile with coefficients.
func oneTile(width, heads int) bool { return width == halfTile && 4%heads == 0 }

// headOf is where the coefficients of each of its registers are, in bytes behind those of a slot.
func headOf(heads int) *[4]int {
	var head [4]int
	for i := range head {
		head[i] = i * heads / 4 * sizeF32
	}
	return &head
}

// wideSums is halfSumHeadsF32 of whole tiles, and tells whether g is of such. With coefficients it is one tile: wider
// rows would be read twice.
func wideSums(g *Gather[float32], heads int) bool {
	whole := len(g.Y) > 0 && len(g.Y)%wholeTile == 0
	if g.C != nil {
		whole = oneTile(len(g.Y), heads)
	}
	if !whole || len(g.Col) == 0 {
		return false
	}
	stride, base := g.Stride*sizeBF16, int(g.Base)
	if g.C != nil {
		wideSumHeads(unsafe.Pointer(&g.Y[0]), unsafe.Pointer(&g.Half[0]), stride, g.Col, base, unsafe.Pointer(&g.C[0]),
			heads*sizeF32, headOf(heads), g.First)
		return true
	}
	for from := 0; from < len(g.Y); from += wholeTile {
		wideSum(unsafe.Pointer(&g.Y[from]), unsafe.Pointer(&g.Half[from]), stride, g.Col, base, g.First)
	}
	return true
}

// wideDots is halfDotsF32 of one tile, and tells whether g is of such. sums: nil for none.
func wideDots(g *Gather[float32], w, sums []float32, heads int) bool {
	if !oneTile(len(w), max(1, heads)) || len(g.Col) == 0 {
		return false
	}
	dots := *g
	if sums == nil {
		dots.C = nil // of another loop
	}
	nearF32(&dots, len(w), heads, func(g *Gather[float32]) {
		var y, c unsafe.Pointer
		if sums != nil {
			y, c = unsafe.Pointer(&sums[0]), unsafe.Pointer(&g.C[0])
		}
		wideDotRows(y, unsafe.Pointer(&w[0]), unsafe.Pointer(&g.Half[0]), g.Stride*sizeBF16, g.Col, int(g.Base), c,
			unsafe.Pointer(&g.Out[0]), heads*sizeF32, headOf(heads))
	})
	return true
}

// The lanes of two registers in turn, and what undoes that.
var (
	evenLanes = [16]uint32{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}
	oddLanes  = [16]uint32{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}
	lowLanes  = [16]uint32{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
	highLanes = [16]uint32{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
)

// loadWide loads the sums of the columns of register i from y, storeWide stores them.
func loadWide(y unsafe.Pointer, i int, first bool) (even, odd wideF32) {
	if first {
		return even, odd
	}
	low, high := *(*wideF32)(unsafe.Add(y, 2*i*wideBytes)), *(*wideF32)(unsafe.Add(y, (2*i+1)*wideBytes))
	return low.ConcatPermute(high, archsimd.LoadUint32x16Array(&evenLanes)),
		low.ConcatPermute(high, archsimd.LoadUint32x16Array(&oddLanes))
}

func storeWide(y unsafe.Pointer, i int, even, odd wideF32) {
	*(*wideF32)(unsafe.Add(y, 2*i*wideBytes)) = even.ConcatPermute(odd, archsimd.LoadUint32x16Array(&lowLanes))
	*(*wideF32)(unsafe.Add(y, (2*i+1)*wideBytes)) = even.ConcatPermute(odd, archsimd.LoadUint32x16Array(&highLanes))
}

// wideSum is the columns of wholeTile, without coefficients.
//
//go:noinline
//go:nocheckptr
func wideSum(y, x unsafe.Pointer, stride int, cols []int32, base int, first bool) {
	e0, o0 := loadWide(y, 0, first)
	e1, o1 := loadWide(y, 1, first)
	e2, o2 := loadWide(y, 2, first)
	e3, o3 := loadWide(y, 3, first)
	e4, o4 := loadWide(y, 4, first)
	e5, o5 := loadWide(y, 5, first)
	e6, o6 := loadWide(y, 6, first)
	e7, o7 := loadWide(y, 7, first)
	odd := archsimd.BroadcastUint32x16(0xffff0000)
	for _, col := range cols {
		r := unsafe.Add(x, (int(col)-base)*stride)
		v0 := *(*wideU32)(unsafe.Add(r, 0*wideBytes))
		e0 = e0.Add(v0.ShiftAllLeft(16).BitsToFloat32())
		o0 = o0.Add(v0.And(odd).BitsToFloat32())
		v1 := *(*wideU32)(unsafe.Add(r, 1*wideBytes))
		e1 = e1.Add(v1.ShiftAllLeft(16).BitsToFloat32())
		o1 = o1.Add(v1.And(odd).BitsToFloat32())
		v2 := *(*wideU32)(unsafe.Add(r, 2*wideBytes))
		e2 = e2.Add(v2.ShiftAllLeft(16).BitsToFloat32())
		o2 = o2.Add(v2.And(odd).BitsToFloat32())
		v3 := *(*wideU32)(unsafe.Add(r, 3*wideBytes))
		e3 = e3.Add(v3.ShiftAllLeft(16).BitsToFloat32())
		o3 = o3.Add(v3.And(odd).BitsToFloat32())
		v4 := *(*wideU32)(unsafe.Add(r, 4*wideBytes))
		e4 = e4.Add(v4.ShiftAllLeft(16).BitsToFloat32())
		o4 = o4.Add(v4.And(odd).BitsToFloat32())
		v5 := *(*wideU32)(unsafe.Add(r, 5*wideBytes))
		e5 = e5.Add(v5.ShiftAllLeft(16).BitsToFloat32())
		o5 = o5.Add(v5.And(odd).BitsToFloat32())
		v6 := *(*wideU32)(unsafe.Add(r, 6*wideBytes))
		e6 = e6.Add(v6.ShiftAllLeft(16).BitsToFloat32())
		o6 = o6.Add(v6.And(odd).BitsToFloat32())
		v7 := *(*wideU32)(unsafe.Add(r, 7*wideBytes))
		e7 = e7.Add(v7.ShiftAllLeft(16).BitsToFloat32())
		o7 = o7.Add(v7.And(odd).BitsToFloat32())
	}
	storeWide(y, 0, e0, o0)
	storeWide(y, 1, e1, o1)
	storeWide(y, 2, e2, o2)
	storeWide(y, 3, e3, o3)
	storeWide(y, 4, e4, o4)
	storeWide(y, 5, e5, o5)
	storeWide(y, 6, e6, o6)
	storeWide(y, 7, e7, o7)
	clearUpper()
}

// wideSumHeads is the columns of halfTile. The coefficient of register i is head[i] bytes behind those of the slot.
//
//go:noinline
//go:nocheckptr
func wideSumHeads(
	y, x unsafe.Pointer, stride int, cols []int32, base int, c unsafe.Pointer, step int, head *[4]int, first bool,
) {
	e0, o0 := loadWide(y, 0, first)
	e1, o1 := loadWide(y, 1, first)
	e2, o2 := loadWide(y, 2, first)
	e3, o3 := loadWide(y, 3, first)
	odd := archsimd.BroadcastUint32x16(0xffff0000)
	for _, col := range cols {
		r := unsafe.Add(x, (int(col)-base)*stride)
		b0 := archsimd.BroadcastFloat32x16(*(*float32)(unsafe.Add(c, head[0])))
		v0 := *(*wideU32)(unsafe.Add(r, 0*wideBytes))
		e0 = e0.Add(b0.Mul(v0.ShiftAllLeft(16).BitsToFloat32()))
		o0 = o0.Add(b0.Mul(v0.And(odd).BitsToFloat32()))
		b1 := archsimd.BroadcastFloat32x16(*(*float32)(unsafe.Add(c, head[1])))
		v1 := *(*wideU32)(unsafe.Add(r, 1*wideBytes))
		e1 = e1.Add(b1.Mul(v1.ShiftAllLeft(16).BitsToFloat32()))
		o1 = o1.Add(b1.Mul(v1.And(odd).BitsToFloat32()))
		b2 := archsimd.BroadcastFloat32x16(*(*float32)(unsafe.Add(c, head[2])))
		v2 := *(*wideU32)(unsafe.Add(r, 2*wideBytes))
		e2 = e2.Add(b2.Mul(v2.ShiftAllLeft(16).BitsToFloat32()))
		o2 = o2.Add(b2.Mul(v2.And(odd).BitsToFloat32()))
		b3 := archsimd.BroadcastFloat32x16(*(*float32)(unsafe.Add(c, head[3])))
		v3 := *(*wideU32)(unsafe.Add(r, 3*wideBytes))
		e3 = e3.Add(b3.Mul(v3.ShiftAllLeft(16).BitsToFloat32()))
		o3 = o3.Add(b3.Mul(v3.And(odd).BitsToFloat32()))
		c = unsafe.Add(c, step)
	}
	storeWide(y, 0, e0, o0)
	storeWide(y, 1, e1, o1)
	storeWide(y, 2, e2, o2)
	storeWide(y, 3, e3, o3)
	clearUpper()
}

// wideDotRows is the columns of halfTile. The coefficient and the product of register i are head[i] bytes behind those
// of the slot. y: nil for no sums.
//
//go:noinline
//go:nocheckptr
func wideDotRows(
	y, w, x unsafe.Pointer, stride int, cols []int32, base int, c, out unsafe.Pointer, step int, head *[4]int,
) {
	e0, o0 := loadWide(y, 0, y == nil)
	e1, o1 := loadWide(y, 1, y == nil)
	e2, o2 := loadWide(y, 2, y == nil)
	e3, o3 := loadWide(y, 3, y == nil)
	p0, q0 := loadWide(w, 0, false)
	p1, q1 := loadWide(w, 1, false)
	p2, q2 := loadWide(w, 2, false)
	p3, q3 := loadWide(w, 3, false)
	odd := archsimd.BroadcastUint32x16(0xffff0000)
	var s [4]float32
	for k, col := range cols {
		r := unsafe.Add(x, (int(col)-base)*stride)
		v0 := *(*wideU32)(unsafe.Add(r, 0*wideBytes))
		l0, h0 := v0.ShiftAllLeft(16).BitsToFloat32(), v0.And(odd).BitsToFloat32()
		a0 := h0.MulAdd(q0, l0.Mul(p0))
		v1 := *(*wideU32)(unsafe.Add(r, 1*wideBytes))
		l1, h1 := v1.ShiftAllLeft(16).BitsToFloat32(), v1.And(odd).BitsToFloat32()
		a1 := h1.MulAdd(q1, l1.Mul(p1))
		v2 := *(*wideU32)(unsafe.Add(r, 2*wideBytes))
		l2, h2 := v2.ShiftAllLeft(16).BitsToFloat32(), v2.And(odd).BitsToFloat32()
		a2 := h2.MulAdd(q2, l2.Mul(p2))
		v3 := *(*wideU32)(unsafe.Add(r, 3*wideBytes))
		l3, h3 := v3.ShiftAllLeft(16).BitsToFloat32(), v3.And(odd).BitsToFloat32()
		a3 := h3.MulAdd(q3, l3.Mul(p3))
		store4F32(unsafe.Pointer(&s), fold(a0), fold(a1), fold(a2), fold(a3))
		for i, dot := range s {
			at := (*float32)(unsafe.Add(out, k*step+head[i]))
			if i > 0 && head[i] == head[i-1] { // of one head
				dot += *at
			}
			*at = dot
		}
		if y == nil {
			continue
		}
		slot := unsafe.Add(c, k*step)
		b0 := archsimd.BroadcastFloat32x16(*(*float32)(unsafe.Add(slot, head[0])))
		e0, o0 = e0.Add(b0.Mul(l0)), o0.Add(b0.Mul(h0))
		b1 := archsimd.BroadcastFloat32x16(*(*float32)(unsafe.Add(slot, head[1])))
		e1, o1 = e1.Add(b1.Mul(l1)), o1.Add(b1.Mul(h1))
		b2 := archsimd.BroadcastFloat32x16(*(*float32)(unsafe.Add(slot, head[2])))
		e2, o2 = e2.Add(b2.Mul(l2)), o2.Add(b2.Mul(h2))
		b3 := archsimd.BroadcastFloat32x16(*(*float32)(unsafe.Add(slot, head[3])))
		e3, o3 = e3.Add(b3.Mul(l3)), o3.Add(b3.Mul(h3))
	}
	if y != nil {
		storeWide(y, 0, e0, o0)
		storeWide(y, 1, e1, o1)
		storeWide(y, 2, e2, o2)
		storeWide(y, 3, e3, o3)
	}
	clearUpper()
}

// fold adds the halves of a register.
func fold(v wideF32) f32s { return v.GetLo().Add(v.GetHi()) }
