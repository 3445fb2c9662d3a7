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
func ColumnMoments[T Float](p *Pool, x Numbers[T], width int, mean, squares []float64) {
	need("mean", len(mean), width)
	need("squares", len(squares), width)
	mean, squares = mean[:width], squares[:width]
	ops := vec.ColumnLoops[T]()
	var rows [mostParts]float64
	found := eachBlock(p, width, Dropout{}, func(b *block[T], begin, end int) {
		c := vec.Columns[T]{Plain: b.plain, Along: b.along, About: b.about}
		b.each(begin, end, func(begin, end int) {
			c.X = b.read(0, x, begin, end)
			ops.Sums(&c)
		})
		n := float64((end - begin) / width)
		for j, sum := range c.Plain {
			c.About[j] = sum / T(n)
		}
		// About is off by the rounding of a sum; what deviations from it add up to says by how much.
		clear(c.Plain)
		b.each(begin, end, func(begin, end int) {
			c.X = b.read(0, x, begin, end)
			ops.Deviations(&c)
		})
		means, more, one := b.wide[:width], b.wide[width:], 1/n
		for j, plain := range c.Plain {
			off := float64(plain) * one
			means[j] = float64(c.About[j]) + off
			more[j] = max(0, float64(c.Along[j])-n*off*off)
		}
		merge(rows[b.part], b.sums[:width], b.sums[width:], n, means, more)
		rows[b.part] += n
	}, x)
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

// block is what a part of eachBlock computes its blocks with.
type block[T Float] struct {
	*workspace[T]
	part                int
	sums, wide          []float64 // [2, width]: of the part, 0 at first; scratch
	plain, along, about []T       // [width], 0 at first in each block
}

// eachBlock calls f with blocks of rows of arrays of one size, from begin to end, of which each part takes a run of
// consecutive ones, one after the other. It returns the parts' sums, in order.
func eachBlock[T Float](p *Pool, width int, drop Dropout, f func(b *block[T], begin, end int), arrays ...Numbers[T],
) [][]float64 {
	if width == 0 || arrays[0].size() == 0 {
		return nil
	}
	n := arrays[0].size() / width
	rows := min(mostBlockRows, max(16, blockElements/width))
	blocks := (n + rows - 1) / rows
	found := make([][]float64, min(mostParts, blocks))
	parts := len(found)
	p.Run(parts, func(t int) {
		numbers, scratch := make([]float64, 4*width), make([]T, 3*width)
		found[t] = numbers[: 2*width : 2*width]
		b := &block[T]{
			workspace: newWorkspace(rows*width, width, drop, arrays...), part: t, sums: found[t], wide: numbers[2*width:],
			plain: scratch[:width:width], along: scratch[width : 2*width : 2*width], about: scratch[2*width:],
		}
		for k := blocks * t / parts; k < blocks*(t+1)/parts; k++ {
			clear(scratch)
			f(b, k*rows*width, min(n, (k+1)*rows)*width)
		}
	})
	return found
}

// Normalize: z[i,j] = s[i,j]. x, z [n, width]; z may be x.
func Normalize[T Float](p *Pool, z, x Numbers[T], s Standard[T]) {
	need("z", z.size(), x.size())
	width, loops := s.width(), vec.ColumnLoops[T]()
	of := s.loop()
	eachRows(p, x.size()/max(1, width), width, func(r0, r1 int) {
		c, b := of, newWorkspace((r1-r0)*width, width, s.Drop, x, z)
		b.each(r0*width, r1*width, func(begin, end int) {
			c.X, c.Z = b.read(0, x, begin, end), b.of(1, z, begin, end)
			loops.Affine(&c)
			if b.drop != nil {
				b.drop.rows(c.Z, c.Z, width, begin/width)
			}
			b.store(z, c.Z, begin, end)
		})
	})
}

// NormalizeBack: z[i,j] = g[i,j] where the gate is open, else 0: the gradient of s. g, x, z [n, width].
func NormalizeBack[T Float](p *Pool, z, g, x Numbers[T], s Standard[T]) {
	width, loops, ops := s.width(), vec.ColumnLoops[T](), vec.Get[T]()
	need("g", g.size(), x.size())
	need("z", z.size(), x.size())
	of := s.loop()
	eachRows(p, x.size()/max(1, width), 2*width, func(r0, r1 int) {
		c, b := of, newWorkspace((r1-r0)*width, width, s.Drop, x, g, z)
		b.each(r0*width, r1*width, func(begin, end int) {
			grad := b.kept(1, g, begin, end)
			c.X, c.Z = b.read(0, x, begin, end), b.of(2, z, begin, end)
			if s.Gate {
				loops.Affine(&c)
				ops.Gate(c.Z, c.Z, grad)
			} else {
				copy(c.Z, grad)
			}
			b.store(z, c.Z, begin, end)
		})
	})
}

// NormalizeSums: plain[j] = Σ_i g[i,j]; along[j] = Σ_i g[i,j] · (x[i,j] - About[j]), where gates are
// open. g, x [n, width].
func NormalizeSums[T Float](p *Pool, g, x Numbers[T], s Standard[T], plain, along []float64) {
	width, loops := s.width(), vec.ColumnLoops[T]()
	need("g", g.size(), x.size())
	need("plain", len(plain), width)
	need("along", len(along), width)
	plain, along = plain[:width], along[:width]
	of := s.loop()
	found := eachBlock(p, width, s.Drop, func(b *block[T], begin, end int) {
		c := of
		c.Plain, c.Along = b.plain, b.along
		b.each(begin, end, func(begin, end int) {
			c.X, c.G = b.read(0, x, begin, end), b.kept(1, g, begin, end)
			loops.Products(&c)
		})
		for j, v := range b.plain {
			b.sums[j] += float64(v)
			b.sums[width+j] += float64(b.along[j])
		}
	}, x, g)
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
func NormalizeGrad[T Float](p *Pool, z, g, x Numbers[T], s Gradient[T]) {
	width, loops := s.width(), vec.ColumnLoops[T]()
	need("g", g.size(), x.size())
	need("z", z.size(), x.size())
	need("times", len(s.Times), width)
	need("plus", len(s.Plus), width)
	of := s.loop()
	of.B, of.C = s.Times[:width], s.Plus[:width]
	eachRows(p, x.size()/max(1, width), 2*width, func(r0, r1 int) {
		c, b := of, newWorkspace((r1-r0)*width, width, s.Drop, x, g, z)
		b.each(r0*width, r1*width, func(begin, end int) {
			c.X, c.G, c.Z = b.read(0, x, begin, end), b.kept(1, g, begin, end), b.of(2, z, begin, end)
			loops.Gradient(&c)
			b.store(z, c.Z, begin, end)
		})
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
