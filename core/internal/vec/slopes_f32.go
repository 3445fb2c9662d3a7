//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Slopes of leaky ReLU, and its values, in one pass over rows; slopes from one row to many.

// leakyBothF32 is leakySumsF32 with a and without, in tiles of two registers.
//
//go:nocheckptr
func leakyBothF32(g *Gather[float32], w, a, values []float32, heads int, alpha float32) {
	n := len(g.Y)
	if len(g.Col) == 0 {
		return
	}
	per := n / heads / lanesF32 // registers of a head
	y, z := unsafe.Pointer(unsafe.SliceData(g.Y)), unsafe.Pointer(unsafe.SliceData(values[:n]))
	x := unsafe.Pointer(unsafe.SliceData(g.X))
	wp, ap := unsafe.Pointer(unsafe.SliceData(w[:n])), unsafe.Pointer(unsafe.SliceData(a[:n]))
	c, stride := unsafe.Pointer(unsafe.SliceData(g.C)), g.Stride*sizeF32
	for at, all := 0, per*heads; at < all; {
		const n = 2
		leakyBoth2F32(y, z, x, wp, ap, stride, g.Col, int(g.Base), c, heads, at, per, alpha)
		at += n
		y, z, x = unsafe.Add(y, n*stepF32), unsafe.Add(z, n*stepF32), unsafe.Add(x, n*stepF32)
		wp, ap = unsafe.Add(wp, n*stepF32), unsafe.Add(ap, n*stepF32)
	}
}

// leakyBoth2F32 is a tile of two registers of one head, the first of which is register at of a row.
//
//go:noinline
//go:nocheckptr
func leakyBoth2F32(y, z, x, w, a unsafe.Pointer, stride int,
	cols []int32, base int, c unsafe.Pointer, heads, at, per int, alpha float32) {
	var zero f32s
	slope := fillF32(alpha)
	y0, y1 := *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
	z0, z1 := *(*f32s)(z), *(*f32s)(unsafe.Add(z, stepF32))
	w0, w1 := *(*f32s)(w), *(*f32s)(unsafe.Add(w, stepF32))
	up0, up1 := *(*f32s)(a), *(*f32s)(unsafe.Add(a, stepF32))
	down0, down1 := up0.Mul(slope), up1.Mul(slope)
	o0 := at / per * sizeF32
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		s0, b := (*(*f32s)(r)).Add(w0), fillF32(*(*float32)(unsafe.Add(c, o0)))
		y0 = y0.Add(b.Mul(up0.IfElse(s0.Greater(zero), down0)))
		z0 = z0.Add(b.Mul(s0.Max(s0.Mul(slope))))
		s1 := (*(*f32s)(unsafe.Add(r, stepF32))).Add(w1)
		y1 = y1.Add(b.Mul(up1.IfElse(s1.Greater(zero), down1)))
		z1 = z1.Add(b.Mul(s1.Max(s1.Mul(slope))))
		if k >= len(cols) {
			break
		}
		r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, heads*sizeF32)
	}
	*(*f32s)(y) = y0
	*(*f32s)(z) = z0
	*(*f32s)(unsafe.Add(y, stepF32)) = y1
	*(*f32s)(unsafe.Add(z, stepF32)) = z1
	clearUpper()
}

// scatterSlopesF32 walks the columns in tiles of four or two registers.
//
//go:nocheckptr
func scatterSlopesF32(s *Scatter[float32]) {
	heads := s.Heads
	if len(s.Row) == 0 || heads == 0 || len(s.X) == 0 {
		return
	}
	per := len(s.X) / heads / lanesF32 // registers of a head
	y, x := unsafe.Pointer(unsafe.SliceData(s.Y)), unsafe.Pointer(unsafe.SliceData(s.X))
	a := unsafe.Pointer(unsafe.SliceData(s.A[:len(s.X)]))
	w, strideW := unsafe.Pointer(unsafe.SliceData(s.W)), s.StrideW*sizeF32
	c, stride := unsafe.Pointer(unsafe.SliceData(s.C[:(len(s.Row)-1)*s.StrideC+heads])), s.Stride*sizeF32
	for at, all := 0, per*heads; at < all; {
		n := 4
		for at+n > all {
			n /= 2
		}
		switch n {
		case 2:
			scatterSlopes2F32(y, x, w, a, stride, strideW, s.Row, c, s.StrideC, at, per, s.Alpha)
		case 4:
			scatterSlopes4F32(y, x, w, a, stride, strideW, s.Row, c, s.StrideC, at, per, s.Alpha)
		}
		at += n
		y, x = unsafe.Add(y, n*stepF32), unsafe.Add(x, n*stepF32)
		w, a = unsafe.Add(w, n*stepF32), unsafe.Add(a, n*stepF32)
	}
}

