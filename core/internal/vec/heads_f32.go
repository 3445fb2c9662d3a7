//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Sums with a coefficient for each head, from many rows to one and from one to many. The columns are
// walked in tiles of whole registers, each of which lies in one head.

// gatherSumHeadsF32 takes tiles of eight, four or two registers, of which two neighbours lie in one head.
//
//go:nocheckptr
func gatherSumHeadsF32(g *Gather[float32], heads int) {
	if len(g.Col) == 0 {
		if g.First {
			clear(g.Y)
		}
		return
	}
	per := len(g.Y) / heads / lanesF32 // registers of a head
	y, x := unsafe.Pointer(unsafe.SliceData(g.Y)), unsafe.Pointer(unsafe.SliceData(g.X))
	c, stride := unsafe.Pointer(unsafe.SliceData(g.C)), g.Stride*sizeF32
	for at, all := 0, per*heads; at < all; {
		n, sum := 2, heads2F32
		switch left := all - at; {
		case left >= 8 && per%4 == 0:
			n, sum = 8, heads44F32
		case left >= 4:
			n, sum = 4, heads4F32
		}
		sum(y, x, stride, g.Col, int(g.Base), c, heads, at, per, g.First)
		at += n
		y, x = unsafe.Add(y, n*stepF32), unsafe.Add(x, n*stepF32)
	}
}

// heads2F32 is a tile of two registers, the first of which is register at of a row.
//
//go:noinline
//go:nocheckptr
func heads2F32(y, x unsafe.Pointer, stride int,
	cols []int32, base int, c unsafe.Pointer, heads, at, per int, first bool) {
	var a0, a1 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
	}
	o0 := at / per * sizeF32
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		b := fillF32(*(*float32)(unsafe.Add(c, o0)))
		a0 = a0.Add(b.Mul(*(*f32s)(r)))
		a1 = a1.Add(b.Mul(*(*f32s)(unsafe.Add(r, stepF32))))
		if k >= len(cols) {
			break
		}
		r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, heads*sizeF32)
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, stepF32)) = a1
	clearUpper()
}

// heads4F32 is a tile of four registers.
//
//go:noinline
//go:nocheckptr
func heads4F32(y, x unsafe.Pointer, stride int,
	cols []int32, base int, c unsafe.Pointer, heads, at, per int, first bool) {
	var a0, a1, a2, a3 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
		a2, a3 = *(*f32s)(unsafe.Add(y, 2*stepF32)), *(*f32s)(unsafe.Add(y, 3*stepF32))
	}
	o0, o2 := at/per*sizeF32, (at+2)/per*sizeF32
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		b := fillF32(*(*float32)(unsafe.Add(c, o0)))
		a0 = a0.Add(b.Mul(*(*f32s)(r)))
		a1 = a1.Add(b.Mul(*(*f32s)(unsafe.Add(r, stepF32))))
		b = fillF32(*(*float32)(unsafe.Add(c, o2)))
		a2 = a2.Add(b.Mul(*(*f32s)(unsafe.Add(r, 2*stepF32))))
		a3 = a3.Add(b.Mul(*(*f32s)(unsafe.Add(r, 3*stepF32))))
		if k >= len(cols) {
			break
		}
		r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, heads*sizeF32)
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, stepF32)) = a1
	*(*f32s)(unsafe.Add(y, 2*stepF32)) = a2
	*(*f32s)(unsafe.Add(y, 3*stepF32)) = a3
	clearUpper()
}

