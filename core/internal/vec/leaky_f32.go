//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Loops of leaky ReLU of sums of two rows, f(s) = max(s, alpha*s), and of its slopes f', which are 1 or
// alpha.

// leakyDotsF32 keeps four products going at a time, as gatherDotHeadsF32 does.
//
//go:nocheckptr
func leakyDotsF32(g *Gather[float32], w, a []float32, heads int, alpha float32) {
	if len(g.Col) == 0 || heads == 0 {
		return
	}
	d := len(w) / heads * sizeF32 // bytes of a head
	x, wp := unsafe.Pointer(unsafe.SliceData(g.X)), unsafe.Pointer(unsafe.SliceData(w))
	ap := unsafe.Pointer(unsafe.SliceData(a[:len(w)]))
	out, stride := unsafe.Pointer(unsafe.SliceData(g.Out[:len(g.Col)*heads])), g.Stride*sizeF32
	for h := 0; h < heads; {
		n := 1
		if h+4 <= heads {
			n = 4
			leakyHeadsF32(out, wp, ap, x, stride, g.Col, int(g.Base), heads, d, alpha)
		} else {
			leakyRowsF32(out, wp, ap, x, stride, g.Col, int(g.Base), heads, d, alpha)
		}
		h += n
		out, wp, ap, x = unsafe.Add(out, n*sizeF32), unsafe.Add(wp, n*d), unsafe.Add(ap, n*d), unsafe.Add(x, n*d)
	}
}

// leakyHeadsF32 is four heads of d bytes.
//
//go:noinline
//go:nocheckptr
func leakyHeadsF32(out, w, a, x unsafe.Pointer, stride int, cols []int32, base, heads, d int, alpha float32) {
	c := fillF32(alpha)
	w1, w2, w3 := unsafe.Add(w, d), unsafe.Add(w, 2*d), unsafe.Add(w, 3*d)
	p1, p2, p3 := unsafe.Add(a, d), unsafe.Add(a, 2*d), unsafe.Add(a, 3*d)
	for _, col := range cols {
		r := unsafe.Add(x, (int(col)-base)*stride)
		r1, r2, r3 := unsafe.Add(r, d), unsafe.Add(r, 2*d), unsafe.Add(r, 3*d)
		var a0, a1, a2, a3 f32s
		for j := 0; j < d; j += stepF32 {
			s0 := (*(*f32s)(unsafe.Add(r, j))).Add(*(*f32s)(unsafe.Add(w, j)))
			a0 = s0.Max(s0.Mul(c)).MulAdd(*(*f32s)(unsafe.Add(a, j)), a0)
			s1 := (*(*f32s)(unsafe.Add(r1, j))).Add(*(*f32s)(unsafe.Add(w1, j)))
			a1 = s1.Max(s1.Mul(c)).MulAdd(*(*f32s)(unsafe.Add(p1, j)), a1)
			s2 := (*(*f32s)(unsafe.Add(r2, j))).Add(*(*f32s)(unsafe.Add(w2, j)))
			a2 = s2.Max(s2.Mul(c)).MulAdd(*(*f32s)(unsafe.Add(p2, j)), a2)
			s3 := (*(*f32s)(unsafe.Add(r3, j))).Add(*(*f32s)(unsafe.Add(w3, j)))
			a3 = s3.Max(s3.Mul(c)).MulAdd(*(*f32s)(unsafe.Add(p3, j)), a3)
		}
		store4F32(out, a0, a1, a2, a3)
		out = unsafe.Add(out, heads*sizeF32)
	}
	clearUpper()
}

// leakyRowsF32 is one head of d bytes, of four rows at a time.
//
//go:noinline
//go:nocheckptr
func leakyRowsF32(out, w, a, x unsafe.Pointer, stride int, cols []int32, base, heads, d int, alpha float32) {
	c, most := fillF32(alpha), len(cols)-1
	var s [4]wordF32
	for k := 0; k < len(cols); k += 4 {
		r0 := unsafe.Add(x, (int(cols[k])-base)*stride)
		r1 := unsafe.Add(x, (int(cols[min(k+1, most)])-base)*stride)
		r2 := unsafe.Add(x, (int(cols[min(k+2, most)])-base)*stride)
		r3 := unsafe.Add(x, (int(cols[min(k+3, most)])-base)*stride)
		var a0, a1, a2, a3 f32s
		for j := 0; j < d; j += stepF32 {
			b, p := *(*f32s)(unsafe.Add(w, j)), *(*f32s)(unsafe.Add(a, j))
			s0, s1 := (*(*f32s)(unsafe.Add(r0, j))).Add(b), (*(*f32s)(unsafe.Add(r1, j))).Add(b)
			s2, s3 := (*(*f32s)(unsafe.Add(r2, j))).Add(b), (*(*f32s)(unsafe.Add(r3, j))).Add(b)
			a0, a1 = s0.Max(s0.Mul(c)).MulAdd(p, a0), s1.Max(s1.Mul(c)).MulAdd(p, a1)
			a2, a3 = s2.Max(s2.Mul(c)).MulAdd(p, a2), s3.Max(s3.Mul(c)).MulAdd(p, a3)
		}
		if heads == 1 && k+3 <= most {
			store4F32(unsafe.Add(out, k*sizeF32), a0, a1, a2, a3)
			continue
		}
		store4F32(unsafe.Pointer(&s), a0, a1, a2, a3)
		for i := range min(4, len(cols)-k) {
			*(*wordF32)(unsafe.Add(out, (k+i)*heads*sizeF32)) = s[i]
		}
	}
	clearUpper()
}

