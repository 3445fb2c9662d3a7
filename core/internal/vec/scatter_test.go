package vec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestScatter compares to the bit with plain Go: every width and number of heads, rows that
// occur several times, and nothing touched beside them.
func TestScatter(t *testing.T) {
	inTables(t, scatters[float32], scatters[float64])
}

func scatters[T Float](t *testing.T, ops *Ops[T]) {
	rng := rand.New(rand.NewPCG(9, 1))
	draw := normals[T](rng)
	reference := scalarOps[T]()
	const rows = 5
	for heads := 1; heads < 10; heads++ {
		for d := range 4*HeadLanes[T]() + 1 {
			for _, n := range []int{0, 1, 9} {
				width := heads * d
				before := draw(rows*(width+3) + 2*guard)
				s := Scatter[T]{Stride: width + 3, X: draw(width), C: draw(n * (heads + 2)), Heads: heads, StrideC: heads + 2,
					Alpha: 0.2, A: draw(width), W: draw(rows * (width + 2)), StrideW: width + 2}
				for range n {
					s.Row = append(s.Row, rng.Int32N(rows))
				}
				check := func(what string, loop func(o *Ops[T], s *Scatter[T])) {
					got, want := slices.Clone(before), slices.Clone(before)
					s.Y = got[guard:]
					loop(ops, &s)
					s.Y = want[guard:]
					loop(&reference, &s)
					if !slices.Equal(got, want) {
						t.Fatalf("%s, %d heads of %d, %d rows: not what plain Go makes", what, heads, d, n)
					}
				}
				check("ScatterSum", func(o *Ops[T], s *Scatter[T]) { o.ScatterSum(s) })
				if d%HeadLanes[T]() == 0 {
					check("ScatterSlopes", func(o *Ops[T], s *Scatter[T]) { o.ScatterSlopes(s) })
				}
			}
		}
	}
}
