//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Products of rows, four at a time: four registers of sums hide how long an addition takes, and their
// lanes are added up together. Every product is summed alike, so where fewer than four are left the last
// one is taken again.

// gatherDotHeadsF32 takes four heads of a row, or one head of four rows.
func gatherDotHeadsF32(g *Gather[float32], heads int) {
	if len(g.Col) == 0 || heads == 0 {
		return
	}
	d := len(g.Y) / heads
	y, x := unsafe.Pointer(unsafe.SliceData(g.Y)), unsafe.Pointer(unsafe.SliceData(g.X))
	out, stride := unsafe.Pointer(unsafe.SliceData(g.Out[:len(g.Col)*heads])), g.Stride*sizeF32
	if heads%4 != 0 {
		for h := range heads {
			at := h * d * sizeF32
			dotRowsF32(out, unsafe.Add(y, at), unsafe.Add(x, at), stride, g.Col, int(g.Base), heads, d)
			out = unsafe.Add(out, sizeF32)
		}
		return
	}
	for h := 0; h < heads; h += 4 {
		switch d {
		case lanesF32:
			dotHeads1F32(out, y, x, stride, g.Col, int(g.Base), heads)
		case 2 * lanesF32:
			dotHeads2F32(out, y, x, stride, g.Col, int(g.Base), heads)
		default:
			dotHeadsF32(out, y, x, stride, g.Col, int(g.Base), heads, d)
		}
		out, y, x = unsafe.Add(out, 4*sizeF32), unsafe.Add(y, 4*d*sizeF32), unsafe.Add(x, 4*d*sizeF32)
	}
}

// dotHeads1F32 is four heads of one register, and y stays in registers.
//
//go:noinline
//go:nocheckptr
func dotHeads1F32(out, y, x unsafe.Pointer, stride int, cols []int32, base, heads int) {
	y0, y1 := *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
	y2, y3 := *(*f32s)(unsafe.Add(y, 2*stepF32)), *(*f32s)(unsafe.Add(y, 3*stepF32))
	var zero f32s
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		a0 := y0.MulAdd(*(*f32s)(r), zero)
		a1 := y1.MulAdd(*(*f32s)(unsafe.Add(r, stepF32)), zero)
		a2 := y2.MulAdd(*(*f32s)(unsafe.Add(r, 2*stepF32)), zero)
		a3 := y3.MulAdd(*(*f32s)(unsafe.Add(r, 3*stepF32)), zero)
		store4F32(out, a0, a1, a2, a3)
		if k >= len(cols) {
			break
		}
		r, out = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(out, heads*sizeF32)
	}
	clearUpper()
}

// dotHeads2F32 is four heads of two registers.
//
//go:noinline
//go:nocheckptr
func dotHeads2F32(out, y, x unsafe.Pointer, stride int, cols []int32, base, heads int) {
	y0, y1 := *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
	y2, y3 := *(*f32s)(unsafe.Add(y, 2*stepF32)), *(*f32s)(unsafe.Add(y, 3*stepF32))
	y4, y5 := *(*f32s)(unsafe.Add(y, 4*stepF32)), *(*f32s)(unsafe.Add(y, 5*stepF32))
	y6, y7 := *(*f32s)(unsafe.Add(y, 6*stepF32)), *(*f32s)(unsafe.Add(y, 7*stepF32))
	var zero f32s
	r := unsafe.Add(x, (int(cols[0])-base)*stride)
	for k := 1; ; k++ {
		a0 := y0.MulAdd(*(*f32s)(r), zero)
		a1 := y2.MulAdd(*(*f32s)(unsafe.Add(r, 2*stepF32)), zero)
		a2 := y4.MulAdd(*(*f32s)(unsafe.Add(r, 4*stepF32)), zero)
		a3 := y6.MulAdd(*(*f32s)(unsafe.Add(r, 6*stepF32)), zero)
		a0 = y1.MulAdd(*(*f32s)(unsafe.Add(r, stepF32)), a0)
		a1 = y3.MulAdd(*(*f32s)(unsafe.Add(r, 3*stepF32)), a1)
		a2 = y5.MulAdd(*(*f32s)(unsafe.Add(r, 5*stepF32)), a2)
		a3 = y7.MulAdd(*(*f32s)(unsafe.Add(r, 7*stepF32)), a3)
		store4F32(out, a0, a1, a2, a3)
		if k >= len(cols) {
			break
		}
		r, out = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(out, heads*sizeF32)
	}
	clearUpper()
}

