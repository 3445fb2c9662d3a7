package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOffsets: a matrix with 32-bit pointers gives the bits of one with 64-bit
// pointers, in every kernel that reads pointers, with an order and without.
func TestOffsets(t *testing.T) {
	const n, width, heads = 700, 24, 3
	rng := rand.New(rand.NewPCG(8, 9))
	long := benchGraph(&testing.B{}, n, 9)
	for i := n / 2; i <= n; i++ { // the last slots are the hub's: row n-1
		long.Ptr[i] = min(long.Ptr[i], int64(len(long.Col)/2))
	}
	long.Ptr[n] = int64(len(long.Col))
	slices.Sort(long.Col[long.Ptr[n-1]:])
	short := CSR{Col: long.Col, Ptr32: narrow(long.Ptr)}
	if short.Rows() != n {
		t.Fatalf("%d rows", short.Rows())
	}
	x, g, w := make([]float32, n*width), make([]float32, n*width), make([]float32, len(long.Col)*heads)
	for _, s := range [][]float32{x, g, w} {
		for i := range s {
			s[i] = rng.Float32() - 0.5
		}
	}
	for _, ordered := range []bool{false, true} {
		if ordered {
			rows, before := make([]int32, n), make([]int64, n+1)
			for place, i := range rng.Perm(n) {
				rows[place] = int32(i)
				before[place+1] = before[place] + long.Ptr[i+1] - long.Ptr[i]
			}
			long.Order = Order{Rows: rows, Before: before}
			short.Order = Order{Rows: rows, Before32: narrow(before)}
		}
		for _, threads := range []int{1, 3} {
			p := NewPool(threads)
			results := [2][][]float32{}
			for k, a := range []CSR{long, short} {
				y, z, dw := make([]float32, n*width), make([]float32, n*width), make([]float32, len(w))
				SpMM(p, y, productOf(x, width, a, w, heads, nil))
				cursor := slices.Clone(long.Ptr[:n])
				SpMMWindow(p, z, productOf(x[:n/3*width], width, a, w, heads, nil), Window{&Cursor{Slot: cursor}, 0, n / 3, true})
				SpMMWindow(p, z, productOf(x[n/3*width:], width, a, w, heads, nil), Window{&Cursor{Slot: cursor}, n / 3, n, false})
				SDDMM(p, dw, g, productOf(x, width, a, nil, heads, nil))
				results[k] = [][]float32{y, z, dw}
			}
			for i := range results[0] {
				if !slices.Equal(results[0][i], results[1][i]) {
					t.Fatalf("ordered %v, %d threads: kernel %d gives other bits", ordered, threads, i)
				}
			}
		}
	}
}

func narrow(ptr []int64) []int32 {
	short := make([]int32, len(ptr))
	for i, v := range ptr {
		short[i] = int32(v)
	}
	return short
}
