package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// some is how many of n cases run: all, or a third with -short.
func some(n int) int {
	if testing.Short() {
		return (n + 2) / 3
	}
	return n
}

// TestThreads compares threads on a matrix whose work is many tasks and whose
// hub rows are divided.
func TestThreads(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	m := randomMatrix(rng, 2000, 500, 3, 90_000, false)
	everyPath(t, func(t *testing.T) {
		for _, width := range []int{40, 1, 100}[:some(3)] {
			x := randoms[float32](rng, m.cols*width)
			w := randoms[float32](rng, len(m.Col))
			for _, weights := range [][]float32{nil, w} {
				var want, wantDots []float32
				for _, threads := range []int{1, 2, 5} {
					p := NewPool(threads)
					what := fmt.Sprintf("width %d, %d threads", width, threads)
					y := guardedOf[float32](m.Rows() * width)
					SpMM(p, y.s, productOf(x, width, m.CSR, weights, 1, nil))
					y.check(t, what)
					dots := guardedOf[float32](len(m.Col))
					SDDMM(p, dots.s, y.s, productOf(x, width, m.CSR, nil, 1, nil))
					dots.check(t, what)
					if want == nil {
						want, wantDots = y.s, dots.s
					}
					sameBits(t, what, y.s, want)
					sameBits(t, what, dots.s, wantDots)
					cursor := append([]int64{}, m.Ptr[:m.Rows()]...)
					SpMMWindow(p, y.s, productOf(x[:200*width], width, m.CSR, weights, 1, nil),
						Window{&Cursor{Slot: cursor}, 0, 200, true})
					SpMMWindow(p, y.s, productOf(x[200*width:], width, m.CSR, weights, 1, nil),
						Window{&Cursor{Slot: cursor}, 200, int32(m.cols), false})
					sameBits(t, what+" window", y.s, want)
					clear(y.s)
					SpMMScatter(p, y.s, productOf(x, width, CSR{}, weights, 1, nil),
						Columns{m.colPtr, m.rows, m.colEdge, 0, int32(m.cols)})
					sameBits(t, what+" scatter", y.s, want)
				}
			}
		}
	})
}

func TestHubIsDivided(t *testing.T) {
	ptr := []int64{0, 10, 1_000_010, 1_000_020, 1_000_020}
	rows, hubs := plan(&CSR{Ptr: ptr}, 0, 4, 256, 4, 4)
	if len(hubs) < 4 {
		t.Fatalf("a row of a million slots makes %d parts", len(hubs))
	}
	covered := make([]int, 256)
	for _, q := range hubs {
		if q.p0 != 1 || q.p1 != 2 {
			t.Fatalf("hub part %+v is not of row 1", q)
		}
		for c := q.c0; c < q.c1; c++ {
			covered[c]++
		}
	}
	for c, v := range covered {
		if v != 1 {
			t.Fatalf("column %d is computed %d times", c, v)
		}
	}
	seen := make([]int, 4)
	for _, q := range rows {
		for i := q.p0; i < q.p1; i++ {
			seen[i]++
		}
	}
	if fmt.Sprint(seen) != "[1 0 1 1]" {
		t.Fatalf("rows are computed %v times", seen)
	}
}

// TestPlanCovers checks on random matrices that every row and column is
// computed once.
func TestPlanCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		n, width := 1+rng.IntN(300), 1+rng.IntN(300)
		ptr := make([]int64, n+1)
		for i := range n {
			deg := rng.Int64N(100)
			if rng.IntN(20) == 0 {
				deg = rng.Int64N(3_000_000)
			}
			ptr[i+1] = ptr[i] + deg
		}
		r0 := rng.IntN(n)
		r1 := r0 + rng.IntN(n-r0+1)
		rows, hubs := plan(&CSR{Ptr: ptr}, r0, r1, width, 4, 1+rng.IntN(8))
		seen := make([]int, n)
		for _, q := range append(rows, hubs...) {
			for i := q.p0; i < q.p1; i++ {
				seen[i] += q.c1 - q.c0
			}
		}
		for i, v := range seen {
			want := 0
			if i >= r0 && i < r1 {
				want = width
			}
			if v != want {
				t.Fatalf("rows [%d, %d): row %d has %d columns computed, want %d", r0, r1, i, v, want)
			}
		}
	}
}
