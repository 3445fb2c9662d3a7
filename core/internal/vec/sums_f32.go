//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Sums of rows times coefficients, which stay in registers over all slots of a row. Nothing is fused.

// gatherSumF32 walks the columns in tiles of up to eight registers.
func gatherSumF32(g *Gather[float32]) {
	d := len(g.Y)
	y, x := unsafe.Pointer(unsafe.SliceData(g.Y)), unsafe.Pointer(unsafe.SliceData(g.X))
	c := unsafe.Pointer(unsafe.SliceData(g.C))
	for d > 0 {
		w := min(d, 8*lanesF32)
		tileF32(w)(y, x, (w-lanesF32)*sizeF32, g.Stride*sizeF32, g.Col, int(g.Base), c, g.First)
		if d -= w; d > 0 { // past the last tile they would point to nothing
			y, x = unsafe.Add(y, w*sizeF32), unsafe.Add(x, w*sizeF32)
		}
	}
}

// gatherSumsF32 has next to nothing to do between two rows of one tile.
func gatherSumsF32(g *Gather[float32], runs []Run) {
	if g.D == 0 || g.D > 8*lanesF32 {
		gatherEach(g, runs, gatherSumF32)
		return
	}
	sum, x, stride, base := tileF32(g.D), unsafe.Pointer(unsafe.SliceData(g.X)), g.Stride*sizeF32, int(g.Base)
	end := (g.D - lanesF32) * sizeF32
	for _, r := range runs {
		var c unsafe.Pointer
		if g.C != nil {
			c = unsafe.Pointer(unsafe.SliceData(g.C[r.At:][:r.To-r.From]))
		}
		y := unsafe.Pointer(unsafe.SliceData(g.Y[r.Y:][:g.D]))
		sum(y, x, end, stride, g.Col[r.From:r.To], base, c, g.First)
	}
}

// tileF32 is the loop over tiles of w columns, which is no more than eight registers have.
func tileF32(w int) func(y, x unsafe.Pointer, end, stride int, cols []int32, base int, c unsafe.Pointer, first bool) {
	switch (w + lanesF32 - 1) / lanesF32 {
	case 1:
		return sum1F32
	case 2:
		return sum2F32
	case 3, 4:
		return sum4F32
	case 5:
		return sum5F32
	case 6:
		return sum6F32
	}
	return sum8F32
}

// sum1F32 is a tile of w columns, no more than a register has.
//
//go:noinline
//go:nocheckptr
func sum1F32(y, x unsafe.Pointer, end, stride int, cols []int32, base int, c unsafe.Pointer, first bool) {
	w := end/sizeF32 + lanesF32
	in := firstF32(w)
	var a f32s
	if !first {
		a = partF32(y, in, w)
	}
	if c == nil {
		for _, col := range cols {
			a = a.Add(partF32(unsafe.Add(x, (int(col)-base)*stride), in, w))
		}
	} else {
		for k, col := range cols {
			v := partF32(unsafe.Add(x, (int(col)-base)*stride), in, w)
			a = a.Add(fillF32(*(*float32)(unsafe.Add(c, k*sizeF32))).Mul(v))
		}
	}
	storePartF32(y, a, in, w)
	clearUpper()
}

// sum2F32 is a tile of two registers, the last of them at end. The last register of a tile reaches back
// over the one before it rather than past the tile: the columns that two registers share get the same
// sum twice. The row r is what a loop carries, so that it is a register that the loads take their
// offsets from.
//
//go:noinline
//go:nocheckptr
func sum2F32(y, x unsafe.Pointer, end, stride int, cols []int32, base int, c unsafe.Pointer, first bool) {
	var a0, a1 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, end))
	}
	switch {
	case len(cols) == 0:
	case c == nil:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for _, col := range cols[1:] {
			next := unsafe.Add(x, (int(col)-base)*stride)
			a0 = a0.Add(*(*f32s)(r))
			a1 = a1.Add(*(*f32s)(unsafe.Add(r, end)))
			r = next
		}
		a0 = a0.Add(*(*f32s)(r))
		a1 = a1.Add(*(*f32s)(unsafe.Add(r, end)))
	default:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for k := 1; ; k++ {
			b := fillF32(*(*float32)(c))
			a0 = a0.Add(b.Mul(*(*f32s)(r)))
			a1 = a1.Add(b.Mul(*(*f32s)(unsafe.Add(r, end))))
			if k >= len(cols) {
				break
			}
			r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, sizeF32)
		}
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, end)) = a1
	clearUpper()
}

