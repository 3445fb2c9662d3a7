//go:build goexperiment.simd

package vec

import (
	"simd/archsimd"
	"unsafe"
)

// Loops in registers of 512 bits: the table of them, and sums and products of rows with heads. The bits of sums are
// those of 256 bits. docs/decisions/0028-sums-in-512-bits.md has the figures.

type (
	wideF32 = archsimd.Float32x16
	wideU32 = archsimd.Uint32x16
)

const (
	wideBytes   = 64
	wideLanes   = 16
	wideColumns = 32              // of a register of bfloat16
	headsTile   = 4 * wideColumns // columns with heads
)

// avx512 is the table of AVX2, with these loops in place of its own.
func avx512() *table {
	t := portable("avx512", func() bool { return archsimd.X86.AVX2() && archsimd.X86.FMA() && archsimd.X86.AVX512VBMI2() })
	t.f32.GatherSum, t.f32.GatherSums = wideSumsF32.one, wideSumsF32.many
	t.f32.HalfSum, t.f32.HalfSums = wideSumsBF16.one, wideSumsBF16.many
	t.f32.GatherSumHeads = func(g *Gather[float32], heads int) {
		if len(g.Col) == 0 || !oneTile(len(g.Y), heads) {
			gatherSumHeadsF32(g, heads)
			return
		}
		head := headOf(heads)
		wideHeadsF32(unsafe.Pointer(&g.Y[0]), unsafe.Pointer(&g.X[0]), g.Stride*sizeF32, g.Col, int(g.Base),
			unsafe.Pointer(&g.C[0]), heads*sizeF32, &head, g.First)
	}
	t.f32.HalfSumHeads = func(g *Gather[float32], heads int) {
		if len(g.Col) == 0 || !oneTile(len(g.Y), heads) {
			sumsBF16.heads(g, heads)
			return
		}
		head := headOf(heads)
		wideHeadsBF16(unsafe.Pointer(&g.Y[0]), unsafe.Pointer(&g.Half[0]), g.Stride*sizeBF16, g.Col, int(g.Base),
			unsafe.Pointer(&g.C[0]), heads*sizeF32, &head, g.First)
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

// oneTile tells whether heads are whole registers of bfloat16, which together are a tile.
func oneTile(width, heads int) bool { return width == headsTile && 4%heads == 0 }

// headOf is where the coefficients of each of its registers are, in bytes behind those of a slot.
func headOf(heads int) (head [4]int) {
	for i := range head {
		head[i] = i * heads / 4 * sizeF32
	}
	return head
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
	head := headOf(heads)
	nearF32(&dots, len(w), heads, func(g Gather[float32]) {
		var y, c unsafe.Pointer
		if sums != nil {
			y, c = unsafe.Pointer(&sums[0]), unsafe.Pointer(&g.C[0])
		}
		wideDotRows(y, unsafe.Pointer(&w[0]), unsafe.Pointer(&g.Half[0]), g.Stride*sizeBF16, g.Col, int(g.Base), c,
			unsafe.Pointer(&g.Out[0]), heads*sizeF32, &head)
	})
	return true
}

// wideHeadsF32 is the columns of headsTile, two registers of which share a coefficient: head[i] bytes behind those of
// the slot, which are step bytes apart.
//
//go:noinline
//go:nocheckptr
func wideHeadsF32(
	y, x unsafe.Pointer, stride int, cols []int32, base int, c unsafe.Pointer, step int, head *[4]int, first bool,
) {
	a0, a1, a2, a3 := loadWide(y, 0, wideBytes, 2*wideBytes, 3*wideBytes, first)
	a4, a5, a6, a7 := loadWide(y, 4*wideBytes, 5*wideBytes, 6*wideBytes, 7*wideBytes, first)
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		b0, b1 := headWide(c, head[0]), headWide(c, head[1])
		a0 = a0.Add(b0.Mul(*(*wideF32)(r)))
		a1 = a1.Add(b0.Mul(*(*wideF32)(unsafe.Add(r, wideBytes))))
		a2 = a2.Add(b1.Mul(*(*wideF32)(unsafe.Add(r, 2*wideBytes))))
		a3 = a3.Add(b1.Mul(*(*wideF32)(unsafe.Add(r, 3*wideBytes))))
		b2, b3 := headWide(c, head[2]), headWide(c, head[3])
		a4 = a4.Add(b2.Mul(*(*wideF32)(unsafe.Add(r, 4*wideBytes))))
		a5 = a5.Add(b2.Mul(*(*wideF32)(unsafe.Add(r, 5*wideBytes))))
		a6 = a6.Add(b3.Mul(*(*wideF32)(unsafe.Add(r, 6*wideBytes))))
		a7 = a7.Add(b3.Mul(*(*wideF32)(unsafe.Add(r, 7*wideBytes))))
		if k >= len(cols) {
			break
		}
		r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, step)
	}
	storeWide(y, 0, wideBytes, 2*wideBytes, 3*wideBytes, a0, a1, a2, a3)
	storeWide(y, 4*wideBytes, 5*wideBytes, 6*wideBytes, 7*wideBytes, a4, a5, a6, a7)
	clearUpper()
}

