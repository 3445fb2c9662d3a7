//go:build goexperiment.simd && (amd64 || arm64)

package vec

func columnsF64() ColumnOps[float64] {
	return ColumnOps[float64]{
		Sums:       columnSumsF64,
		Deviations: deviationsF64,
		Affine:     affineF64,
		Products:   productsF64,
		Gradient:   gradientF64,
		Drop:       dropScalar[float64],
	}
}

// eachColumnF64 calls f for each register of each row: r bytes from where the block begins, and j from where the row
// does. It returns how many columns those were.
func eachColumnF64(c *Columns[float64], d int, f func(r, j int)) int {
	full := d &^ (lanesF64 - 1)
	for at := 0; at < len(c.X)*sizeF64; at += d * sizeF64 {
		for j := 0; j < full*sizeF64; j += stepF64 {
			f(at+j, j)
		}
	}
	clearUpper()
	return full
}

func columnSumsF64(c *Columns[float64]) {
	x, plain := dataF64(c.X), dataF64(c.Plain)
	columnSumsFrom(c, eachColumnF64(c, len(c.Plain), func(r, j int) {
		*atF64(plain, j) = (*atF64(plain, j)).Add(*atF64(x, r))
	}))
}

func deviationsF64(c *Columns[float64]) {
	d := len(c.About)
	x, about, plain, along := dataF64(c.X), dataF64(c.About), dataF64(c.Plain[:d]), dataF64(c.Along[:d])
	deviationsFrom(c, eachColumnF64(c, d, func(r, j int) {
		a := (*atF64(x, r)).Sub(*atF64(about, j))
		*atF64(plain, j) = (*atF64(plain, j)).Add(a)
		*atF64(along, j) = (*atF64(along, j)).Add(a.Mul(a))
	}))
}

// openF64 is v where the standardized number is open, else zero.
func openF64(gate bool, v, a, scale, shift f64s) f64s {
	var zero f64s
	if gate {
		return zero.IfElse(a.Mul(scale).Add(shift).LessEqual(zero), v)
	}
	return v
}

func affineF64(c *Columns[float64]) {
	d, gate := len(c.About), c.Gate
	x, z := dataF64(c.X), dataF64(c.Z[:len(c.X)])
	about, scale, shift := dataF64(c.About), dataF64(c.Scale[:d]), dataF64(c.Shift[:d])
	affineFrom(c, eachColumnF64(c, d, func(r, j int) {
		a := (*atF64(x, r)).Sub(*atF64(about, j))
		s := a.Mul(*atF64(scale, j)).Add(*atF64(shift, j))
		*atF64(z, r) = openF64(gate, s, a, *atF64(scale, j), *atF64(shift, j))
	}))
}

func productsF64(c *Columns[float64]) {
	d, gate := len(c.About), c.Gate
	x, g := dataF64(c.X), dataF64(c.G[:len(c.X)])
	about, scale, shift := dataF64(c.About), dataF64(c.Scale[:d]), dataF64(c.Shift[:d])
	plain, along := dataF64(c.Plain[:d]), dataF64(c.Along[:d])
	productsFrom(c, eachColumnF64(c, d, func(r, j int) {
		a := (*atF64(x, r)).Sub(*atF64(about, j))
		b := openF64(gate, *atF64(g, r), a, *atF64(scale, j), *atF64(shift, j))
		*atF64(plain, j) = (*atF64(plain, j)).Add(b)
		*atF64(along, j) = (*atF64(along, j)).Add(a.Mul(b))
	}))
}

func gradientF64(c *Columns[float64]) {
	d, gate := len(c.About), c.Gate
	x, g := dataF64(c.X), dataF64(c.G[:len(c.X)])
	about, scale, shift := dataF64(c.About), dataF64(c.Scale[:d]), dataF64(c.Shift[:d])
	z, times, plus := dataF64(c.Z[:len(c.X)]), dataF64(c.B[:d]), dataF64(c.C[:d])
	gradientFrom(c, eachColumnF64(c, d, func(r, j int) {
		a := (*atF64(x, r)).Sub(*atF64(about, j))
		b := openF64(gate, *atF64(g, r), a, *atF64(scale, j), *atF64(shift, j))
		*atF64(z, r) = b.Mul(*atF64(scale, j)).Add(a.Mul(*atF64(times, j))).Add(*atF64(plus, j))
	}))
}