// sum4F32 is a tile of three or four registers.
//
//go:noinline
//go:nocheckptr
func sum4F32(y, x unsafe.Pointer, end, stride int, cols []int32, base int, c unsafe.Pointer, first bool) {
	o2 := min(2*stepF32, end)
	var a0, a1, a2, a3 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
		a2, a3 = *(*f32s)(unsafe.Add(y, o2)), *(*f32s)(unsafe.Add(y, end))
	}
	switch {
	case len(cols) == 0:
	case c == nil:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for _, col := range cols[1:] {
			next := unsafe.Add(x, (int(col)-base)*stride)
			a0 = a0.Add(*(*f32s)(r))
			a1 = a1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
			a2 = a2.Add(*(*f32s)(unsafe.Add(r, o2)))
			a3 = a3.Add(*(*f32s)(unsafe.Add(r, end)))
			r = next
		}
		a0 = a0.Add(*(*f32s)(r))
		a1 = a1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
		a2 = a2.Add(*(*f32s)(unsafe.Add(r, o2)))
		a3 = a3.Add(*(*f32s)(unsafe.Add(r, end)))
	default:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for k := 1; ; k++ {
			b := fillF32(*(*float32)(c))
			a0 = a0.Add(b.Mul(*(*f32s)(r)))
			a1 = a1.Add(b.Mul(*(*f32s)(unsafe.Add(r, stepF32))))
			a2 = a2.Add(b.Mul(*(*f32s)(unsafe.Add(r, o2))))
			a3 = a3.Add(b.Mul(*(*f32s)(unsafe.Add(r, end))))
			if k >= len(cols) {
				break
			}
			r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, sizeF32)
		}
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, stepF32)) = a1
	*(*f32s)(unsafe.Add(y, o2)) = a2
	*(*f32s)(unsafe.Add(y, end)) = a3
	clearUpper()
}

// sum5F32 is a tile of five registers.
//
//go:noinline
//go:nocheckptr
func sum5F32(y, x unsafe.Pointer, end, stride int, cols []int32, base int, c unsafe.Pointer, first bool) {
	var a0, a1, a2, a3, a4 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
		a2, a3 = *(*f32s)(unsafe.Add(y, 2*stepF32)), *(*f32s)(unsafe.Add(y, 3*stepF32))
		a4 = *(*f32s)(unsafe.Add(y, end))
	}
	switch {
	case len(cols) == 0:
	case c == nil:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for _, col := range cols[1:] {
			next := unsafe.Add(x, (int(col)-base)*stride)
			a0 = a0.Add(*(*f32s)(r))
			a1 = a1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
			a2 = a2.Add(*(*f32s)(unsafe.Add(r, 2*stepF32)))
			a3 = a3.Add(*(*f32s)(unsafe.Add(r, 3*stepF32)))
			a4 = a4.Add(*(*f32s)(unsafe.Add(r, end)))
			r = next
		}
		a0 = a0.Add(*(*f32s)(r))
		a1 = a1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
		a2 = a2.Add(*(*f32s)(unsafe.Add(r, 2*stepF32)))
		a3 = a3.Add(*(*f32s)(unsafe.Add(r, 3*stepF32)))
		a4 = a4.Add(*(*f32s)(unsafe.Add(r, end)))
	default:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for k := 1; ; k++ {
			b := fillF32(*(*float32)(c))
			a0 = a0.Add(b.Mul(*(*f32s)(r)))
			a1 = a1.Add(b.Mul(*(*f32s)(unsafe.Add(r, stepF32))))
			a2 = a2.Add(b.Mul(*(*f32s)(unsafe.Add(r, 2*stepF32))))
			a3 = a3.Add(b.Mul(*(*f32s)(unsafe.Add(r, 3*stepF32))))
			a4 = a4.Add(b.Mul(*(*f32s)(unsafe.Add(r, end))))
			if k >= len(cols) {
				break
			}
			r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, sizeF32)
		}
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, stepF32)) = a1
	*(*f32s)(unsafe.Add(y, 2*stepF32)) = a2
	*(*f32s)(unsafe.Add(y, 3*stepF32)) = a3
	*(*f32s)(unsafe.Add(y, end)) = a4
	clearUpper()
}

