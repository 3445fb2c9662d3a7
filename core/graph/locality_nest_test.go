package graph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/mem"
)

// nested is a graph of blocks of outer rows, which are blocks of inner rows, under
// shuffled numbers. Of a row's degree in-edges about in of 10 come from its inner
// block, about out from its outer one, the others from anywhere.
func nested(blocks, outer, inner, degree, in, out int) (ptr []int32, col, name []int32) {
	rng := rand.New(rand.NewPCG(5, 6))
	n := blocks * outer
	name = make([]int32, n)
	for place, i := range rng.Perm(n) {
		name[i] = int32(place)
	}
	at := make([]int32, n)
	for i, k := range name {
		at[k] = int32(i)
	}
	ptr, col = make([]int32, n+1), make([]int32, 0, n*degree)
	for k, i := range at {
		for range degree {
			size := n
			if draw := rng.IntN(10); draw < in {
				size = inner
			} else if draw < in+out {
				size = outer
			}
			first := int(i) / size * size
			col = append(col, name[first+rng.IntN(min(size, n-first))])
		}
		slices.Sort(col[k*degree:])
		ptr[k+1] = int32(len(col))
	}
	return ptr, col, at
}

// misses is the share of slots whose source row is not among the rows last read,
// as many as a cache holds, when rows are computed in an order (nil: ascending).
func misses(ptr, col, order []int32, cache int) float64 {
	n := int32(len(ptr) - 1)
	// A ring through the rows that are there, the one read last behind n.
	next, prev, there := make([]int32, n+1), make([]int32, n+1), make([]bool, n)
	next[n], prev[n] = n, n
	missed, held := 0, 0
	for place := range n {
		i := place
		if order != nil {
			i = order[place]
		}
		for _, j := range col[ptr[i]:ptr[i+1]] {
			if !there[j] {
				missed++
				there[j] = true
				if held++; held > cache {
					oldest := prev[n]
					there[oldest] = false
					next[prev[oldest]], prev[n] = n, prev[oldest]
				}
			} else {
				next[prev[j]], prev[next[j]] = next[j], prev[j]
			}
			next[j], prev[j] = next[n], n
			prev[next[n]], next[n] = j, j
		}
	}
	return float64(missed) / float64(len(col))
}

// TestLocalityFar has communities larger than a core's cache, alone or made of
// small ones, in graphs so large that the last-level cache counts.
func TestLocalityFar(t *testing.T) {
	if testing.Short() {
		t.Skip("orders 2 M edges, one thread at a time")
	}
	for _, c := range []struct {
		name         string
		outer, inner int
		in, out      int
		near, far    float64 // misses of 1500 and 16,000 rows at most
	}{
		// Where rows come at random, both are 0.9 to 1.
		{"large communities", 12_000, 12_000, 8, 0, 0.96, 0.36},
		{"large ones of small ones", 12_000, 500, 5, 3, 0.65, 0.36},
		{"small communities", 500, 500, 8, 0, 0.30, 0.28},
	} {
		ptr, col, at := nested(144_000/c.outer, c.outer, c.inner, 15, c.in, c.out)
		before := mem.Stats()[mem.Scratch].Live
		order, err := Locality(ptr, col)
		if err != nil {
			t.Fatal(err)
		}
		if left := mem.Stats()[mem.Scratch].Live - before; left != 0 {
			t.Errorf("%s: %d bytes of scratch are left", c.name, left)
		}
		if len(order.Data) != len(at) {
			t.Fatalf("%s: an order of %d rows, want %d", c.name, len(order.Data), len(at))
		}
		seen := make([]bool, len(at))
		for _, i := range order.Data {
			if seen[i] {
				t.Fatalf("%s: row %d comes twice", c.name, i)
			}
			seen[i] = true
		}
		near, far := misses(ptr, col, order.Data, 1500), misses(ptr, col, order.Data, 16_000)
		t.Logf("%s: misses %.3f and %.3f", c.name, near, far)
		if near > c.near || far > c.far {
			t.Errorf("%s: %.3f of slots miss 1500 rows and %.3f miss 16,000, want at most %.2f and %.2f", c.name, near, far,
				c.near, c.far)
		}
		again, err := Locality(ptr, col)
		if err != nil || !slices.Equal(again.Data, order.Data) {
			t.Errorf("%s: another order the second time, %v", c.name, err)
		}
		again.Free()
		order.Free()
	}
}

func TestNoFarOrderAtRandom(t *testing.T) {
	ptr, col, _ := nested(1, 144_000, 144_000, 15, 0, 0)
	order, err := Locality(ptr, col)
	if err != nil || order.Data != nil {
		t.Errorf("an order of %d rows, %v", len(order.Data), err)
	}
	order.Free()
}

// TestFarLoneRows has rows without edges, also as the last ones, and rows that
// read columns beyond the rows alone.
func TestFarLoneRows(t *testing.T) {
	ptr, col, _ := nested(12, 12_000, 500, 15, 5, 3)
	n := len(ptr) - 1
	for range 1000 {
		ptr = append(ptr, ptr[len(ptr)-1])
	}
	for range 1000 {
		col = append(col, int32(n+5000))
		ptr = append(ptr, int32(len(col)))
	}
	order, err := Locality(ptr, col)
	if err != nil {
		t.Fatal(err)
	}
	defer order.Free()
	sorted := slices.Sorted(slices.Values(order.Data))
	for i, row := range sorted {
		if int(row) != i {
			t.Fatalf("row %d is missing", i)
		}
	}
	if len(sorted) != n+2000 {
		t.Fatalf("%d rows in order, want %d", len(sorted), n+2000)
	}
}

// BenchmarkLocality finds an order for a million rows of 15 edges: by clusters for
// a core's cache alone, and by clusters of clusters. It also tells the share of
// slots that miss caches of some numbers of rows.
func BenchmarkLocality(b *testing.B) {
	for _, g := range []struct {
		name    string
		outer   int
		inner   int
		in, out int
	}{
		{"large", 15_000, 15_000, 8, 0},
		{"nested", 15_000, 600, 5, 3},
		{"small", 600, 600, 8, 0},
		{"random", 1_000_000, 1_000_000, 0, 0},
	} {
		ptr, col, _ := nested(1_000_000/g.outer, g.outer, g.inner, 15, g.in, g.out)
		for _, far := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/far=%v", g.name, far), func(b *testing.B) {
				var order mem.Array[int32]
				for b.Loop() {
					order.Free()
					var err error
					if order, err = locality(ptr, col, far); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(col)), "ns/edge")
				for _, cache := range []int{1500, 16_000, 60_000} {
					b.ReportMetric(misses(ptr, col, order.Data, cache), fmt.Sprintf("misses-%d", cache))
				}
				order.Free()
			})
		}
	}
}
