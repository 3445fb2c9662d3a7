package kernel

import "sar/core/internal/vec"

// Standard is the numbers of each column by which rows are normalized:
// s[i,j] = (x[i,j] - About[j]) · Scale[j] + Shift[j], all [width]. With Gate what is not above 0
// becomes 0 (ReLU), in results and in gradients; NaN stays. What Drop drops becomes 0 after that, in results
// and in gradients, and the rest is scaled.
type Standard[T Float] struct {
	About, Scale, Shift []T
	Gate                bool
	Drop                Dropout
}

// Sums of columns add up blocks of rows in the precision of the elements, blocks in double precision
// in the order of rows, and parts of a number that depends on the shape alone in their order: the
// same bits for every number of threads.
const (
	blockElements = 1 << 15 // of a block of rows, which is read twice: within the second cache
	mostBlockRows = 128     // added up in the precision of the elements
	mostParts     = 32      // each has sums of its own, which are garbage afterwards
)

// ColumnMoments: mean[j] = Σ_i x[i,j] / n; squares[j] = Σ_i (x[i,j] - mean[j])². x [n, width]; zeros
// where there are no rows.
func ColumnMoments[T Float](p *Pool, x []T, width int, mean, squares []float64) {
	need("mean", len(mean), width)
	need("squares", len(squares), width)
	mean, squares = mean[:width], squares[:width]
	ops := vec.ColumnLoops[T]()
	var rows [mostParts]float64
	found := eachBlock(p, width, len(x), func(part int, sums []float64, block []float64, scratch []T, begin, end int) {
		c := vec.Columns[T]{X: x[begin:end]}
		c.Plain, c.Along, c.About = scratch[:width], scratch[width:2*width], scratch[2*width:]
		clear(scratch)
		ops.Sums(&c)
		n := float64((end - begin) / width)
		for j, sum := range c.Plain {
			c.About[j] = sum / T(n)
		}
		// About is off by the rounding of a sum; what deviations from it add up to says by how much.
		clear(c.Plain)
		ops.Deviations(&c)
		means, more, one := block[:width], block[width:], 1/n
		for j, plain := range c.Plain {
			off := float64(plain) * one
			means[j] = float64(c.About[j]) + off
			more[j] = max(0, float64(c.Along[j])-n*off*off)
		}
		merge(rows[part], sums[:width], sums[width:], n, means, more)
		rows[part] += n
	})
	clear(mean)
	clear(squares)
	all := 0.0
	for part, sums := range found {
		merge(all, mean, squares, rows[part], sums[:width], sums[width:])
		all += rows[part]
	}
}

// merge takes n more rows, whose means and squares are given, into those of rows rows. After Chan,
// Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances".
func merge(rows float64, mean, squares []float64, n float64, means, more []float64) {
	share, weight := n/(rows+n), rows*n/(rows+n)
	squares, means, more = squares[:len(mean)], means[:len(mean)], more[:len(mean)]
	for j := range mean {
		delta := means[j] - mean[j]
		mean[j] += delta * share
		squares[j] += more[j] + delta*delta*weight
	}
}

// eachBlock calls f on blocks of rows of an array of size elements, of which each part takes a run of
// consecutive ones, one after the other: with the part, two rows that are its own and 0 at first, two
// rows and three of scratch. It returns the parts' own rows, in order.
func eachBlock[T Float](p *Pool, width, size int,
	f func(part int, own, wide []float64, scratch []T, begin, end int)) [][]float64 {
	if width == 0 || size == 0 {
		return nil
	}
	n := size / width
	rows := min(mostBlockRows, max(16, blockElements/width))
	blocks := (n + rows - 1) / rows
	found := make([][]float64, min(mostParts, blocks))
	parts := len(found)
	p.Run(parts, func(t int) {
		numbers, scratch := make([]float64, 4*width), make([]T, 3*width)
		found[t] = numbers[: 2*width : 2*width]
		for b := blocks * t / parts; b < blocks*(t+1)/parts; b++ {
			f(t, found[t], numbers[2*width:], scratch, b*rows*width, min(n, (b+1)*rows)*width)
		}
	})
	return found
}