// heads44F32 is a tile of eight registers, four of one head and four of one, which may be the same: two
// coefficients serve them.
//
//go:noinline
//go:nocheckptr
func heads44F32(y, x unsafe.Pointer, stride int,
	cols []int32, base int, c unsafe.Pointer, heads, at, per int, first bool) {
	var a0, a1, a2, a3, a4, a5, a6, a7 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
		a2, a3 = *(*f32s)(unsafe.Add(y, 2*stepF32)), *(*f32s)(unsafe.Add(y, 3*stepF32))
		a4, a5 = *(*f32s)(unsafe.Add(y, 4*stepF32)), *(*f32s)(unsafe.Add(y, 5*stepF32))
		a6, a7 = *(*f32s)(unsafe.Add(y, 6*stepF32)), *(*f32s)(unsafe.Add(y, 7*stepF32))
	}
	o0, o4 := at/per*sizeF32, (at+4)/per*sizeF32
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		b := fillF32(*(*float32)(unsafe.Add(c, o0)))
		a0 = a0.Add(b.Mul(*(*f32s)(r)))
		a1 = a1.Add(b.Mul(*(*f32s)(unsafe.Add(r, stepF32))))
		a2 = a2.Add(b.Mul(*(*f32s)(unsafe.Add(r, 2*stepF32))))
		a3 = a3.Add(b.Mul(*(*f32s)(unsafe.Add(r, 3*stepF32))))
		b = fillF32(*(*float32)(unsafe.Add(c, o4)))
		a4 = a4.Add(b.Mul(*(*f32s)(unsafe.Add(r, 4*stepF32))))
		a5 = a5.Add(b.Mul(*(*f32s)(unsafe.Add(r, 5*stepF32))))
		a6 = a6.Add(b.Mul(*(*f32s)(unsafe.Add(r, 6*stepF32))))
		a7 = a7.Add(b.Mul(*(*f32s)(unsafe.Add(r, 7*stepF32))))
		if k >= len(cols) {
			break
		}
		r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, heads*sizeF32)
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, stepF32)) = a1
	*(*f32s)(unsafe.Add(y, 2*stepF32)) = a2
	*(*f32s)(unsafe.Add(y, 3*stepF32)) = a3
	*(*f32s)(unsafe.Add(y, 4*stepF32)) = a4
	*(*f32s)(unsafe.Add(y, 5*stepF32)) = a5
	*(*f32s)(unsafe.Add(y, 6*stepF32)) = a6
	*(*f32s)(unsafe.Add(y, 7*stepF32)) = a7
	clearUpper()
}

// scatterSumF32 takes tiles of eight, four, two or one registers; heads of other widths one after the
// other.
func scatterSumF32(s *Scatter[float32]) {
	heads := s.Heads
	if len(s.Row) == 0 || heads == 0 || len(s.X) == 0 {
		return
	}
	d := len(s.X) / heads
	y, x := unsafe.Pointer(unsafe.SliceData(s.Y)), unsafe.Pointer(unsafe.SliceData(s.X))
	c, stride := unsafe.Pointer(unsafe.SliceData(s.C[:(len(s.Row)-1)*s.StrideC+heads])), s.Stride*sizeF32
	full, tail := d/lanesF32, d%lanesF32
	if tail == 0 {
		scatterTilesF32(y, x, stride, s.Row, c, s.StrideC, full, full*heads)
		return
	}
	for h := range heads {
		y, x, c := unsafe.Add(y, h*d*sizeF32), unsafe.Add(x, h*d*sizeF32), unsafe.Add(c, h*sizeF32)
		scatterTilesF32(y, x, stride, s.Row, c, s.StrideC, full+1, full)
		scatterTailF32(unsafe.Add(y, full*stepF32), unsafe.Add(x, full*stepF32), tail, stride, s.Row, c, s.StrideC)
	}
}

// scatterTilesF32 is registers 0 to all-1 of a row, per of them in a head.
//
//go:nocheckptr
func scatterTilesF32(y, x unsafe.Pointer, stride int, rows []int32, c unsafe.Pointer, strideC, per, all int) {
	for at := 0; at < all; {
		n, scatter := 1, scatter1F32
		switch left := all - at; {
		case left >= 4:
			n, scatter = 4, scatter4F32
		case left >= 2:
			n, scatter = 2, scatter2F32
		}
		scatter(y, x, stride, rows, c, strideC, at, per)
		at += n
		y, x = unsafe.Add(y, n*stepF32), unsafe.Add(x, n*stepF32)
	}
}

