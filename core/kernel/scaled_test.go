package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The fused products, whole and by windows, have the bits of the product and the scaling, also where a
// hub row is divided by columns.
func TestSpMMScaledIsSpMMThenScaleRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n, width = 300, 96
	a := withHub(rng, n, n, 9, 200000)
	x, post := make([]float32, n*width), make([]float32, n)
	for i := range x {
		x[i] = rng.Float32() - 0.5
	}
	for i := range post {
		post[i] = 1 / (1 + rng.Float32())
	}
	for _, threads := range []int{1, 3} {
		p := NewPool(threads)
		want, got := make([]float32, n*width), make([]float32, n*width)
		SpMM(p, want, productOf(x, width, a, nil, 1, nil))
		ScaleRows(p, want, width, post)
		check := func(how string) {
			t.Helper()
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s, %d threads: y[%d] = %v, want %v", how, threads, i, got[i], want[i])
				}
			}
		}
		SpMM(p, got, scaled(productOf(x, width, a, nil, 1, nil), post))
		check("whole")
		for _, kept := range []bool{false, true} {
			cursor := &Cursor{Slot: slices.Clone(a.Ptr[:n])}
			if kept {
				cursor.Next = make([]int32, n)
			}
			for _, w := range [][2]int{{0, 100}, {100, 101}, {101, n}} {
				SpMMWindow(p, got, scaled(productOf(x[w[0]*width:w[1]*width], width, a, nil, 1, nil), post),
					Window{cursor, int32(w[0]), int32(w[1]), w[0] == 0})
			}
			check("windows")
		}
	}
}
