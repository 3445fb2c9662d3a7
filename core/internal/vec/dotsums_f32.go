//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Products with rows, and sums of their multiples, in one pass over them.

// dotSumsF32 takes four heads of a row at a time, or one head of four rows.
//
//go:nocheckptr
func dotSumsF32(g *Gather[float32], w []float32, heads int) {
	n := len(g.Col)
	if n == 0 || heads == 0 {
		return
	}
	d := len(w) / heads
	z, y := unsafe.Pointer(unsafe.SliceData(g.Y[:len(w)])), unsafe.Pointer(unsafe.SliceData(w))
	x := unsafe.Pointer(unsafe.SliceData(g.X))
	c, out := unsafe.Pointer(unsafe.SliceData(g.C[:n*heads])), unsafe.Pointer(unsafe.SliceData(g.Out[:n*heads]))
	stride := g.Stride * sizeF32
	if heads%4 != 0 {
		for range heads {
			dotSumRowsF32(z, y, x, stride, g.Col, int(g.Base), c, out, heads, d)
			z, y, x = unsafe.Add(z, d*sizeF32), unsafe.Add(y, d*sizeF32), unsafe.Add(x, d*sizeF32)
			c, out = unsafe.Add(c, sizeF32), unsafe.Add(out, sizeF32)
		}
		return
	}
	for h := 0; h < heads; h += 4 {
		switch d {
		case lanesF32:
			dotSum1F32(z, y, x, stride, g.Col, int(g.Base), c, out, heads)
		case 2 * lanesF32:
			dotSum2F32(z, y, x, stride, g.Col, int(g.Base), c, out, heads)
		default:
			dotSumF32(z, y, x, stride, g.Col, int(g.Base), c, out, heads, d)
		}
		z, y, x = unsafe.Add(z, 4*d*sizeF32), unsafe.Add(y, 4*d*sizeF32), unsafe.Add(x, 4*d*sizeF32)
		c, out = unsafe.Add(c, 4*sizeF32), unsafe.Add(out, 4*sizeF32)
	}
}

// dotSum1F32 is four heads of one register, whose sums stay in registers.
//
//go:noinline
//go:nocheckptr
func dotSum1F32(z, y, x unsafe.Pointer, stride int, cols []int32, base int, c, out unsafe.Pointer, heads int) {
	z0, z1 := *(*f32s)(z), *(*f32s)(unsafe.Add(z, stepF32))
	z2, z3 := *(*f32s)(unsafe.Add(z, 2*stepF32)), *(*f32s)(unsafe.Add(z, 3*stepF32))
	y0, y1 := *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
	y2, y3 := *(*f32s)(unsafe.Add(y, 2*stepF32)), *(*f32s)(unsafe.Add(y, 3*stepF32))
	var zero f32s
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		x0, x1 := *(*f32s)(r), *(*f32s)(unsafe.Add(r, stepF32))
		x2, x3 := *(*f32s)(unsafe.Add(r, 2*stepF32)), *(*f32s)(unsafe.Add(r, 3*stepF32))
		z0 = z0.Add(fillF32(*(*float32)(c)).Mul(x0))
		z1 = z1.Add(fillF32(*(*float32)(unsafe.Add(c, sizeF32))).Mul(x1))
		z2 = z2.Add(fillF32(*(*float32)(unsafe.Add(c, 2*sizeF32))).Mul(x2))
		z3 = z3.Add(fillF32(*(*float32)(unsafe.Add(c, 3*sizeF32))).Mul(x3))
		store4F32(out, x0.MulAdd(y0, zero), x1.MulAdd(y1, zero), x2.MulAdd(y2, zero), x3.MulAdd(y3, zero))
		if k >= len(cols) {
			break
		}
		r = unsafe.Add(x, (int(cols[k])-base)*stride)
		c, out = unsafe.Add(c, heads*sizeF32), unsafe.Add(out, heads*sizeF32)
	}
	*(*f32s)(z) = z0
	*(*f32s)(unsafe.Add(z, stepF32)) = z1
	*(*f32s)(unsafe.Add(z, 2*stepF32)) = z2
	*(*f32s)(unsafe.Add(z, 3*stepF32)) = z3
	clearUpper()
}