// dotHeadsF32 is four heads of d columns.
//
//go:noinline
//go:nocheckptr
func dotHeadsF32(out, y, x unsafe.Pointer, stride int, cols []int32, base, heads, d int) {
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in := firstF32(tail)
	d *= sizeF32
	y1, y2, y3 := unsafe.Add(y, d), unsafe.Add(y, 2*d), unsafe.Add(y, 3*d)
	for _, col := range cols {
		r := unsafe.Add(x, (int(col)-base)*stride)
		r1, r2, r3 := unsafe.Add(r, d), unsafe.Add(r, 2*d), unsafe.Add(r, 3*d)
		var a0, a1, a2, a3 f32s
		for j := 0; j < full; j += stepF32 {
			a0 = (*(*f32s)(unsafe.Add(r, j))).MulAdd(*(*f32s)(unsafe.Add(y, j)), a0)
			a1 = (*(*f32s)(unsafe.Add(r1, j))).MulAdd(*(*f32s)(unsafe.Add(y1, j)), a1)
			a2 = (*(*f32s)(unsafe.Add(r2, j))).MulAdd(*(*f32s)(unsafe.Add(y2, j)), a2)
			a3 = (*(*f32s)(unsafe.Add(r3, j))).MulAdd(*(*f32s)(unsafe.Add(y3, j)), a3)
		}
		if tail > 0 {
			a0 = partF32(unsafe.Add(r, full), in, tail).MulAdd(partF32(unsafe.Add(y, full), in, tail), a0)
			a1 = partF32(unsafe.Add(r1, full), in, tail).MulAdd(partF32(unsafe.Add(y1, full), in, tail), a1)
			a2 = partF32(unsafe.Add(r2, full), in, tail).MulAdd(partF32(unsafe.Add(y2, full), in, tail), a2)
			a3 = partF32(unsafe.Add(r3, full), in, tail).MulAdd(partF32(unsafe.Add(y3, full), in, tail), a3)
		}
		store4F32(out, a0, a1, a2, a3)
		out = unsafe.Add(out, heads*sizeF32)
	}
	clearUpper()
}

