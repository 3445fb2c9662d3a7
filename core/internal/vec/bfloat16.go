package vec

import "sar/core/internal/dtypes"

// BFloat16 is the upper half of a float32. It stores numbers, and every loop computes with what it is as a T.
type BFloat16 = uint16

// wide is the number that b stores.
func wide[T Float](b BFloat16) T { return T(dtypes.FromBFloat16(b)) }

func halfSumScalar[T Float](g *Gather[T]) {
	if g.First {
		clear(g.Y)
	}
	d := len(g.Y)
	for k, col := range g.Col {
		x := g.Half[int(col-g.Base)*g.Stride:][:d]
		c := g.coefficient(k) // 1 leaves the bits
		for j := range g.Y {
			g.Y[j] += T(c * wide[T](x[j]))
		}
	}
}

func halfSumsScalar[T Float](g *Gather[T], runs []Run) { gatherEach(g, runs, halfSumScalar[T]) }

func halfSumHeadsScalar[T Float](g *Gather[T], heads int) {
	if g.First {
		clear(g.Y)
	}
	for k, col := range g.Col {
		x := g.Half[int(col-g.Base)*g.Stride:][:len(g.Y)]
		for j := range g.Y {
			g.Y[j] += T(g.C[k*heads+j/(len(g.Y)/heads)] * wide[T](x[j]))
		}
	}
}

func halfDotHeadsScalar[T Float](g *Gather[T], heads int) { halfDotsScalar(g, g.Y, heads) }

func halfDotSumsScalar[T Float](g *Gather[T], w []T, heads int) {
	halfDotsScalar(g, w, heads)
	sums := *g
	sums.First = false
	halfSumHeadsScalar(&sums, heads)
}

func halfDotsScalar[T Float](g *Gather[T], w []T, heads int) {
	d := len(w) / max(1, heads)
	for k, col := range g.Col {
		x := g.Half[int(col-g.Base)*g.Stride:]
		for h := range heads {
			var s T
			for j := h * d; j < (h+1)*d; j++ {
				s += T(w[j] * wide[T](x[j]))
			}
			g.Out[k*heads+h] = s
		}
	}
}

func halfRowsScalar[T Float](z []T, x []BFloat16, stride int, base int32, index []int32, w int) {
	for k, i := range index {
		to, from := z[k*w:][:w], x[int(i-base)*stride:][:w]
		for j, v := range from {
			to[j] = wide[T](v)
		}
	}
}

func narrowScalar[T Float](z []BFloat16, x []T) {
	x = x[:len(z)]
	for j, v := range x {
		z[j] = dtypes.ToBFloat16(float32(v))
	}
}

// Widen: z[j] = x[j], for j < len(z)
func (o *Ops[T]) Widen(z []T, x []BFloat16) { o.HalfRows(z, x, len(z), 0, firstRow, len(z)) }

// firstRow is the index of the only row.
var firstRow = []int32{0}
