package graph

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/mem"
)

// edge of a test graph, by homogenized ids.
type edge struct {
	src, dst, id int64
	etype        int
}

// world is a random partitioned graph and the naive way to look at it.
type world struct {
	book  *Book
	edges []edge
}

// testSource lists the nodes and edges of one worker in a shuffled order.
type testSource struct {
	ids   []int64
	inner int
	batch []EdgeBatch
	total int64
}

func (s *testSource) Nodes() ([]int64, int, error) { return s.ids, s.inner, nil }
func (s *testSource) NumEdges() int64              { return s.total }
func (s *testSource) Edges(yield func(EdgeBatch) error) error {
	for _, b := range s.batch {
		if err := yield(b); err != nil {
			return err
		}
	}
	return nil
}

type shape struct {
	parts, ntypes, etypes, nodes, edges int
	empty                               int  // a partition without nodes, or -1
	gaps                                bool // edge ids far apart
	local                               bool // no edge crosses partitions
}

func randomWorld(t *testing.T, rng *rand.Rand, s shape) *world {
	t.Helper()
	b := &Book{Parts: s.parts}
	for i := range s.ntypes {
		b.NodeTypes = append(b.NodeTypes, fmt.Sprintf("n%d", i))
		b.NodeStart = append(b.NodeStart, make([]int64, s.parts))
		b.NodeEnd = append(b.NodeEnd, make([]int64, s.parts))
	}
	var at int64
	for p := range s.parts {
		for i := range s.ntypes {
			n := int64(0)
			if p != s.empty {
				n = int64(rng.IntN(2*s.nodes/s.parts/s.ntypes + 2))
			}
			b.NodeStart[i][p], b.NodeEnd[i][p] = at, at+n
			at += n
		}
	}
	for i := range s.etypes {
		b.EdgeTypes = append(b.EdgeTypes, EdgeType{b.NodeTypes[rng.IntN(s.ntypes)], fmt.Sprintf("e%d", i),
			b.NodeTypes[rng.IntN(s.ntypes)]})
		b.EdgeStart = append(b.EdgeStart, make([]int64, s.parts))
		b.EdgeEnd = append(b.EdgeEnd, make([]int64, s.parts))
	}
	if err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	w := &world{book: b}
	pick := func(ntype string, part int) (int64, bool) {
		nt, _ := b.NodeType(ntype)
		if part < 0 {
			part = rng.IntN(s.parts)
		}
		n := b.NumNodes(nt, part)
		if n == 0 {
			return 0, false
		}
		return b.NodeStart[nt][part] + rng.Int64N((n+1)/2)*2%n, true // odd ones stay isolated, mostly
	}
	id := int64(0)
	for range s.edges {
		et := rng.IntN(s.etypes)
		p := -1
		if s.local {
			p = rng.IntN(s.parts)
		}
		u, ok1 := pick(b.EdgeTypes[et].Src, p)
		v, ok2 := pick(b.EdgeTypes[et].Dst, p)
		if !ok1 || !ok2 {
			continue
		}
		copies := 1
		if rng.IntN(4) == 0 {
			copies += rng.IntN(3) // parallel edges
		}
		if rng.IntN(8) == 0 && b.EdgeTypes[et].Src == b.EdgeTypes[et].Dst {
			u = v // self loop
		}
		for range copies {
			w.edges = append(w.edges, edge{u, v, id, et})
			if id++; s.gaps {
				id += rng.Int64N(1 << 40)
			}
		}
	}
	return w
}

func (w *world) part(id int64) int { _, p, _ := w.book.Owner(id); return p }

// own are the in-edges of a worker's nodes of one type, in ascending id.
func (w *world) own(rank, etype int) []edge {
	var out []edge
	for _, e := range w.edges {
		if e.etype == etype && w.part(e.dst) == rank {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b edge) int { return cmp.Compare(a.id, b.id) })
	return out
}

