package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// withHub is a matrix of n rows and m columns with fewer than most entries in a
// row, but for row 17, which has hub entries.
func withHub(rng *rand.Rand, n, m, most, hub int) CSR {
	a := CSR{Ptr: make([]int64, n+1)}
	for i := range n {
		degree := rng.IntN(most)
		if i == 17 {
			degree = hub
		}
		for range degree {
			a.Col = append(a.Col, int32(rng.IntN(m)))
		}
		slices.Sort(a.Col[a.Ptr[i]:])
		a.Ptr[i+1] = int64(len(a.Col))
	}
	return a
}

// first is the first part of group g.
func first(after []int, g int) int {
	if g == 0 {
		return 0
	}
	return after[g-1]
}

// Parts of a product that are added to rows, or written over them, give the bits
// of the whole product and an addition, also of hub rows.
func TestSpMMAccumulate(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, threads := range []int{1, 3} {
		for _, width := range []int{1, 47, 256} {
			const n, m = 300, 200
			a := withHub(rng, n, m, 12, 20000)
			x, scale, before := make([]float32, m*width), make([]float32, m), make([]float32, n*width)
			for _, v := range [][]float32{x, scale, before} {
				for i := range v {
					v[i] = rng.Float32() - 0.5
				}
			}
			kept := make([]uint8, n)
			for i := range kept {
				kept[i] = uint8(rng.IntN(2))
			}
			p := NewPool(threads)
			want := make([]float32, n*width)
			SpMM(p, want, productOf(x, width, a, nil, 1, scale))
			for i, k := range kept {
				for j := i * width; k == 1 && j < (i+1)*width; j++ {
					want[j] = before[j] + want[j]
				}
			}
			got := slices.Clone(before)
			for _, ends := range [][]int{{n}, {0, 100, 100, 250, n}} {
				copy(got, before)
				o := SpMMAccumulate(p, got, productOf(x, width, a, nil, 1, scale), kept, 7, ends...)
				if o.Parts < 1 || o.Parts > 7 || width == 256 && o.Parts < 2 || o.After[len(ends)-1] != o.Parts {
					t.Fatalf("%d parts, after groups %d", o.Parts, o.After)
				}
				for g, end := range ends {
					for part := first(o.After, g); part < o.After[g]; part++ {
						o.Run(part)
					}
					if !slices.Equal(got[:end*width], want[:end*width]) || !slices.Equal(got[end*width:], before[end*width:]) {
						t.Errorf("%d threads, width %d, group %d of %d: other bits", threads, width, g, ends)
					}
				}
			}
			for i := range got {
				got[i] = 1
			}
			ClearRows(p, got, width, []int32{3, 5})
			if got[3*width] != 0 || got[6*width-1] != 0 || got[5*width-1] != 1 || got[6*width] != 1 {
				t.Error("other rows were cleared than asked for")
			}
		}
	}
}