// sum6F32 is a tile of six registers.
//
//go:noinline
//go:nocheckptr
func sum6F32(y, x unsafe.Pointer, end, stride int, cols []int32, base int, c unsafe.Pointer, first bool) {
	var a0, a1, a2, a3, a4, a5 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
		a2, a3 = *(*f32s)(unsafe.Add(y, 2*stepF32)), *(*f32s)(unsafe.Add(y, 3*stepF32))
		a4, a5 = *(*f32s)(unsafe.Add(y, 4*stepF32)), *(*f32s)(unsafe.Add(y, end))
	}
	switch {
	case len(cols) == 0:
	case c == nil:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for _, col := range cols[1:] {
			next := unsafe.Add(x, (int(col)-base)*stride)
			a0 = a0.Add(*(*f32s)(r))
			a1 = a1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
			a2 = a2.Add(*(*f32s)(unsafe.Add(r, 2*stepF32)))
			a3 = a3.Add(*(*f32s)(unsafe.Add(r, 3*stepF32)))
			a4 = a4.Add(*(*f32s)(unsafe.Add(r, 4*stepF32)))
			a5 = a5.Add(*(*f32s)(unsafe.Add(r, end)))
			r = next
		}
		a0 = a0.Add(*(*f32s)(r))
		a1 = a1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
		a2 = a2.Add(*(*f32s)(unsafe.Add(r, 2*stepF32)))
		a3 = a3.Add(*(*f32s)(unsafe.Add(r, 3*stepF32)))
		a4 = a4.Add(*(*f32s)(unsafe.Add(r, 4*stepF32)))
		a5 = a5.Add(*(*f32s)(unsafe.Add(r, end)))
	default:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for k := 1; ; k++ {
			b := fillF32(*(*float32)(c))
			a0 = a0.Add(b.Mul(*(*f32s)(r)))
			a1 = a1.Add(b.Mul(*(*f32s)(unsafe.Add(r, stepF32))))
			a2 = a2.Add(b.Mul(*(*f32s)(unsafe.Add(r, 2*stepF32))))
			a3 = a3.Add(b.Mul(*(*f32s)(unsafe.Add(r, 3*stepF32))))
			a4 = a4.Add(b.Mul(*(*f32s)(unsafe.Add(r, 4*stepF32))))
			a5 = a5.Add(b.Mul(*(*f32s)(unsafe.Add(r, end))))
			if k >= len(cols) {
				break
			}
			r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, sizeF32)
		}
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, stepF32)) = a1
	*(*f32s)(unsafe.Add(y, 2*stepF32)) = a2
	*(*f32s)(unsafe.Add(y, 3*stepF32)) = a3
	*(*f32s)(unsafe.Add(y, 4*stepF32)) = a4
	*(*f32s)(unsafe.Add(y, end)) = a5
	clearUpper()
}