func (w *world) source(rng *rand.Rand, rank int, sorted bool) *testSource {
	s := &testSource{}
	b := w.book
	for t := range b.NodeTypes {
		for id := b.NodeStart[t][rank]; id < b.NodeEnd[t][rank]; id++ {
			s.ids = append(s.ids, id)
		}
	}
	s.inner = len(s.ids)
	var mine, others []edge
	halo := map[int64]bool{}
	for _, e := range w.edges {
		if w.part(e.dst) == rank {
			mine = append(mine, e)
		} else if w.part(e.src) == rank { // such edges are in DGL's partitions, not as inner edges
			others = append(others, e)
		}
	}
	for _, e := range append(slices.Clone(mine), others...) {
		for _, id := range []int64{e.src, e.dst} {
			if w.part(id) != rank && !halo[id] {
				halo[id] = true
				s.ids = append(s.ids, id)
			}
		}
	}
	rng.Shuffle(s.inner, func(i, j int) { s.ids[i], s.ids[j] = s.ids[j], s.ids[i] })
	rng.Shuffle(len(s.ids)-s.inner, func(i, j int) {
		s.ids[s.inner+i], s.ids[s.inner+j] = s.ids[s.inner+j], s.ids[s.inner+i]
	})
	local := map[int64]int64{}
	for i, id := range s.ids {
		local[id] = int64(i)
	}
	all := append(slices.Clone(mine), others...)
	if sorted {
		slices.SortFunc(all, func(a, b edge) int { return cmp.Compare(a.id, b.id) })
	} else {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	s.total = int64(len(all))
	for len(all) > 0 {
		n := min(len(all), 1+rng.IntN(5000))
		var e EdgeBatch
		for _, x := range all[:n] {
			e.Src = append(e.Src, local[x.src])
			e.Dst = append(e.Dst, local[x.dst])
			e.ID = append(e.ID, x.id)
			if len(b.EdgeTypes) > 1 {
				e.Type = append(e.Type, int32(x.etype))
			}
			inner := uint8(0)
			if w.part(x.dst) == rank {
				inner = 1
			}
			e.Inner = append(e.Inner, inner)
		}
		s.batch = append(s.batch, e)
		all = all[n:]
	}
	return s
}

// check holds a relation against the list of its edges.
func (w *world) check(t *testing.T, r *Structure, rank, etype int) {
	t.Helper()
	edges := w.own(rank, etype)
	b := w.book
	st, _ := b.NodeType(b.EdgeTypes[etype].Src)
	dt, _ := b.NodeType(b.EdgeTypes[etype].Dst)
	if r.Type != b.EdgeTypes[etype] || r.SrcType != st || r.DstType != dt || r.Rank != rank || r.Parts != b.Parts ||
		r.NumSrc != int(b.NumNodes(st, rank)) || r.NumDst != int(b.NumNodes(dt, rank)) || r.NumEdges != int64(len(edges)) {
		t.Fatalf("wrong header: %+v", r)
	}
	// the columns, naively
	var cols []int64
	for id := b.NodeStart[st][rank]; id < b.NodeEnd[st][rank]; id++ {
		cols = append(cols, id)
	}
	if len(r.Halo) != b.Parts {
		t.Fatalf("%d halos for %d parts", len(r.Halo), b.Parts)
	}
	for q := 1; q < b.Parts; q++ {
		peer := (rank - q + b.Parts) % b.Parts
		seen := map[int64]bool{}
		var ids []int64
		for _, e := range edges {
			if w.part(e.src) == peer && !seen[e.src] {
				seen[e.src] = true
				ids = append(ids, e.src)
			}
		}
		slices.Sort(ids)
		h := r.Halo[q]
		if h.Peer != peer || int(h.Begin) != len(cols) || int(h.End) != len(cols)+len(ids) || len(h.Rows.Data) != len(ids) {
			t.Fatalf("halo %d: %d, [%d, %d), %d rows; expected peer %d with %d rows from %d", q, h.Peer, h.Begin, h.End,
				len(h.Rows.Data), peer, len(ids), len(cols))
		}
		// they are in groups, by the price at which they travel, and each group by id
		var have []int64
		begin := int32(0)
		for _, end := range append(h.Leading[:], h.End-h.Begin) {
			group := h.Rows.Data[begin:end]
			if !slices.IsSorted(group) {
				t.Fatalf("halo %d has rows %v in a group", q, group)
			}
			for _, row := range group {
				have = append(have, int64(row)+b.NodeStart[st][peer])
			}
			begin = end
		}
		cols = append(cols, have...)
		if slices.Sort(have); !slices.Equal(have, ids) {
			t.Fatalf("halo %d has nodes %v, expected %v", q, have, ids)
		}
	}
	if r.NumCols() != len(cols) {
		t.Fatalf("%d columns, expected %d", r.NumCols(), len(cols))
	}
	colOf := map[int64]int32{}
	for c, id := range cols {
		colOf[id] = int32(c)
	}
	type slot struct{ outer, inner int32 }
	var csr, csc []slot
	for _, e := range edges {
		row, col := int32(e.dst-b.NodeStart[dt][rank]), colOf[e.src]
		csr = append(csr, slot{row, col})
		csc = append(csc, slot{col, row})
	}
	verify := func(name string, ptr []int32, idx []int32, pos []int32, want []slot) {
		t.Helper()
		byEdge := slices.Clone(want)
		slices.SortFunc(want, func(a, b slot) int {
			return cmp.Or(cmp.Compare(a.outer, b.outer),
				cmp.Compare(a.inner, b.inner))
		})
		if ptr[0] != 0 || int(ptr[len(ptr)-1]) != len(want) || len(idx) != len(want) {
			t.Fatalf("%s: pointers from %d to %d, %d indices for %d edges", name, ptr[0], ptr[len(ptr)-1], len(idx), len(want))
		}
		used := make([]bool, len(want))
		for o := range len(ptr) - 1 {
			for k := ptr[o]; k < ptr[o+1]; k++ {
				if want[k] != (slot{int32(o), idx[k]}) {
					t.Fatalf("%s slot %d is (%d, %d), expected %v", name, k, o, idx[k], want[k])
				}
				if r.HasEdgeOrder() {
					if used[pos[k]] || byEdge[pos[k]] != want[k] {
						t.Fatalf("%s slot %d %v is given to edge %d, which is %v (given before: %v)", name, k, want[k], pos[k],
							byEdge[pos[k]], used[pos[k]])
					}
					used[pos[k]] = true
				}
			}
		}
	}
	verify("CSR", r.RowPtr.Data, r.Col.Data, r.RowEdge.Data, csr)
	verify("CSC", r.ColPtr.Data, r.Row.Data, r.ColEdge.Data, csc)
	if r.HasEdgeOrder() {
		// the n-th slot of a pair in CSR must be the same edge as the n-th in CSC
		pairs := map[slot][]int32{}
		for i := range r.NumDst {
			for k := r.RowPtr.Data[i]; k < r.RowPtr.Data[i+1]; k++ {
				s := slot{int32(i), r.Col.Data[k]}
				pairs[s] = append(pairs[s], r.RowEdge.Data[k])
			}
		}
		for c := range r.NumCols() {
			for k := r.ColPtr.Data[c]; k < r.ColPtr.Data[c+1]; k++ {
				s := slot{r.Row.Data[k], int32(c)}
				if pairs[s][0] != r.ColEdge.Data[k] {
					t.Fatalf("row %d, column %d: edge %d in CSC, %d in CSR", s.outer, c, r.ColEdge.Data[k], pairs[s][0])
				}
				pairs[s] = pairs[s][1:]
			}
		}
	}
	deg, want := make([]int64, r.NumDst), make([]int64, r.NumDst)
	r.InDegrees(deg)
	for _, e := range edges {
		want[e.dst-b.NodeStart[dt][rank]]++
	}
	if !slices.Equal(deg, want) {
		t.Fatalf("in-degrees %v, expected %v", deg, want)
	}
}

func TestBuildAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	start := mem.Total().Live
	for _, parts := range []int{1, 2, 3, 5, 8} {
		for _, s := range []shape{
			{ntypes: 1, etypes: 1, nodes: 60, edges: 300, empty: -1},
			{ntypes: 1, etypes: 1, nodes: 60, edges: 300, empty: parts / 2, gaps: true},
			{ntypes: 1, etypes: 1, nodes: 40, edges: 100, empty: -1, local: true},
			{ntypes: 1, etypes: 1, nodes: 1, edges: 5, empty: -1},
			{ntypes: 1, etypes: 1, nodes: 1, edges: 0, empty: 0},
			{ntypes: 3, etypes: 5, nodes: 120, edges: 600, empty: -1},
			{ntypes: 2, etypes: 4, nodes: 50, edges: 400, empty: parts - 1, gaps: true},
			{ntypes: 1, etypes: 3, nodes: 3000, edges: 6000, empty: -1},
		} {
			s.parts = parts
			w := randomWorld(t, rng, s)
			for rank := range parts {
				for _, sorted := range []bool{true, false} {
					src := w.source(rng, rank, sorted)
					rels, err := Build(w.book, rank, src, BuildOptions{EdgeOrder: sorted, Threads: 1 + rank%3})
					if err != nil {
						t.Fatalf("%+v, rank %d: %v", s, rank, err)
					}
					if len(rels) != s.etypes {
						t.Fatalf("%d relations, expected %d", len(rels), s.etypes)
					}
					for i, r := range rels {
						w.check(t, r, rank, i)
						if !sorted {
							if r.HasEdgeOrder() {
								t.Fatal("edge order was made unasked")
							}
							if err := r.EdgeOrder(); err != nil {
								t.Fatal(err)
							}
						}
						if !r.HasEdgeOrder() {
							t.Fatal("no edge order")
						}
						w.check(t, r, rank, i)
						if got := mem.Stats(); got[mem.Scratch].Live != 0 {
							t.Fatalf("%d bytes of scratch left", got[mem.Scratch].Live)
						}
					}
					var bytes int64
					for _, r := range rels {
						bytes += r.Bytes()
					}
					if live := mem.Total().Live - start; live != bytes {
						t.Fatalf("relations say %d bytes, %d are live", bytes, live)
					}
					for _, r := range rels {
						r.Free()
						r.Free()
					}
					if live := mem.Total().Live; live != start {
						t.Fatalf("%d bytes left after Free", live-start)
					}
				}
			}
		}
	}
}
