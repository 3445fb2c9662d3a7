//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Loops over the columns of a block of rows, a register of a row at a time. Sums of columns stay in the
// first cache; what takes time is bringing in the rows.

func columnsF32() ColumnOps[float32] {
	return ColumnOps[float32]{
		Sums:       columnSumsF32,
		Deviations: deviationsF32,
		Affine:     affineF32,
		Products:   productsF32,
		Gradient:   gradientF32,
		Drop:       dropF32,
	}
}

// openF32 is v where the standardized number s is open, else zero.
func openF32(v, s f32s) f32s {
	var zero f32s
	return zero.IfElse(s.LessEqual(zero), v)
}

//go:nocheckptr
func columnSumsF32(c *Columns[float32]) {
	d := len(c.Plain)
	if d == 0 {
		return
	}
	x := unsafe.Pointer(unsafe.SliceData(c.X[:len(c.X)]))
	plain := unsafe.Pointer(unsafe.SliceData(c.Plain[:d]))
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in, end := firstF32(tail), len(c.X)*sizeF32
	for at := 0; at < end; at += d * sizeF32 {
		x := unsafe.Add(x, at)
		for j := 0; j < full; j += stepF32 {
			a := *(*f32s)(unsafe.Add(x, j))
			*(*f32s)(unsafe.Add(plain, j)) = a.Add(*(*f32s)(unsafe.Add(plain, j)))
		}
		if j := full; tail > 0 {
			a := partF32(unsafe.Add(x, j), in, tail)
			storePartF32(unsafe.Add(plain, j), a.Add(partF32(unsafe.Add(plain, j), in, tail)), in, tail)
		}
	}
	clearUpper()
}

//go:nocheckptr
func deviationsF32(c *Columns[float32]) {
	d := len(c.About)
	if d == 0 {
		return
	}
	x := unsafe.Pointer(unsafe.SliceData(c.X[:len(c.X)]))
	about := unsafe.Pointer(unsafe.SliceData(c.About[:d]))
	plain := unsafe.Pointer(unsafe.SliceData(c.Plain[:d]))
	along := unsafe.Pointer(unsafe.SliceData(c.Along[:d]))
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in, end := firstF32(tail), len(c.X)*sizeF32
	for at := 0; at < end; at += d * sizeF32 {
		x := unsafe.Add(x, at)
		for j := 0; j < full; j += stepF32 {
			a := (*(*f32s)(unsafe.Add(x, j))).Sub(*(*f32s)(unsafe.Add(about, j)))
			*(*f32s)(unsafe.Add(plain, j)) = a.Add(*(*f32s)(unsafe.Add(plain, j)))
			*(*f32s)(unsafe.Add(along, j)) = a.Mul(a).Add(*(*f32s)(unsafe.Add(along, j)))
		}
		if j := full; tail > 0 {
			a := partF32(unsafe.Add(x, j), in, tail).Sub(partF32(unsafe.Add(about, j), in, tail))
			storePartF32(unsafe.Add(plain, j), a.Add(partF32(unsafe.Add(plain, j), in, tail)), in, tail)
			storePartF32(unsafe.Add(along, j), a.Mul(a).Add(partF32(unsafe.Add(along, j), in, tail)), in, tail)
		}
	}
	clearUpper()
}

//go:nocheckptr
func affineF32(c *Columns[float32]) {
	d := len(c.About)
	if d == 0 {
		return
	}
	x := unsafe.Pointer(unsafe.SliceData(c.X[:len(c.X)]))
	about := unsafe.Pointer(unsafe.SliceData(c.About[:d]))
	scale := unsafe.Pointer(unsafe.SliceData(c.Scale[:d]))
	shift := unsafe.Pointer(unsafe.SliceData(c.Shift[:d]))
	z := unsafe.Pointer(unsafe.SliceData(c.Z[:len(c.X)]))
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in, end, gate := firstF32(tail), len(c.X)*sizeF32, c.Gate
	for at := 0; at < end; at += d * sizeF32 {
		x, z := unsafe.Add(x, at), unsafe.Add(z, at)
		for j := 0; j < full; j += stepF32 {
			s := (*(*f32s)(unsafe.Add(x, j))).Sub(*(*f32s)(unsafe.Add(about, j)))
			s = s.Mul(*(*f32s)(unsafe.Add(scale, j))).Add(*(*f32s)(unsafe.Add(shift, j)))
			if gate {
				s = openF32(s, s)
			}
			*(*f32s)(unsafe.Add(z, j)) = s
		}
		if j := full; tail > 0 {
			s := partF32(unsafe.Add(x, j), in, tail).Sub(partF32(unsafe.Add(about, j), in, tail))
			s = s.Mul(partF32(unsafe.Add(scale, j), in, tail)).Add(partF32(unsafe.Add(shift, j), in, tail))
			if gate {
				s = openF32(s, s)
			}
			storePartF32(unsafe.Add(z, j), s, in, tail)
		}
	}
	clearUpper()
}

