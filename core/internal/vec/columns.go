package vec

// Columns is the arguments of the loops of batch normalization: a block of rows of len(About)
// columns, and numbers of each column.
type Columns[T Float] struct {
	X, G, Z []T // [n, d], one after the other; Z may be X or G
	// s[r, j] = (x[r, j] - about[j]) * scale[j] + shift[j]
	About, Scale, Shift []T
	B, C                []T // of Gradient
	Plain, Along        []T // [d] sums, which are added to
	Gate                bool
}

// ColumnOps is the loops over columns of one table for one element type. Every column adds in the
// order of rows, and nothing is fused, so that the tables give the same bits. Open is where s > 0 or
// s is not a number, or everywhere without Gate.
type ColumnOps[T Float] struct {
	// Sums: plain[j] += Σ_r x[r, j]
	Sums func(c *Columns[T])
	// Deviations: plain[j] += Σ_r x[r, j] - about[j]; along[j] += Σ_r (x[r, j] - about[j])²
	Deviations func(c *Columns[T])
	// Affine: z[r, j] = open ? s[r, j] : 0
	Affine func(c *Columns[T])
	// Products, with g = open ? g[r, j] : 0: plain[j] += Σ_r g; along[j] += Σ_r g * (x[r, j] - about[j])
	Products func(c *Columns[T])
	// Gradient, with g = open ? g[r, j] : 0: z[r, j] = g * scale[j] + (x[r, j] - about[j]) * b[j] + c[j]
	Gradient func(c *Columns[T])
	// Drop: what is kept of one row, times the scale; z may be x
	Drop func(z, x []T, d *Drop[T])
}

// ColumnLoops returns the loops over columns in use for T.
func ColumnLoops[T Float]() *ColumnOps[T] {
	t := current.Load()
	if ops, ok := any(&t.columns32).(*ColumnOps[T]); ok {
		return ops
	}
	return any(&t.columns64).(*ColumnOps[T])
}

func scalarColumns[T Float]() ColumnOps[T] {
	return ColumnOps[T]{
		Sums:       scalarFrom(columnSumsFrom[T]),
		Deviations: scalarFrom(deviationsFrom[T]),
		Affine:     scalarFrom(affineFrom[T]),
		Products:   scalarFrom(productsFrom[T]),
		Gradient:   scalarFrom(gradientFrom[T]),
		Drop:       dropScalar[T],
	}
}

// The scalar loops are of the columns from one on.
func scalarFrom[T Float](loop func(c *Columns[T], from int)) func(c *Columns[T]) {
	return func(c *Columns[T]) { loop(c, 0) }
}

func columnSumsFrom[T Float](c *Columns[T], from int) {
	d := len(c.Plain)
	for at := 0; at < len(c.X); at += d {
		addScalar(c.Plain[from:], c.X[at+from:at+d])
	}
}

func deviationsFrom[T Float](c *Columns[T], from int) {
	d := len(c.About)
	for at := 0; at < len(c.X); at += d {
		for j := from; j < d; j++ {
			x := c.X[at+j] - c.About[j]
			c.Plain[j] += x
			c.Along[j] += T(x * x)
		}
	}
}

// standard is s, and whether it is shut.
func (c *Columns[T]) standard(x T, j int) (s T, shut bool) {
	s = T((x-c.About[j])*c.Scale[j]) + c.Shift[j]
	return s, c.Gate && s <= 0
}

func affineFrom[T Float](c *Columns[T], from int) {
	d := len(c.About)
	for at := 0; at < len(c.X); at += d {
		for j := from; j < d; j++ {
			x := c.X[at+j]
			s, shut := c.standard(x, j)
			if shut {
				s = 0
			}
			c.Z[at+j] = s
		}
	}
}

func productsFrom[T Float](c *Columns[T], from int) {
	d := len(c.About)
	for at := 0; at < len(c.X); at += d {
		for j := from; j < d; j++ {
			x := c.X[at+j]
			g := c.G[at+j]
			if _, shut := c.standard(x, j); shut {
				g = 0
			}
			c.Plain[j] += g
			c.Along[j] += T(g * (x - c.About[j]))
		}
	}
}

func gradientFrom[T Float](c *Columns[T], from int) {
	d := len(c.About)
	for at := 0; at < len(c.X); at += d {
		for j := from; j < d; j++ {
			x := c.X[at+j]
			g := c.G[at+j]
			if _, shut := c.standard(x, j); shut {
				g = 0
			}
			c.Z[at+j] = T(g*c.Scale[j]) + T((x-c.About[j])*c.B[j]) + c.C[j]
		}
	}
}