// sum8F32 is a tile of seven or eight registers.
//
//go:noinline
//go:nocheckptr
func sum8F32(y, x unsafe.Pointer, end, stride int, cols []int32, base int, c unsafe.Pointer, first bool) {
	o6 := min(6*stepF32, end)
	var a0, a1, a2, a3, a4, a5, a6, a7 f32s
	if !first {
		a0, a1 = *(*f32s)(y), *(*f32s)(unsafe.Add(y, stepF32))
		a2, a3 = *(*f32s)(unsafe.Add(y, 2*stepF32)), *(*f32s)(unsafe.Add(y, 3*stepF32))
		a4, a5 = *(*f32s)(unsafe.Add(y, 4*stepF32)), *(*f32s)(unsafe.Add(y, 5*stepF32))
		a6, a7 = *(*f32s)(unsafe.Add(y, o6)), *(*f32s)(unsafe.Add(y, end))
	}
	switch {
	case len(cols) == 0:
	case c == nil:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for _, col := range cols[1:] {
			next := unsafe.Add(x, (int(col)-base)*stride)
			a0 = a0.Add(*(*f32s)(r))
			a1 = a1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
			a2 = a2.Add(*(*f32s)(unsafe.Add(r, 2*stepF32)))
			a3 = a3.Add(*(*f32s)(unsafe.Add(r, 3*stepF32)))
			a4 = a4.Add(*(*f32s)(unsafe.Add(r, 4*stepF32)))
			a5 = a5.Add(*(*f32s)(unsafe.Add(r, 5*stepF32)))
			a6 = a6.Add(*(*f32s)(unsafe.Add(r, o6)))
			a7 = a7.Add(*(*f32s)(unsafe.Add(r, end)))
			r = next
		}
		a0 = a0.Add(*(*f32s)(r))
		a1 = a1.Add(*(*f32s)(unsafe.Add(r, stepF32)))
		a2 = a2.Add(*(*f32s)(unsafe.Add(r, 2*stepF32)))
		a3 = a3.Add(*(*f32s)(unsafe.Add(r, 3*stepF32)))
		a4 = a4.Add(*(*f32s)(unsafe.Add(r, 4*stepF32)))
		a5 = a5.Add(*(*f32s)(unsafe.Add(r, 5*stepF32)))
		a6 = a6.Add(*(*f32s)(unsafe.Add(r, o6)))
		a7 = a7.Add(*(*f32s)(unsafe.Add(r, end)))
	default:
		r := unsafe.Add(x, (int(cols[0])-base)*stride)
		for k := 1; ; k++ {
			b := fillF32(*(*float32)(c))
			a0 = a0.Add(b.Mul(*(*f32s)(r)))
			a1 = a1.Add(b.Mul(*(*f32s)(unsafe.Add(r, stepF32))))
			a2 = a2.Add(b.Mul(*(*f32s)(unsafe.Add(r, 2*stepF32))))
			a3 = a3.Add(b.Mul(*(*f32s)(unsafe.Add(r, 3*stepF32))))
			a4 = a4.Add(b.Mul(*(*f32s)(unsafe.Add(r, 4*stepF32))))
			a5 = a5.Add(b.Mul(*(*f32s)(unsafe.Add(r, 5*stepF32))))
			a6 = a6.Add(b.Mul(*(*f32s)(unsafe.Add(r, o6))))
			a7 = a7.Add(b.Mul(*(*f32s)(unsafe.Add(r, end))))
			if k >= len(cols) {
				break
			}
			r, c = unsafe.Add(x, (int(cols[k])-base)*stride), unsafe.Add(c, sizeF32)
		}
	}
	*(*f32s)(y) = a0
	*(*f32s)(unsafe.Add(y, stepF32)) = a1
	*(*f32s)(unsafe.Add(y, 2*stepF32)) = a2
	*(*f32s)(unsafe.Add(y, 3*stepF32)) = a3
	*(*f32s)(unsafe.Add(y, 4*stepF32)) = a4
	*(*f32s)(unsafe.Add(y, 5*stepF32)) = a5
	*(*f32s)(unsafe.Add(y, o6)) = a6
	*(*f32s)(unsafe.Add(y, end)) = a7
	clearUpper()
}