//go:nocheckptr
func productsF32(c *Columns[float32]) {
	d := len(c.About)
	if d == 0 {
		return
	}
	x := unsafe.Pointer(unsafe.SliceData(c.X[:len(c.X)]))
	g := unsafe.Pointer(unsafe.SliceData(c.G[:len(c.X)]))
	about := unsafe.Pointer(unsafe.SliceData(c.About[:d]))
	scale := unsafe.Pointer(unsafe.SliceData(c.Scale[:d]))
	shift := unsafe.Pointer(unsafe.SliceData(c.Shift[:d]))
	plain := unsafe.Pointer(unsafe.SliceData(c.Plain[:d]))
	along := unsafe.Pointer(unsafe.SliceData(c.Along[:d]))
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in, end, gate := firstF32(tail), len(c.X)*sizeF32, c.Gate
	for at := 0; at < end; at += d * sizeF32 {
		x, g := unsafe.Add(x, at), unsafe.Add(g, at)
		for j := 0; j < full; j += stepF32 {
			a := (*(*f32s)(unsafe.Add(x, j))).Sub(*(*f32s)(unsafe.Add(about, j)))
			b := *(*f32s)(unsafe.Add(g, j))
			if gate {
				b = openF32(b, a.Mul(*(*f32s)(unsafe.Add(scale, j))).Add(*(*f32s)(unsafe.Add(shift, j))))
			}
			*(*f32s)(unsafe.Add(plain, j)) = b.Add(*(*f32s)(unsafe.Add(plain, j)))
			*(*f32s)(unsafe.Add(along, j)) = a.Mul(b).Add(*(*f32s)(unsafe.Add(along, j)))
		}
		if j := full; tail > 0 {
			a := partF32(unsafe.Add(x, j), in, tail).Sub(partF32(unsafe.Add(about, j), in, tail))
			b := partF32(unsafe.Add(g, j), in, tail)
			if gate {
				s := a.Mul(partF32(unsafe.Add(scale, j), in, tail))
				b = openF32(b, s.Add(partF32(unsafe.Add(shift, j), in, tail)))
			}
			storePartF32(unsafe.Add(plain, j), b.Add(partF32(unsafe.Add(plain, j), in, tail)), in, tail)
			storePartF32(unsafe.Add(along, j), a.Mul(b).Add(partF32(unsafe.Add(along, j), in, tail)), in, tail)
		}
	}
	clearUpper()
}

//go:nocheckptr
func gradientF32(c *Columns[float32]) {
	d := len(c.About)
	if d == 0 {
		return
	}
	x := unsafe.Pointer(unsafe.SliceData(c.X[:len(c.X)]))
	g := unsafe.Pointer(unsafe.SliceData(c.G[:len(c.X)]))
	z := unsafe.Pointer(unsafe.SliceData(c.Z[:len(c.X)]))
	about := unsafe.Pointer(unsafe.SliceData(c.About[:d]))
	scale := unsafe.Pointer(unsafe.SliceData(c.Scale[:d]))
	shift := unsafe.Pointer(unsafe.SliceData(c.Shift[:d]))
	times := unsafe.Pointer(unsafe.SliceData(c.B[:d]))
	plus := unsafe.Pointer(unsafe.SliceData(c.C[:d]))
	full, tail := d/lanesF32*stepF32, d%lanesF32
	in, end, gate := firstF32(tail), len(c.X)*sizeF32, c.Gate
	for at := 0; at < end; at += d * sizeF32 {
		x, g, z := unsafe.Add(x, at), unsafe.Add(g, at), unsafe.Add(z, at)
		for j := 0; j < full; j += stepF32 {
			a := (*(*f32s)(unsafe.Add(x, j))).Sub(*(*f32s)(unsafe.Add(about, j)))
			b := *(*f32s)(unsafe.Add(g, j))
			if gate {
				b = openF32(b, a.Mul(*(*f32s)(unsafe.Add(scale, j))).Add(*(*f32s)(unsafe.Add(shift, j))))
			}
			b = b.Mul(*(*f32s)(unsafe.Add(scale, j))).Add(a.Mul(*(*f32s)(unsafe.Add(times, j))))
			b = b.Add(*(*f32s)(unsafe.Add(plus, j)))
			*(*f32s)(unsafe.Add(z, j)) = b
		}
		if j := full; tail > 0 {
			a := partF32(unsafe.Add(x, j), in, tail).Sub(partF32(unsafe.Add(about, j), in, tail))
			b := partF32(unsafe.Add(g, j), in, tail)
			if gate {
				s := a.Mul(partF32(unsafe.Add(scale, j), in, tail))
				b = openF32(b, s.Add(partF32(unsafe.Add(shift, j), in, tail)))
			}
			b = b.Mul(partF32(unsafe.Add(scale, j), in, tail)).Add(a.Mul(partF32(unsafe.Add(times, j), in, tail)))
			b = b.Add(partF32(unsafe.Add(plus, j), in, tail))
			storePartF32(unsafe.Add(z, j), b, in, tail)
		}
	}
	clearUpper()
}