// Normalize: z[i,j] = s[i,j]. x, z [n, width]; z may be x.
func Normalize[T Float](p *Pool, z, x []T, s Standard[T]) {
	need("z", len(z), len(x))
	width, loops := s.width(), vec.ColumnLoops[T]()
	of := s.loop()
	eachRows(p, len(x)/max(1, width), width, func(r0, r1 int) {
		c := of
		if s.Drop.Share == 0 {
			c.X, c.Z = x[r0*width:r1*width], z[r0*width:r1*width]
			loops.Affine(&c)
			return
		}
		drop := dropOf[T](s.Drop)
		for i := r0; i < r1; i++ {
			c.X, c.Z = x[i*width:(i+1)*width], z[i*width:(i+1)*width]
			loops.Affine(&c)
			drop.row(c.Z, c.Z, i)
		}
	})
}

// NormalizeSums: plain[j] = Σ_i g[i,j]; along[j] = Σ_i g[i,j] · (x[i,j] - About[j]), where gates are
// open. g, x [n, width].
func NormalizeSums[T Float](p *Pool, g, x []T, s Standard[T], plain, along []float64) {
	width, loops := s.width(), vec.ColumnLoops[T]()
	need("g", len(g), len(x))
	need("plain", len(plain), width)
	need("along", len(along), width)
	plain, along = plain[:width], along[:width]
	of := s.loop()
	found := eachBlock(p, width, len(x), func(_ int, sums, _ []float64, scratch []T, begin, end int) {
		c := of
		c.X, c.G, c.Plain, c.Along = x[begin:end], g[begin:end], scratch[:width], scratch[width:2*width]
		clear(scratch)
		if s.Drop.Share == 0 {
			loops.Products(&c)
		} else {
			drop, kept := dropOf[T](s.Drop), scratch[2*width:]
			for at := begin; at < end; at += width {
				drop.row(kept, g[at:at+width], at/width)
				c.X, c.G = x[at:at+width], kept
				loops.Products(&c)
			}
		}
		sums = sums[:2*width]
		for j, v := range scratch[:2*width] {
			sums[j] += float64(v)
		}
	})
	clear(plain)
	clear(along)
	for _, sums := range found {
		for j := range plain {
			plain[j] += sums[j]
			along[j] += sums[width+j]
		}
	}
}

// Gradient is what backward of Normalize needs of each column.
type Gradient[T Float] struct {
	Standard[T]
	Times, Plus []T
}

// NormalizeGrad: z[i,j] = g[i,j] · Scale[j] + (x[i,j] - About[j]) · Times[j] + Plus[j], where g counts
// as 0 behind a shut gate. g, x, z [n, width]; z may be g or x.
func NormalizeGrad[T Float](p *Pool, z, g, x []T, s Gradient[T]) {
	width, loops := s.width(), vec.ColumnLoops[T]()
	need("g", len(g), len(x))
	need("z", len(z), len(x))
	need("times", len(s.Times), width)
	need("plus", len(s.Plus), width)
	of := s.loop()
	of.B, of.C = s.Times[:width], s.Plus[:width]
	eachRows(p, len(x)/max(1, width), 2*width, func(r0, r1 int) {
		c := of
		if s.Drop.Share == 0 {
			c.X, c.G, c.Z = x[r0*width:r1*width], g[r0*width:r1*width], z[r0*width:r1*width]
			loops.Gradient(&c)
			return
		}
		drop, kept := dropOf[T](s.Drop), make([]T, width)
		for i := r0; i < r1; i++ {
			from, to := i*width, (i+1)*width
			drop.row(kept, g[from:to], i)
			c.X, c.G, c.Z = x[from:to], kept, z[from:to]
			loops.Gradient(&c)
		}
	})
}

// width is how many columns there are.
func (s Standard[T]) width() int {
	width := len(s.About)
	need("scale", len(s.Scale), width)
	need("shift", len(s.Shift), width)
	return width
}

// loop is the arguments of a loop that concern columns.
func (s Standard[T]) loop() vec.Columns[T] {
	width := len(s.About)
	return vec.Columns[T]{About: s.About, Scale: s.Scale[:width], Shift: s.Shift[:width], Gate: s.Gate}
}
