package topology

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/kernel"
)

// edge is an edge of the whole graph, by homogenized ids.
type edge struct {
	src, dst int64
	relation int
}

// whole is a graph as one worker would have it, which the naive answers are read off.
type whole struct {
	book  *graph.Book
	edges []edge // ascending by destination's part and relation, as edge ids are
}

// randomWhole draws a graph of two node types and three relations. Worker idle owns nothing;
// -1: there is none such.
func randomWhole(t *testing.T, r *rand.Rand, parts, nodes, edges, idle int) *whole {
	t.Helper()
	b := &graph.Book{Parts: parts, NodeTypes: []string{"a", "b"}, EdgeTypes: []graph.EdgeType{
		{Src: "a", Rel: "x", Dst: "a"}, {Src: "a", Rel: "y", Dst: "b"}, {Src: "b", Rel: "z", Dst: "a"},
	}}
	ranges := func(types int) [][]int64 {
		out := make([][]int64, types)
		for i := range out {
			out[i] = make([]int64, parts)
		}
		return out
	}
	b.NodeStart, b.NodeEnd, b.EdgeStart, b.EdgeEnd = ranges(2), ranges(2), ranges(3), ranges(3)
	var at int64
	for p := range parts {
		for k := range b.NodeTypes {
			n := int64(0)
			if p != idle {
				n = int64(r.IntN(2*nodes/parts + 1))
			}
			b.NodeStart[k][p], b.NodeEnd[k][p] = at, at+n
			at += n
		}
	}
	w := &whole{book: b}
	pick := func(name string) int64 {
		k := slices.Index(b.NodeTypes, name)
		for range 100 {
			if p := r.IntN(parts); b.NumNodes(k, p) > 0 {
				return b.NodeStart[k][p] + r.Int64N(b.NumNodes(k, p))
			}
		}
		return -1
	}
	for range edges {
		k := r.IntN(len(b.EdgeTypes))
		u, v := pick(b.EdgeTypes[k].Src), pick(b.EdgeTypes[k].Dst)
		for range 1 + r.IntN(2) { // some twice
			if u >= 0 && v >= 0 {
				w.edges = append(w.edges, edge{u, v, k})
			}
		}
	}
	if err := b.Finish(); err != nil { // owners of nodes are asked for below
		t.Fatal(err)
	}
	slices.SortStableFunc(w.edges, func(x, y edge) int {
		return cmp.Or(cmp.Compare(w.owner(x.dst), w.owner(y.dst)), cmp.Compare(x.relation, y.relation))
	})
	at = 0
	for p := range parts {
		for k := range b.EdgeTypes {
			n := int64(0)
			for _, e := range w.edges {
				if e.relation == k && w.owner(e.dst) == p {
					n++
				}
			}
			b.EdgeStart[k][p], b.EdgeEnd[k][p] = at, at+n
			at += n
		}
	}
	return w
}

func (w *whole) owner(node int64) int {
	_, p, _ := w.book.Owner(node)
	return p
}

// row is the row of a node at its owner.
func (w *whole) row(node int64) int32 {
	k, p, _ := w.book.Owner(node)
	return int32(node - w.book.NodeStart[k][p])
}

// between are the edges of a relation from sources of p into rows of q.
func (w *whole) between(relation, p, q int) (out []edge) {
	for _, e := range w.edges {
		if e.relation == relation && w.owner(e.src) == p && w.owner(e.dst) == q {
			out = append(out, e)
		}
	}
	return out
}

// part is the edges of one worker, as files give them.
type part struct {
	w     *whole
	rank  int
	nodes []int64
	inner int
}

func (w *whole) part(rank int) *part {
	p := &part{w: w, rank: rank}
	lo, hi := w.book.Nodes(rank)
	for id := lo; id < hi; id++ {
		p.nodes = append(p.nodes, id)
	}
	p.inner = len(p.nodes)
	for _, e := range w.edges {
		if w.owner(e.dst) == rank && w.owner(e.src) != rank {
			p.nodes = append(p.nodes, e.src)
		}
	}
	slices.Sort(p.nodes[p.inner:])
	p.nodes = append(p.nodes[:p.inner], slices.Compact(p.nodes[p.inner:])...)
	return p
}

func (p *part) Nodes() ([]int64, int, error) { return p.nodes, p.inner, nil }

func (p *part) NumEdges() int64 {
	lo, hi := p.w.book.Edges(p.rank)
	return hi - lo
}

func (p *part) Open(use func() error) error { return use() }

func (p *part) Edges(yield func(graph.EdgeBatch) error) error {
	var b graph.EdgeBatch
	for id, e := range p.w.edges {
		if p.w.owner(e.dst) == p.rank {
			local := func(node int64) int64 { return int64(slices.Index(p.nodes, node)) }
			b.Src, b.Dst = append(b.Src, local(e.src)), append(b.Dst, local(e.dst))
			b.ID, b.Type = append(b.ID, int64(id)), append(b.Type, int32(e.relation))
		}
	}
	return yield(b)
}

// onRanks runs f on every rank of a world and returns their errors.
func onRanks(t *testing.T, world int, f func(c *comm.Communicator) error) []error {
	t.Helper()
	groups, err := comm.Local(comm.Config{World: world, Operation: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, world)
	var wg sync.WaitGroup
	for r, g := range groups {
		wg.Go(func() {
			c, err := g.NewCommunicator("test", 1<<20)
			if err == nil {
				err = f(c)
			}
			if err != nil {
				g.Abort(err.Error())
			}
			errs[r] = err
		})
	}
	wg.Wait()
	for _, g := range groups {
		_ = g.Close()
	}
	return errs
}

// worlds runs f on the parts of random graphs, and check when all ranks are through it.
func worlds(t *testing.T, f func(c *comm.Communicator, g *Graph) error, check func(w *whole, parts []*Graph)) {
	t.Helper()
	r := rand.New(rand.NewPCG(21, 22))
	for _, c := range []struct{ world, nodes, edges, idle int }{
		{1, 20, 60, -1}, {2, 20, 60, -1}, {2, 20, 60, 0}, {3, 30, 200, 1}, {4, 16, 10, 3}, {5, 40, 300, -1}, {3, 10, 0, -1},
	} {
		w := randomWhole(t, r, c.world, c.nodes, c.edges, c.idle)
		parts := make([]*Graph, c.world)
		for rank, err := range onRanks(t, c.world, func(c *comm.Communicator) error {
			g, err := Build(c, kernel.NewPool(2), w.book, w.part(c.Rank()), graph.BuildOptions{})
			if err != nil {
				return err
			}
			parts[c.Rank()] = g
			return f(c, g)
		}) {
			if err != nil {
				t.Fatalf("%+v, rank %d: %v", c, rank, err)
			}
		}
		check(w, parts)
		for _, g := range parts {
			g.Free()
			g.Free() // again
		}
	}
}
