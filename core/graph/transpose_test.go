package graph

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTransposeDoesNotDependOnThreads(t *testing.T) {
	const rows, cols, edges = 1000, 700, 300_000
	rng := rand.New(rand.NewPCG(3, 4))
	ptr, back := make([]int32, rows+1), make([]int32, cols+1)
	idx, val := make([]int32, edges), make([]int32, edges)
	for k := range idx {
		ptr[min(rng.IntN(rows), rng.IntN(rows), rng.IntN(rows))+1]++
		idx[k], val[k] = int32(rng.IntN(cols)), int32(k)
		back[idx[k]+1]++
	}
	for i := range rows {
		ptr[i+1] += ptr[i]
	}
	for j := range cols {
		back[j+1] += back[j]
	}
	var want []int32
	for _, threads := range []int{1, 2, 3, 7} {
		out := compressed{ptr: back, idx: make([]int32, edges), val: make([]int32, edges)}
		if err := transpose(compressed{ptr: ptr, idx: idx, val: val}, out, threads); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = out.val
			for j := range cols {
				for k := back[j] + 1; k < back[j+1]; k++ {
					if out.val[k] <= out.val[k-1] {
						t.Fatal("not stable")
					}
				}
				for k := back[j]; k < back[j+1]; k++ {
					if e := out.val[k]; int(idx[e]) != j || ptr[out.idx[k]] > e || ptr[out.idx[k]+1] <= e {
						t.Fatalf("slot %d is edge %d of row %d", k, e, out.idx[k])
					}
				}
			}
		} else if !slices.Equal(want, out.val) {
			t.Fatalf("%d threads give another order", threads)
		}
	}
}
