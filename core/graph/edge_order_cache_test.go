package graph

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"sar/core/mem"
)

// TestKeepOrder holds an edge order that was kept in part and derived against
// the one that was made at once, parallel edges included.
func TestKeepOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	start := mem.Total().Live
	starts := []int64{0, 50, 90}
	book, err := HomogeneousBook(starts)
	if err != nil {
		t.Fatal(err)
	}
	const edges = 3000 // of 90 x 50 pairs: some are there twice
	type pair struct{ src, dst int64 }
	given := make([]pair, edges)
	for i := range given {
		given[i] = pair{rng.Int64N(90), rng.Int64N(50)}
	}
	by := func(a, b func(p pair) int64) []pair {
		s := slices.Clone(given)
		slices.SortFunc(s, func(x, y pair) int {
			if a(x) != a(y) {
				return int(a(x) - a(y))
			}
			return int(b(x) - b(y))
		})
		return s
	}
	src, dst := func(p pair) int64 { return p.src }, func(p pair) int64 { return p.dst }
	for name, c := range map[string]struct {
		edges []pair
		kept  orderCache
		bytes int64 // an edge
	}{
		"any":            {given, cacheRowEdge, 4},
		"by destination": {by(dst, src), cacheIsCSR, 0},
		"by source":      {by(src, dst), cacheIsCSC, 0},
		"none":           {nil, cacheIsCSR, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var u, v []int64
			for _, p := range c.edges {
				u, v = append(u, p.src), append(v, p.dst)
			}
			s, err := FromEdges(starts, 0, Ends{u, v})
			if err != nil {
				t.Fatal(err)
			}
			build := func(opts BuildOptions) *Structure {
				rels, err := Build(book, 0, s, opts)
				if err != nil {
					t.Fatal(err)
				}
				return rels[0]
			}
			want, got, none := build(BuildOptions{EdgeOrder: true}), build(BuildOptions{KeepOrder: true, Threads: 2}),
				build(BuildOptions{})
			if got.cache != c.kept || got.HasEdgeOrder() {
				t.Fatalf("kept is %d, want %d; ordered %v", got.cache, c.kept, got.HasEdgeOrder())
			}
			pages := int64(len(got.RowEdge.Data)) * 4
			if pages != c.bytes*int64(len(c.edges)) || got.ColEdge.Bytes() != 0 {
				t.Fatalf("%d bytes for the order of %d edges, and %d by columns", pages, len(c.edges), got.ColEdge.Bytes())
			}
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if err := got.EdgeOrder(); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if !got.HasEdgeOrder() || !slices.Equal(got.RowEdge.Data, want.RowEdge.Data) ||
				!slices.Equal(got.ColEdge.Data, want.ColEdge.Data) {
				t.Fatal("the derived order is another one")
			}
			// A block derives what its parent kept: it cannot ask later.
			blocks := [2]*Structure{}
			sources := make([]int32, got.NumSrc)
			for j := range sources {
				sources[j] = int32(j)
			}
			parents := []*Structure{want, build(BuildOptions{KeepOrder: true})}
			for i, parent := range parents {
				d, err := Induce(parent, []int32{3, 7, 20})
				if err != nil {
					t.Fatal(err)
				}
				if blocks[i], err = d.Structure(sources, 1); err != nil {
					t.Fatal(err)
				}
				d.Free()
			}
			if a, b := blocks[0], blocks[1]; !b.HasEdgeOrder() || !slices.Equal(a.ParentEdge.Data, b.ParentEdge.Data) ||
				!slices.Equal(a.RowEdge.Data, b.RowEdge.Data) {
				t.Fatal("the order of a block is another one")
			}
			for _, r := range append(parents, got, none, blocks[0], blocks[1]) {
				r.Free()
			}
			s.Free()
			if live := mem.Total().Live; live != start {
				t.Fatalf("%d bytes left", live-start)
			}
		})
	}
}