// dotSum2F32 is four heads of two registers.
//
//go:noinline
//go:nocheckptr
func dotSum2F32(z, y, x unsafe.Pointer, stride int, cols []int32, base int, c, out unsafe.Pointer, heads int) {
	z0, z1 := *(*f32s)(z), *(*f32s)(unsafe.Add(z, stepF32))
	z2, z3 := *(*f32s)(unsafe.Add(z, 2*stepF32)), *(*f32s)(unsafe.Add(z, 3*stepF32))
	z4, z5 := *(*f32s)(unsafe.Add(z, 4*stepF32)), *(*f32s)(unsafe.Add(z, 5*stepF32))
	z6, z7 := *(*f32s)(unsafe.Add(z, 6*stepF32)), *(*f32s)(unsafe.Add(z, 7*stepF32))
	for _, col := range cols {
		r := unsafe.Add(x, (int(col)-base)*stride)
		var a0 f32s
		b0 := fillF32(*(*float32)(c))
		x0 := *(*f32s)(r)
		a0 = x0.MulAdd(*(*f32s)(y), a0)
		z0 = z0.Add(b0.Mul(x0))
		x1 := *(*f32s)(unsafe.Add(r, stepF32))
		a0 = x1.MulAdd(*(*f32s)(unsafe.Add(y, stepF32)), a0)
		z1 = z1.Add(b0.Mul(x1))
		var a1 f32s
		b1 := fillF32(*(*float32)(unsafe.Add(c, sizeF32)))
		x2 := *(*f32s)(unsafe.Add(r, 2*stepF32))
		a1 = x2.MulAdd(*(*f32s)(unsafe.Add(y, 2*stepF32)), a1)
		z2 = z2.Add(b1.Mul(x2))
		x3 := *(*f32s)(unsafe.Add(r, 3*stepF32))
		a1 = x3.MulAdd(*(*f32s)(unsafe.Add(y, 3*stepF32)), a1)
		z3 = z3.Add(b1.Mul(x3))
		var a2 f32s
		b2 := fillF32(*(*float32)(unsafe.Add(c, 2*sizeF32)))
		x4 := *(*f32s)(unsafe.Add(r, 4*stepF32))
		a2 = x4.MulAdd(*(*f32s)(unsafe.Add(y, 4*stepF32)), a2)
		z4 = z4.Add(b2.Mul(x4))
		x5 := *(*f32s)(unsafe.Add(r, 5*stepF32))
		a2 = x5.MulAdd(*(*f32s)(unsafe.Add(y, 5*stepF32)), a2)
		z5 = z5.Add(b2.Mul(x5))
		var a3 f32s
		b3 := fillF32(*(*float32)(unsafe.Add(c, 3*sizeF32)))
		x6 := *(*f32s)(unsafe.Add(r, 6*stepF32))
		a3 = x6.MulAdd(*(*f32s)(unsafe.Add(y, 6*stepF32)), a3)
		z6 = z6.Add(b3.Mul(x6))
		x7 := *(*f32s)(unsafe.Add(r, 7*stepF32))
		a3 = x7.MulAdd(*(*f32s)(unsafe.Add(y, 7*stepF32)), a3)
		z7 = z7.Add(b3.Mul(x7))
		store4F32(out, a0, a1, a2, a3)
		c, out = unsafe.Add(c, heads*sizeF32), unsafe.Add(out, heads*sizeF32)
	}
	*(*f32s)(z) = z0
	*(*f32s)(unsafe.Add(z, stepF32)) = z1
	*(*f32s)(unsafe.Add(z, 2*stepF32)) = z2
	*(*f32s)(unsafe.Add(z, 3*stepF32)) = z3
	*(*f32s)(unsafe.Add(z, 4*stepF32)) = z4
	*(*f32s)(unsafe.Add(z, 5*stepF32)) = z5
	*(*f32s)(unsafe.Add(z, 6*stepF32)) = z6
	*(*f32s)(unsafe.Add(z, 7*stepF32)) = z7
	clearUpper()
}