// headWide is a coefficient in every lane.
func headWide(c unsafe.Pointer, head int) wideF32 {
	return archsimd.BroadcastFloat32x16(*(*float32)(unsafe.Add(c, head)))
}

// wideHeadsBF16 is wideHeadsF32 of rows of bfloat16, each of whose registers has a coefficient.
//
//go:noinline
//go:nocheckptr
func wideHeadsBF16(
	y, x unsafe.Pointer, stride int, cols []int32, base int, c unsafe.Pointer, step int, head *[4]int, first bool,
) {
	e0, o0 := loadWidePair(y, first)
	e1, o1 := loadWidePair(unsafe.Add(y, 2*wideBytes), first)
	e2, o2 := loadWidePair(unsafe.Add(y, 4*wideBytes), first)
	e3, o3 := loadWidePair(unsafe.Add(y, 6*wideBytes), first)
	upper := archsimd.BroadcastUint32x16(0xffff0000)
	for _, col := range cols {
		r := unsafe.Add(x, (int(col)-base)*stride)
		e0, o0 = timesWidePair(headWide(c, head[0]), *(*wideU32)(r), upper, e0, o0)
		e1, o1 = timesWidePair(headWide(c, head[1]), *(*wideU32)(unsafe.Add(r, wideBytes)), upper, e1, o1)
		e2, o2 = timesWidePair(headWide(c, head[2]), *(*wideU32)(unsafe.Add(r, 2*wideBytes)), upper, e2, o2)
		e3, o3 = timesWidePair(headWide(c, head[3]), *(*wideU32)(unsafe.Add(r, 3*wideBytes)), upper, e3, o3)
		c = unsafe.Add(c, step)
	}
	storeWidePair(y, e0, o0)
	storeWidePair(unsafe.Add(y, 2*wideBytes), e1, o1)
	storeWidePair(unsafe.Add(y, 4*wideBytes), e2, o2)
	storeWidePair(unsafe.Add(y, 6*wideBytes), e3, o3)
	clearUpper()
}

// wideDotRows is the columns of headsTile. The coefficient and the product of register i are head[i] bytes behind those
// of the slot. y: nil for no sums.
//
//go:noinline
//go:nocheckptr
func wideDotRows(
	y, w, x unsafe.Pointer, stride int, cols []int32, base int, c, out unsafe.Pointer, step int, head *[4]int,
) {
	e0, o0 := loadWidePair(y, y == nil)
	e1, o1 := loadWidePair(unsafe.Add(y, 2*wideBytes), y == nil)
	e2, o2 := loadWidePair(unsafe.Add(y, 4*wideBytes), y == nil)
	e3, o3 := loadWidePair(unsafe.Add(y, 6*wideBytes), y == nil)
	p0, q0 := loadWidePair(w, false)
	p1, q1 := loadWidePair(unsafe.Add(w, 2*wideBytes), false)
	p2, q2 := loadWidePair(unsafe.Add(w, 4*wideBytes), false)
	p3, q3 := loadWidePair(unsafe.Add(w, 6*wideBytes), false)
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
		storeWidePair(y, e0, o0)
		storeWidePair(unsafe.Add(y, 2*wideBytes), e1, o1)
		storeWidePair(unsafe.Add(y, 4*wideBytes), e2, o2)
		storeWidePair(unsafe.Add(y, 6*wideBytes), e3, o3)
	}
	clearUpper()
}

// fold adds the halves of a register.
func fold(v wideF32) f32s { return v.GetLo().Add(v.GetHi()) }
