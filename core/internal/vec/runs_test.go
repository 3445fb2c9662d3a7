package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRuns compares to the bit with plain Go, NaN and infinities among the numbers.
func TestRuns(t *testing.T) {
	inTables(t, runs[float32], runs[float64])
}

func runs[T Float](t *testing.T, ops *Ops[T]) {
	rng := rand.New(rand.NewPCG(10, 1))
	draw := func(n int, special ...float64) []T {
		x := room[T](n)
		for i := range x {
			x[i] = T(rng.NormFloat64())
			if len(special) > 0 && rng.IntN(20) == 0 {
				x[i] = T(special[rng.IntN(len(special))])
			}
		}
		return x
	}
	exact := func(int) float64 { return 0 }
	reference := scalarOps[T]()
	for w := range 18 {
		for n := range 40 {
			for name, f := range map[string]func(o *Ops[T], y, x []T){
				"SumRows":  func(o *Ops[T], y, x []T) { o.SumRows(y, x) },
				"MostRows": func(o *Ops[T], y, x []T) { o.MostRows(y, x) },
			} {
				special := []float64{math.Inf(1), math.Inf(-1)}
				if name == "SumRows" {
					special = append(special, math.NaN())
				}
				x, before := draw(n*w, special...), draw(w+2*guard)
				got, want := slices.Clone(before), slices.Clone(before)
				f(ops, got[guard:guard+w], x)
				f(&reference, want[guard:guard+w], x)
				same(t, name, got, before, want[guard:guard+w], exact)
			}
			x, y, before := draw(n*w, math.NaN(), math.Inf(1)), draw(w), draw(n*w+2*guard)
			got, want := slices.Clone(before), make([]T, n*w)
			ops.LessRow(got[guard:guard+n*w], y, x)
			reference.LessRow(want, y, x)
			same(t, "LessRow", got, before, want, exact)
			ops.LessRow(x, y, x)
			for i := range x {
				if x[i] != want[i] && !math.IsNaN(float64(want[i])) {
					t.Fatalf("LessRow in place, width %d: element %d is %v, want %v", w, i, x[i], want[i])
				}
			}
		}
	}
}