// dotSumF32 is four heads of d columns, whose sums stay in the cache.
//
//go:noinline
//go:nocheckptr
func dotSumF32(z, y, x unsafe.Pointer, stride int, cols []int32, base int, c, out unsafe.Pointer, heads, d int) {
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in := firstF32(tail)
	for _, col := range cols {
		r, j := unsafe.Add(x, (int(col)-base)*stride), 0
		var a0, a1, a2, a3 f32s
		b := fillF32(*(*float32)(c))
		for end := j + full; j < end; j += stepF32 {
			v, to := *(*f32s)(unsafe.Add(r, j)), unsafe.Add(z, j)
			a0 = v.MulAdd(*(*f32s)(unsafe.Add(y, j)), a0)
			*(*f32s)(to) = (*(*f32s)(to)).Add(b.Mul(v))
		}
		if tail > 0 {
			v, to := partF32(unsafe.Add(r, j), in, tail), unsafe.Add(z, j)
			a0 = v.MulAdd(partF32(unsafe.Add(y, j), in, tail), a0)
			storePartF32(to, partF32(to, in, tail).Add(b.Mul(v)), in, tail)
			j += tail * sizeF32
		}
		b = fillF32(*(*float32)(unsafe.Add(c, sizeF32)))
		for end := j + full; j < end; j += stepF32 {
			v, to := *(*f32s)(unsafe.Add(r, j)), unsafe.Add(z, j)
			a1 = v.MulAdd(*(*f32s)(unsafe.Add(y, j)), a1)
			*(*f32s)(to) = (*(*f32s)(to)).Add(b.Mul(v))
		}
		if tail > 0 {
			v, to := partF32(unsafe.Add(r, j), in, tail), unsafe.Add(z, j)
			a1 = v.MulAdd(partF32(unsafe.Add(y, j), in, tail), a1)
			storePartF32(to, partF32(to, in, tail).Add(b.Mul(v)), in, tail)
			j += tail * sizeF32
		}
		b = fillF32(*(*float32)(unsafe.Add(c, 2*sizeF32)))
		for end := j + full; j < end; j += stepF32 {
			v, to := *(*f32s)(unsafe.Add(r, j)), unsafe.Add(z, j)
			a2 = v.MulAdd(*(*f32s)(unsafe.Add(y, j)), a2)
			*(*f32s)(to) = (*(*f32s)(to)).Add(b.Mul(v))
		}
		if tail > 0 {
			v, to := partF32(unsafe.Add(r, j), in, tail), unsafe.Add(z, j)
			a2 = v.MulAdd(partF32(unsafe.Add(y, j), in, tail), a2)
			storePartF32(to, partF32(to, in, tail).Add(b.Mul(v)), in, tail)
			j += tail * sizeF32
		}
		b = fillF32(*(*float32)(unsafe.Add(c, 3*sizeF32)))
		for end := j + full; j < end; j += stepF32 {
			v, to := *(*f32s)(unsafe.Add(r, j)), unsafe.Add(z, j)
			a3 = v.MulAdd(*(*f32s)(unsafe.Add(y, j)), a3)
			*(*f32s)(to) = (*(*f32s)(to)).Add(b.Mul(v))
		}
		if tail > 0 {
			v, to := partF32(unsafe.Add(r, j), in, tail), unsafe.Add(z, j)
			a3 = v.MulAdd(partF32(unsafe.Add(y, j), in, tail), a3)
			storePartF32(to, partF32(to, in, tail).Add(b.Mul(v)), in, tail)
			j += tail * sizeF32
		}
		store4F32(out, a0, a1, a2, a3)
		c, out = unsafe.Add(c, heads*sizeF32), unsafe.Add(out, heads*sizeF32)
	}
	clearUpper()
}