// leakySumsF32 walks the columns in tiles of four registers or two, and for slopes, which need twice as many,
// of two. Two neighbours lie in one head.
//
//go:nocheckptr
func leakySumsF32(g *Gather[float32], w, a []float32, heads int, alpha float32) {
	if len(g.Col) == 0 {
		return
	}
	per := len(g.Y) / heads / lanesF32 // registers of a head
	y, x := unsafe.Pointer(unsafe.SliceData(g.Y)), unsafe.Pointer(unsafe.SliceData(g.X))
	wp, ap := unsafe.Pointer(unsafe.SliceData(w[:len(g.Y)])), unsafe.Pointer(unsafe.SliceData(a))
	c, stride := unsafe.Pointer(unsafe.SliceData(g.C)), g.Stride*sizeF32
	for at, all := 0, per*heads; at < all; {
		n := 2
		switch {
		case a == nil && at+4 <= all:
			n = 4
			leakyArgs4F32(y, x, wp, stride, g.Col, int(g.Base), c, heads, at, per, alpha)
		case a == nil:
			leakyArgs2F32(y, x, wp, stride, g.Col, int(g.Base), c, heads, at, per, alpha)
		default:
			leakySlopes2F32(y, x, wp, ap, stride, g.Col, int(g.Base), c, heads, at, per, alpha)
		}
		at += n
		y, x, wp = unsafe.Add(y, n*stepF32), unsafe.Add(x, n*stepF32), unsafe.Add(wp, n*stepF32)
		if a != nil {
			ap = unsafe.Add(ap, n*stepF32)
		}
	}
}

// leakySlopes2F32 is a tile of two registers, the first of which is register at of a row.
//
//go:noinline
//go:nocheckptr
func leakySlopes2F32(y, x, w, a unsafe.Pointer, stride int,
	cols []int32, base int, c unsafe.Pointer, heads, at, per int, alpha float32) {
	var zero f32s
	slope := fillF32(alpha)
	a0, a1 := *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
	w0, w1 := *(*f32s)(w), *(*f32s)(unsafe.Add(w, stepF32))
	up0, up1 := *(*f32s)(a), *(*f32s)(unsafe.Add(a, stepF32))
	down0, down1 := up0.Mul(slope), up1.Mul(slope)
	o0 := at / per * sizeF32
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		s0 := (*(*f32s)(r)).Add(w0)
		b := fillF32(*(*float32)(unsafe.Add(c, o0)))
		a0 = a0.Add(b.Mul(up0.IfElse(s0.Greater(zero), down0)))
		s1 := (*(*f32s)(unsafe.Add(r, stepF32))).Add(w1)
		a1 = a1.Add(b.Mul(up1.IfElse(s1.Greater(zero), down1)))
		if k >= len(cols) {
			break
		}
		r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, heads*sizeF32)
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, stepF32)) = a1
	clearUpper()
}

// leakyArgs2F32 is the same of the values in place of the slopes.
//
//go:noinline
//go:nocheckptr
func leakyArgs2F32(y, x, w unsafe.Pointer, stride int,
	cols []int32, base int, c unsafe.Pointer, heads, at, per int, alpha float32) {
	slope := fillF32(alpha)
	a0, a1 := *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
	w0, w1 := *(*f32s)(w), *(*f32s)(unsafe.Add(w, stepF32))
	o0 := at / per * sizeF32
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		s0 := (*(*f32s)(r)).Add(w0)
		b := fillF32(*(*float32)(unsafe.Add(c, o0)))
		a0 = a0.Add(b.Mul(s0.Max(s0.Mul(slope))))
		s1 := (*(*f32s)(unsafe.Add(r, stepF32))).Add(w1)
		a1 = a1.Add(b.Mul(s1.Max(s1.Mul(slope))))
		if k >= len(cols) {
			break
		}
		r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, heads*sizeF32)
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, stepF32)) = a1
	clearUpper()
}

// leakyArgs4F32 is a tile of four registers.
//
//go:noinline
//go:nocheckptr
func leakyArgs4F32(y, x, w unsafe.Pointer, stride int,
	cols []int32, base int, c unsafe.Pointer, heads, at, per int, alpha float32) {
	slope := fillF32(alpha)
	a0, a1 := *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
	a2, a3 := *(*f32s)(unsafe.Add(y, 2*stepF32)), *(*f32s)(unsafe.Add(y, 3*stepF32))
	w0, w1 := *(*f32s)(w), *(*f32s)(unsafe.Add(w, stepF32))
	w2, w3 := *(*f32s)(unsafe.Add(w, 2*stepF32)), *(*f32s)(unsafe.Add(w, 3*stepF32))
	o0, o2 := at/per*sizeF32, (at+2)/per*sizeF32
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		s0 := (*(*f32s)(r)).Add(w0)
		b := fillF32(*(*float32)(unsafe.Add(c, o0)))
		a0 = a0.Add(b.Mul(s0.Max(s0.Mul(slope))))
		s1 := (*(*f32s)(unsafe.Add(r, stepF32))).Add(w1)
		a1 = a1.Add(b.Mul(s1.Max(s1.Mul(slope))))
		s2 := (*(*f32s)(unsafe.Add(r, 2*stepF32))).Add(w2)
		b = fillF32(*(*float32)(unsafe.Add(c, o2)))
		a2 = a2.Add(b.Mul(s2.Max(s2.Mul(slope))))
		s3 := (*(*f32s)(unsafe.Add(r, 3*stepF32))).Add(w3)
		a3 = a3.Add(b.Mul(s3.Max(s3.Mul(slope))))
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