// scatterSlopes2F32 is a tile of two registers, the first of which is register at of a row.
//
//go:noinline
//go:nocheckptr
func scatterSlopes2F32(y, x, w, a unsafe.Pointer, stride, strideW int,
	rows []int32, c unsafe.Pointer, strideC, at, per int, alpha float32) {
	var zero f32s
	slope := fillF32(alpha)
	x0, x1 := *(*f32s)(x), *(*f32s)(unsafe.Add(x, stepF32))
	up0, up1 := *(*f32s)(a), *(*f32s)(unsafe.Add(a, stepF32))
	down0, down1 := up0.Mul(slope), up1.Mul(slope)
	o0 := at / per * sizeF32
	r, v := unsafe.Add(y, int(rows[0])*stride), unsafe.Add(w, int(rows[0])*strideW)
	for k := 1; ; k++ {
		s0 := (*(*f32s)(v)).Add(x0)
		b := fillF32(*(*float32)(unsafe.Add(c, o0)))
		t0 := b.Mul(up0.IfElse(s0.Greater(zero), down0))
		*(*f32s)(r) = t0.Add(*(*f32s)(r))
		s1 := (*(*f32s)(unsafe.Add(v, stepF32))).Add(x1)
		t1 := b.Mul(up1.IfElse(s1.Greater(zero), down1))
		*(*f32s)(unsafe.Add(r, stepF32)) = t1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
		if k >= len(rows) {
			break
		}
		r, v = unsafe.Add(y, int(rows[k])*stride), unsafe.Add(w, int(rows[k])*strideW)
		c = unsafe.Add(c, strideC*sizeF32)
	}
	clearUpper()
}

// scatterSlopes4F32 is a tile of four registers.
//
//go:noinline
//go:nocheckptr
func scatterSlopes4F32(y, x, w, a unsafe.Pointer, stride, strideW int,
	rows []int32, c unsafe.Pointer, strideC, at, per int, alpha float32) {
	var zero f32s
	slope := fillF32(alpha)
	x0, x1 := *(*f32s)(x), *(*f32s)(unsafe.Add(x, stepF32))
	x2, x3 := *(*f32s)(unsafe.Add(x, 2*stepF32)), *(*f32s)(unsafe.Add(x, 3*stepF32))
	up0, up1 := *(*f32s)(a), *(*f32s)(unsafe.Add(a, stepF32))
	up2, up3 := *(*f32s)(unsafe.Add(a, 2*stepF32)), *(*f32s)(unsafe.Add(a, 3*stepF32))
	down0, down1, down2, down3 := up0.Mul(slope), up1.Mul(slope), up2.Mul(slope), up3.Mul(slope)
	o0, o2 := at/per*sizeF32, (at+2)/per*sizeF32
	r, v := unsafe.Add(y, int(rows[0])*stride), unsafe.Add(w, int(rows[0])*strideW)
	for k := 1; ; k++ {
		s0 := (*(*f32s)(v)).Add(x0)
		b := fillF32(*(*float32)(unsafe.Add(c, o0)))
		t0 := b.Mul(up0.IfElse(s0.Greater(zero), down0))
		*(*f32s)(r) = t0.Add(*(*f32s)(r))
		s1 := (*(*f32s)(unsafe.Add(v, stepF32))).Add(x1)
		t1 := b.Mul(up1.IfElse(s1.Greater(zero), down1))
		*(*f32s)(unsafe.Add(r, stepF32)) = t1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
		s2 := (*(*f32s)(unsafe.Add(v, 2*stepF32))).Add(x2)
		b = fillF32(*(*float32)(unsafe.Add(c, o2)))
		t2 := b.Mul(up2.IfElse(s2.Greater(zero), down2))
		*(*f32s)(unsafe.Add(r, 2*stepF32)) = t2.Add(*(*f32s)(unsafe.Add(r, 2*stepF32)))
		s3 := (*(*f32s)(unsafe.Add(v, 3*stepF32))).Add(x3)
		t3 := b.Mul(up3.IfElse(s3.Greater(zero), down3))
		*(*f32s)(unsafe.Add(r, 3*stepF32)) = t3.Add(*(*f32s)(unsafe.Add(r, 3*stepF32)))
		if k >= len(rows) {
			break
		}
		r, v = unsafe.Add(y, int(rows[k])*stride), unsafe.Add(w, int(rows[k])*strideW)
		c = unsafe.Add(c, strideC*sizeF32)
	}
	clearUpper()
}