// dotSumRowsF32 is one head of d columns, of four rows at a time.
//
//go:noinline
//go:nocheckptr
func dotSumRowsF32(z, y, x unsafe.Pointer, stride int, cols []int32, base int, c, out unsafe.Pointer, heads, d int) {
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in := firstF32(tail)
	var s [4]wordF32
	k := 0
	for ; k+4 <= len(cols); k += 4 {
		r0, b0 := unsafe.Add(x, (int(cols[k])-base)*stride), fillF32(*(*float32)(unsafe.Add(c, k*heads*sizeF32)))
		r1 := unsafe.Add(x, (int(cols[k+1])-base)*stride)
		b1 := fillF32(*(*float32)(unsafe.Add(c, (k+1)*heads*sizeF32)))
		r2 := unsafe.Add(x, (int(cols[k+2])-base)*stride)
		b2 := fillF32(*(*float32)(unsafe.Add(c, (k+2)*heads*sizeF32)))
		r3 := unsafe.Add(x, (int(cols[k+3])-base)*stride)
		b3 := fillF32(*(*float32)(unsafe.Add(c, (k+3)*heads*sizeF32)))
		var a0, a1, a2, a3 f32s
		for j := 0; j < full; j += stepF32 {
			p, to := *(*f32s)(unsafe.Add(y, j)), unsafe.Add(z, j)
			x0, x1 := *(*f32s)(unsafe.Add(r0, j)), *(*f32s)(unsafe.Add(r1, j))
			x2, x3 := *(*f32s)(unsafe.Add(r2, j)), *(*f32s)(unsafe.Add(r3, j))
			*(*f32s)(to) = (*(*f32s)(to)).Add(b0.Mul(x0)).Add(b1.Mul(x1)).Add(b2.Mul(x2)).Add(b3.Mul(x3))
			a0, a1, a2, a3 = x0.MulAdd(p, a0), x1.MulAdd(p, a1), x2.MulAdd(p, a2), x3.MulAdd(p, a3)
		}
		if tail > 0 {
			p, to := partF32(unsafe.Add(y, full), in, tail), unsafe.Add(z, full)
			x0, x1 := partF32(unsafe.Add(r0, full), in, tail), partF32(unsafe.Add(r1, full), in, tail)
			x2, x3 := partF32(unsafe.Add(r2, full), in, tail), partF32(unsafe.Add(r3, full), in, tail)
			sum := partF32(to, in, tail).Add(b0.Mul(x0)).Add(b1.Mul(x1)).Add(b2.Mul(x2)).Add(b3.Mul(x3))
			a0, a1, a2, a3 = x0.MulAdd(p, a0), x1.MulAdd(p, a1), x2.MulAdd(p, a2), x3.MulAdd(p, a3)
			storePartF32(to, sum, in, tail)
		}
		if heads == 1 {
			store4F32(unsafe.Add(out, k*sizeF32), a0, a1, a2, a3)
			continue
		}
		store4F32(unsafe.Pointer(&s), a0, a1, a2, a3)
		for i := range s {
			*(*wordF32)(unsafe.Add(out, (k+i)*heads*sizeF32)) = s[i]
		}
	}
	for ; k < len(cols); k++ {
		r, b := unsafe.Add(x, (int(cols[k])-base)*stride), fillF32(*(*float32)(unsafe.Add(c, k*heads*sizeF32)))
		var a f32s
		for j := 0; j < full; j += stepF32 {
			v, to := *(*f32s)(unsafe.Add(r, j)), unsafe.Add(z, j)
			a = v.MulAdd(*(*f32s)(unsafe.Add(y, j)), a)
			*(*f32s)(to) = (*(*f32s)(to)).Add(b.Mul(v))
		}
		if tail > 0 {
			v, to := partF32(unsafe.Add(r, full), in, tail), unsafe.Add(z, full)
			a = v.MulAdd(partF32(unsafe.Add(y, full), in, tail), a)
			storePartF32(to, partF32(to, in, tail).Add(b.Mul(v)), in, tail)
		}
		store4F32(unsafe.Pointer(&s), a, a, a, a)
		*(*wordF32)(unsafe.Add(out, k*heads*sizeF32)) = s[0]
	}
	clearUpper()
}
