//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Products with rows of bfloat16, and sums of their multiples in the same pass, four rows at a time. As in sums_bf16.go
// a register of words has columns in pairs. So the row that others are multiplied with and the sums are taken apart,
// into even and odd columns, before the first row, and sums are put together after the last.

// tileDots is the registers of a tile.
const tileDots = 8

// apart is columns of a tile: of each register even ones and odd ones.
type apart [tileDots][2]f32s

// halfDotHeadsF32 takes one head after the other.
func halfDotHeadsF32(g *Gather[float32], heads int) {
	dots := *g
	dots.C = nil // of another loop
	nearF32(&dots, len(g.Y), heads, func(g Gather[float32]) { halfDotsF32(&g, g.Y, nil, heads) })
}

func halfDotSumsF32(g *Gather[float32], w []float32, heads int) {
	nearF32(g, len(w), heads, func(g Gather[float32]) { halfDotsF32(&g, w, g.Y, heads) })
}

// halfDotsF32 walks the columns of each head in tiles. sums: nil for none.
//
//go:nocheckptr
func halfDotsF32(g *Gather[float32], w, sums []float32, heads int) {
	n := len(g.Col)
	if n == 0 || heads == 0 {
		return
	}
	out, d := g.Out[:n*heads], len(w)/heads
	var c, z unsafe.Pointer
	var with, to apart
	for h := range heads {
		if sums != nil {
			c = unsafe.Pointer(&g.C[:n*heads][h])
		}
		for from, end := h*d, (h+1)*d; from < end; {
			width := end - from
			if width > tileDots*pairBF16 { // what is left has a whole register
				width = tileDots * pairBF16 / 2
			}
			registers := (width + pairBF16 - 1) / pairBF16
			last := width - pairBF16
			for r := range registers {
				at := unsafe.Pointer(&w[from+min(r*pairBF16, last)])
				with[r][0], with[r][1] = loadPairF32(at)
				if sums != nil {
					at := unsafe.Pointer(&sums[from+min(r*pairBF16, last)])
					to[r][0], to[r][1] = loadPairF32(at)
				}
			}
			if twice := registers*pairBF16 - width; twice > 0 { // columns that the register before has
				var rest [pairBF16]float32
				copy(rest[twice:], w[from+last+twice:from+width])
				with[registers-1][0], with[registers-1][1] = loadPairF32(unsafe.Pointer(&rest))
			}
			clearUpper()
			if sums != nil {
				z = unsafe.Pointer(&to)
			}
			x := unsafe.Pointer(&g.Half[from])
			dotRowsBF16(z, unsafe.Pointer(&with), x, registers, last, g.Stride*sizeBF16, g.Col, int(g.Base), c,
				unsafe.Pointer(&out[h]), heads*sizeF32, from > h*d)
			if sums != nil {
				for r := range registers {
					storePairF32(unsafe.Pointer(&sums[from+min(r*pairBF16, last)]), to[r][0], to[r][1])
				}
				clearUpper()
			}
			from += width
		}
	}
}

