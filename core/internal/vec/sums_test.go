package vec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGatherSums holds sums of many rows at once, and of one, against the loop that
// vec.go states, to the bit: every number of registers, runs of no, one and many
// slots, and that nothing beside the rows is written.
func TestGatherSums(t *testing.T) {
	inTables(t, gatherSums[float32], gatherSums[float64])
}

func gatherSums[T Float](t *testing.T, ops *Ops[T]) {
	const sources, base = 11, 100
	rng := rand.New(rand.NewPCG(7, 1))
	draw := normals[T](rng)
	slots := []int64{0, 1, 2, 3, 0, 30}
	widths := []int{255, 256, 257, 288, 300, 512, 700}
	for d := range 160 {
		widths = append(widths, d)
	}
	for _, d := range widths {
		pitch := d + rng.IntN(4)
		for form := range 6 {
			g := Gather[T]{X: draw(sources * pitch), Stride: pitch, Base: base, D: d, First: form&1 == 0}
			g.Half = halves(g.X)
			var runs []Run
			var total int64 // coefficients lie in an order of their own, the last row's first
			for _, n := range slots {
				total += n
			}
			for _, place := range rng.Perm(len(slots)) { // rows in no order, their slots neither
				from := int64(len(g.Col))
				for range slots[place] {
					g.Col = append(g.Col, base+rng.Int32N(sources))
				}
				runs = append(runs, Run{Y: guard + place*(d+guard), From: from, To: int64(len(g.Col)),
					At: total - int64(len(g.Col))})
			}
			rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
			switch form >> 1 {
			case 1:
				g.C = draw(len(g.Col))
			case 2:
				g.Scale = draw(sources)
			}
			before := draw(guard + len(slots)*(d+guard))
			want := slices.Clone(before)
			for _, r := range runs {
				y := want[r.Y:][:d]
				if g.First {
					clear(y)
				}
				for k := r.From; k < r.To; k++ {
					x := g.X[int(g.Col[k]-base)*pitch:][:d]
					for j := range y {
						switch {
						case g.Scale != nil:
							y[j] += T(g.Scale[g.Col[k]-base] * x[j])
						case g.C != nil:
							y[j] += T(g.C[r.At+k-r.From] * x[j])
						default:
							y[j] += x[j]
						}
					}
				}
			}
			for _, sum := range []struct {
				name string
				all  func(g *Gather[T], runs []Run)
				one  func(g *Gather[T])
			}{{"GatherSum", ops.GatherSums, ops.GatherSum}, {"HalfSum", ops.HalfSums, ops.HalfSum}} {
				g.Y = slices.Clone(before)
				sum.all(&g, runs)
				if !slices.Equal(g.Y, want) {
					t.Fatalf("%ss, %d columns, coefficients %d, first %v: not the sums in order", sum.name, d, form>>1, g.First)
				}
				all := slices.Clone(before)
				for _, r := range runs {
					one := g
					one.Y, one.Col = all[r.Y:][:d], g.Col[r.From:r.To]
					if g.C != nil {
						one.C = g.C[r.At:][:r.To-r.From]
					}
					sum.one(&one)
				}
				if !slices.Equal(all, want) {
					t.Fatalf("%s, %d columns, coefficients %d, first %v: other bits than many at once", sum.name, d, form>>1, g.First)
				}
			}
		}
		x := draw(sources * pitch)
		half, index := halves(x), []int32{base + 3, base, base + sources - 1, base + 3}
		got, want := draw(len(index)*d+2*guard), make([]T, 0, len(index)*d)
		before := slices.Clone(got)
		for _, i := range index {
			want = append(want, x[int(i-base)*pitch:][:d]...)
		}
		ops.HalfRows(got[guard:], half, pitch, base, index, d)
		same(t, "HalfRows", got, before, want, func(int) float64 { return 0 })
	}
}