// scatter1F32 is a tile of one register, the first of which is register at of a row.
//
//go:noinline
//go:nocheckptr
func scatter1F32(y, x unsafe.Pointer, stride int, rows []int32, c unsafe.Pointer, strideC, at, per int) {
	x0 := *(*f32s)(x)
	o0 := at / per * sizeF32
	r := unsafe.Add(y, int(rows[0])*stride)
	for k := 1; ; k++ {
		*(*f32s)(r) = fillF32(*(*float32)(unsafe.Add(c, o0))).Mul(x0).Add(*(*f32s)(r))
		if k >= len(rows) {
			break
		}
		r, c = unsafe.Add(y, int(rows[k])*stride), unsafe.Add(c, strideC*sizeF32)
	}
	clearUpper()
}

// scatter2F32 is a tile of two registers.
//
//go:noinline
//go:nocheckptr
func scatter2F32(y, x unsafe.Pointer, stride int, rows []int32, c unsafe.Pointer, strideC, at, per int) {
	x0, x1 := *(*f32s)(x), *(*f32s)(unsafe.Add(x, stepF32))
	o0, o1 := at/per*sizeF32, (at+1)/per*sizeF32
	r := unsafe.Add(y, int(rows[0])*stride)
	for k := 1; ; k++ {
		*(*f32s)(r) = fillF32(*(*float32)(unsafe.Add(c, o0))).Mul(x0).Add(*(*f32s)(r))
		*(*f32s)(unsafe.Add(r, stepF32)) = fillF32(*(*float32)(unsafe.Add(c, o1))).Mul(x1).
			Add(*(*f32s)(unsafe.Add(r, stepF32)))
		if k >= len(rows) {
			break
		}
		r, c = unsafe.Add(y, int(rows[k])*stride), unsafe.Add(c, strideC*sizeF32)
	}
	clearUpper()
}

// scatter4F32 is a tile of four registers.
//
//go:noinline
//go:nocheckptr
func scatter4F32(y, x unsafe.Pointer, stride int, rows []int32, c unsafe.Pointer, strideC, at, per int) {
	x0, x1 := *(*f32s)(x), *(*f32s)(unsafe.Add(x, stepF32))
	x2, x3 := *(*f32s)(unsafe.Add(x, 2*stepF32)), *(*f32s)(unsafe.Add(x, 3*stepF32))
	o0, o1, o2, o3 := at/per*sizeF32, (at+1)/per*sizeF32, (at+2)/per*sizeF32, (at+3)/per*sizeF32
	r := unsafe.Add(y, int(rows[0])*stride)
	for k := 1; ; k++ {
		*(*f32s)(r) = fillF32(*(*float32)(unsafe.Add(c, o0))).Mul(x0).Add(*(*f32s)(r))
		*(*f32s)(unsafe.Add(r, stepF32)) = fillF32(*(*float32)(unsafe.Add(c, o1))).Mul(x1).
			Add(*(*f32s)(unsafe.Add(r, stepF32)))
		*(*f32s)(unsafe.Add(r, 2*stepF32)) = fillF32(*(*float32)(unsafe.Add(c, o2))).Mul(x2).
			Add(*(*f32s)(unsafe.Add(r, 2*stepF32)))
		*(*f32s)(unsafe.Add(r, 3*stepF32)) = fillF32(*(*float32)(unsafe.Add(c, o3))).Mul(x3).
			Add(*(*f32s)(unsafe.Add(r, 3*stepF32)))
		if k >= len(rows) {
			break
		}
		r, c = unsafe.Add(y, int(rows[k])*stride), unsafe.Add(c, strideC*sizeF32)
	}
	clearUpper()
}

// scatterTailF32 is w columns, fewer than a register has.
//
//go:noinline
//go:nocheckptr
func scatterTailF32(y, x unsafe.Pointer, w, stride int, rows []int32, c unsafe.Pointer, strideC int) {
	in := firstF32(w)
	v := partF32(x, in, w)
	for _, row := range rows {
		r := unsafe.Add(y, int(row)*stride)
		storePartF32(r, partF32(r, in, w).Add(fillF32(*(*float32)(c)).Mul(v)), in, w)
		c = unsafe.Add(c, strideC*sizeF32)
	}
	clearUpper()
}