// dotRowsBF16 is one tile, whose last register begins at column last. Coefficients and results of a head are step bytes
// apart. more: results have columns of another tile.
//
//go:noinline
//go:nocheckptr
func dotRowsBF16(z, w, x unsafe.Pointer, registers, last, stride int, cols []int32, base int, c, out unsafe.Pointer,
	step int, more bool) {
	odd, end := fillU32(0xffff0000), registers*2*stepF32
	last *= sizeBF16
	var s [4]float32
	for k := 0; k < len(cols); {
		n := min(4, len(cols)-k)
		// Where fewer are left the last one is taken again, and not added.
		r0 := unsafe.Add(x, (int(cols[k])-base)*stride)
		r1 := unsafe.Add(x, (int(cols[k+min(1, n-1)])-base)*stride)
		r2 := unsafe.Add(x, (int(cols[k+min(2, n-1)])-base)*stride)
		r3 := unsafe.Add(x, (int(cols[k+n-1])-base)*stride)
		var a0, a1, a2, a3 f32s
		switch {
		case z == nil:
			for j := 0; j < end; j += 2 * stepF32 {
				at := min(j/2, last)
				p, q := *(*f32s)(unsafe.Add(w, j)), *(*f32s)(unsafe.Add(w, j+stepF32))
				v := *(*u32s)(unsafe.Add(r0, at))
				a0 = v.ShiftAllLeft(16).BitsToFloat32().MulAdd(p, a0)
				a0 = v.And(odd).BitsToFloat32().MulAdd(q, a0)
				v = *(*u32s)(unsafe.Add(r1, at))
				a1 = v.ShiftAllLeft(16).BitsToFloat32().MulAdd(p, a1)
				a1 = v.And(odd).BitsToFloat32().MulAdd(q, a1)
				v = *(*u32s)(unsafe.Add(r2, at))
				a2 = v.ShiftAllLeft(16).BitsToFloat32().MulAdd(p, a2)
				a2 = v.And(odd).BitsToFloat32().MulAdd(q, a2)
				v = *(*u32s)(unsafe.Add(r3, at))
				a3 = v.ShiftAllLeft(16).BitsToFloat32().MulAdd(p, a3)
				a3 = v.And(odd).BitsToFloat32().MulAdd(q, a3)
			}
		case n == 4:
			b0, b1 := fillF32(*(*float32)(c)), fillF32(*(*float32)(unsafe.Add(c, step)))
			b2, b3 := fillF32(*(*float32)(unsafe.Add(c, 2*step))), fillF32(*(*float32)(unsafe.Add(c, 3*step)))
			for j := 0; j < end; j += 2 * stepF32 {
				at := min(j/2, last)
				p, q := *(*f32s)(unsafe.Add(w, j)), *(*f32s)(unsafe.Add(w, j+stepF32))
				even, uneven := *(*f32s)(unsafe.Add(z, j)), *(*f32s)(unsafe.Add(z, j+stepF32))
				v := *(*u32s)(unsafe.Add(r0, at))
				e, o := v.ShiftAllLeft(16).BitsToFloat32(), v.And(odd).BitsToFloat32()
				a0 = o.MulAdd(q, e.MulAdd(p, a0))
				even, uneven = even.Add(b0.Mul(e)), uneven.Add(b0.Mul(o))
				v = *(*u32s)(unsafe.Add(r1, at))
				e, o = v.ShiftAllLeft(16).BitsToFloat32(), v.And(odd).BitsToFloat32()
				a1 = o.MulAdd(q, e.MulAdd(p, a1))
				even, uneven = even.Add(b1.Mul(e)), uneven.Add(b1.Mul(o))
				v = *(*u32s)(unsafe.Add(r2, at))
				e, o = v.ShiftAllLeft(16).BitsToFloat32(), v.And(odd).BitsToFloat32()
				a2 = o.MulAdd(q, e.MulAdd(p, a2))
				even, uneven = even.Add(b2.Mul(e)), uneven.Add(b2.Mul(o))
				v = *(*u32s)(unsafe.Add(r3, at))
				e, o = v.ShiftAllLeft(16).BitsToFloat32(), v.And(odd).BitsToFloat32()
				a3 = o.MulAdd(q, e.MulAdd(p, a3))
				*(*f32s)(unsafe.Add(z, j)) = even.Add(b3.Mul(e))
				*(*f32s)(unsafe.Add(z, j+stepF32)) = uneven.Add(b3.Mul(o))
			}
		default: // one row after the other
			n = 1
			b := fillF32(*(*float32)(c))
			for j := 0; j < end; j += 2 * stepF32 {
				v := *(*u32s)(unsafe.Add(r0, min(j/2, last)))
				e, o := v.ShiftAllLeft(16).BitsToFloat32(), v.And(odd).BitsToFloat32()
				a0 = o.MulAdd(*(*f32s)(unsafe.Add(w, j+stepF32)), e.MulAdd(*(*f32s)(unsafe.Add(w, j)), a0))
				*(*f32s)(unsafe.Add(z, j)) = (*(*f32s)(unsafe.Add(z, j))).Add(b.Mul(e))
				*(*f32s)(unsafe.Add(z, j+stepF32)) = (*(*f32s)(unsafe.Add(z, j+stepF32))).Add(b.Mul(o))
			}
		}
		store4F32(unsafe.Pointer(&s), a0, a1, a2, a3)
		for i := range n {
			if more {
				s[i] += *(*float32)(out)
			}
			*(*float32)(out) = s[i]
			if k+i+1 < len(cols) {
				out = unsafe.Add(out, step)
			}
		}
		if k += n; z != nil && k < len(cols) { // past the last one they would point to nothing
			c = unsafe.Add(c, n*step)
		}
	}
	clearUpper()
}