// dotRowsF32 is one head of d columns, of four rows at a time.
//
//go:noinline
//go:nocheckptr
func dotRowsF32(out, y, x unsafe.Pointer, stride int, cols []int32, base, heads, d int) {
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in := firstF32(tail)
	most := len(cols) - 1
	var s [4]wordF32
	for k := 0; k < len(cols); k += 4 {
		r0 := unsafe.Add(x, (int(cols[k])-base)*stride)
		r1 := unsafe.Add(x, (int(cols[min(k+1, most)])-base)*stride)
		r2 := unsafe.Add(x, (int(cols[min(k+2, most)])-base)*stride)
		r3 := unsafe.Add(x, (int(cols[min(k+3, most)])-base)*stride)
		var a0, a1, a2, a3 f32s
		for j := 0; j < full; j += stepF32 {
			b := *(*f32s)(unsafe.Add(y, j))
			a0 = (*(*f32s)(unsafe.Add(r0, j))).MulAdd(b, a0)
			a1 = (*(*f32s)(unsafe.Add(r1, j))).MulAdd(b, a1)
			a2 = (*(*f32s)(unsafe.Add(r2, j))).MulAdd(b, a2)
			a3 = (*(*f32s)(unsafe.Add(r3, j))).MulAdd(b, a3)
		}
		if tail > 0 {
			b := partF32(unsafe.Add(y, full), in, tail)
			a0 = partF32(unsafe.Add(r0, full), in, tail).MulAdd(b, a0)
			a1 = partF32(unsafe.Add(r1, full), in, tail).MulAdd(b, a1)
			a2 = partF32(unsafe.Add(r2, full), in, tail).MulAdd(b, a2)
			a3 = partF32(unsafe.Add(r3, full), in, tail).MulAdd(b, a3)
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

// dotPairsF32 takes four products of one pair of rows or of several.
//
//go:nocheckptr
func dotPairsF32(p *Pairs[float32]) {
	d, heads := p.D, p.Heads
	n := len(p.IX) * heads
	if n == 0 {
		return
	}
	out := unsafe.Pointer(unsafe.SliceData(p.Out[:n]))
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in := firstF32(tail)
	iy := p.IY[:len(p.IX)]
	x, y := unsafe.Pointer(unsafe.SliceData(p.X)), unsafe.Pointer(unsafe.SliceData(p.Y))
	strideX, strideY := p.StrideX*sizeF32, p.StrideY*sizeF32
	var s [4]wordF32
	k, h := 0, 0 // the product that is next
	x0 := unsafe.Add(x, int(p.IX[0]-p.BaseX)*strideX)
	y0 := unsafe.Add(y, int(iy[0]-p.BaseY)*strideY)
	for i := 0; i < n; i += 4 {
		x1, y1 := x0, y0
		if h++; h < heads {
			x1, y1 = unsafe.Add(x0, d*sizeF32), unsafe.Add(y0, d*sizeF32)
		} else if k++; k < len(iy) {
			h = 0
			x1, y1 = unsafe.Add(x, int(p.IX[k]-p.BaseX)*strideX), unsafe.Add(y, int(iy[k]-p.BaseY)*strideY)
		}
		x2, y2 := x1, y1
		if h++; h < heads {
			x2, y2 = unsafe.Add(x1, d*sizeF32), unsafe.Add(y1, d*sizeF32)
		} else if k++; k < len(iy) {
			h = 0
			x2, y2 = unsafe.Add(x, int(p.IX[k]-p.BaseX)*strideX), unsafe.Add(y, int(iy[k]-p.BaseY)*strideY)
		}
		x3, y3 := x2, y2
		if h++; h < heads {
			x3, y3 = unsafe.Add(x2, d*sizeF32), unsafe.Add(y2, d*sizeF32)
		} else if k++; k < len(iy) {
			h = 0
			x3, y3 = unsafe.Add(x, int(p.IX[k]-p.BaseX)*strideX), unsafe.Add(y, int(iy[k]-p.BaseY)*strideY)
		}
		var a0, a1, a2, a3 f32s
		for j := 0; j < full; j += stepF32 {
			a0 = (*(*f32s)(unsafe.Add(x0, j))).MulAdd(*(*f32s)(unsafe.Add(y0, j)), a0)
			a1 = (*(*f32s)(unsafe.Add(x1, j))).MulAdd(*(*f32s)(unsafe.Add(y1, j)), a1)
			a2 = (*(*f32s)(unsafe.Add(x2, j))).MulAdd(*(*f32s)(unsafe.Add(y2, j)), a2)
			a3 = (*(*f32s)(unsafe.Add(x3, j))).MulAdd(*(*f32s)(unsafe.Add(y3, j)), a3)
		}
		if tail > 0 {
			a0 = partF32(unsafe.Add(x0, full), in, tail).MulAdd(partF32(unsafe.Add(y0, full), in, tail), a0)
			a1 = partF32(unsafe.Add(x1, full), in, tail).MulAdd(partF32(unsafe.Add(y1, full), in, tail), a1)
			a2 = partF32(unsafe.Add(x2, full), in, tail).MulAdd(partF32(unsafe.Add(y2, full), in, tail), a2)
			a3 = partF32(unsafe.Add(x3, full), in, tail).MulAdd(partF32(unsafe.Add(y3, full), in, tail), a3)
		}
		if i+4 <= n {
			store4F32(unsafe.Add(out, i*sizeF32), a0, a1, a2, a3)
			if h++; h < heads {
				x0, y0 = unsafe.Add(x3, d*sizeF32), unsafe.Add(y3, d*sizeF32)
			} else if k++; k < len(iy) {
				h = 0
				x0, y0 = unsafe.Add(x, int(p.IX[k]-p.BaseX)*strideX), unsafe.Add(y, int(iy[k]-p.BaseY)*strideY)
			}
			continue
		}
		store4F32(unsafe.Pointer(&s), a0, a1, a2, a3)
		for q := range n - i {
			*(*wordF32)(unsafe.Add(out, (i+q)*sizeF32)) = s[q]
		}
	}
	clearUpper()
}
