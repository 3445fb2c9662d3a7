package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHalfHeads compares loops over heads of rows in bfloat16 with those of the same rows as numbers: sums to the bit,
// products within the rounding of their sums. Of each number of registers and of rows that a tile may be left with, and
// heads wider than a tile. NaN and infinite numbers of rows that are not summed come in nowhere.
func TestHalfHeads(t *testing.T) {
	inTables(t, func(t *testing.T, ops *Ops[float32]) { halfHeads(t, ops, 0x1p-23) },
		func(t *testing.T, ops *Ops[float64]) { halfHeads(t, ops, 0x1p-52) })
}

func halfHeads[T Float](t *testing.T, ops *Ops[T], eps float64) {
	const rows, base = 9, 100
	rng := rand.New(rand.NewPCG(12, 1))
	draw := normals[T](rng)
	reference := scalarOps[T]()
	widths := []int{1, 7, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 100, 127, 128, 129, 150, 280}
	for _, heads := range []int{1, 2, 3, 4, 8} {
		for _, d := range widths {
			width := heads * d
			stride := width + rng.IntN(3)
			for n := range 10 {
				what := fmt.Sprintf("%d heads of %d, %d rows", heads, d, n)
				x := draw(rows * stride)
				g := Gather[T]{X: x, Half: halves(x), Stride: stride, Base: base, C: draw(n * heads), First: n%2 == 0}
				for range n {
					g.Col = append(g.Col, base+rng.Int32N(rows))
				}
				before := draw(width + 2*guard)
				inner := func(z []T) []T { return z[guard : guard+width : guard+width] }
				sums := slices.Clone(inner(before))
				g.Y = sums
				reference.GatherSumHeads(&g, heads)
				got := slices.Clone(before)
				g.Y, g.Out = inner(got), make([]T, n/2) // what another loop has left
				ops.HalfSumHeads(&g, heads)
				same(t, "HalfSumHeads of "+what, got, before, sums, func(int) float64 { return 0 })
				if d < HeadLanes[T]() {
					continue
				}
				w, out, dots := draw(width), draw(n*heads+2*guard), make([]T, n*heads)
				g.Y, g.Out = w, dots
				reference.GatherDotHeads(&g, heads)
				near := func(i int) float64 { // a product is rounded, and each of the additions
					var total float64
					row := x[int(g.Col[i/heads]-base)*stride:][i%heads*d:][:d]
					for j, v := range row {
						total += math.Abs(float64(v) * float64(w[i%heads*d+j]))
					}
					return eps * total * float64(d)
				}
				found := slices.Clone(out)
				g.Out = found[guard : guard+n*heads : guard+n*heads]
				c := g.C
				g.C = c[:n/2]
				ops.HalfDotHeads(&g, heads)
				g.C = c
				same(t, "HalfDotHeads of "+what, found, out, dots, near)
				sums = slices.Clone(inner(before))
				g.Y, g.Out, g.First = sums, make([]T, n*heads), false
				reference.GatherSumHeads(&g, heads)
				both := slices.Clone(out)
				got = slices.Clone(before)
				g.Y, g.Out = inner(got), both[guard:guard+n*heads]
				ops.HalfDotSums(&g, w, heads)
				same(t, "sums of HalfDotSums of "+what, got, before, sums, func(int) float64 { return 0 })
				if !slices.Equal(both, found) {
					t.Fatalf("HalfDotSums of %s: other products than HalfDotHeads", what)
				}
			}
		}
	}
}
