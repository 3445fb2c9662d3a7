package session

import (
	"context"
	"slices"
	"sync"

	"sar/core/exchange"
	"sar/core/graph"
	"sar/core/sample"
	"sar/core/topology"
)

// Graph is this worker's part of a distributed graph: one relation an edge type.
type Graph struct {
	session *Session
	number  int // in the order in which all workers make them, from 1
	topo    *topology.Graph
	plans   map[pushKey]*exchange.PushPlan

	coverings coverings

	sampling *sample.Graph // made by the first sampler
	hold     sync.Mutex
	samplers int // that use the graph
	freed    bool
}

// BuildFlags say what is made with a graph.
type BuildFlags uint32

// EdgeData asks Build to keep the order of edges from the start.
const EdgeData BuildFlags = 1

// buildPart makes the worker's part of the graph from its partition.
func (s *Session) buildPart(book *graph.Book, part int, edges graph.EdgeSource, flags BuildFlags) (*Graph, error) {
	if book.Parts != s.World() {
		return nil, Invalid("the graph has %d partitions and there are %d workers: "+
			"start %d workers, or partition the graph into %d parts",
			book.Parts, s.World(), book.Parts, s.World())
	}
	if part != s.Rank() {
		return nil, Invalid("partition %d was given to rank %d: each worker builds its own partition", part, s.Rank())
	}
	return s.build(book, edges, graph.BuildOptions{EdgeOrder: flags&EdgeData != 0})
}

func (s *Session) build(book *graph.Book, edges graph.EdgeSource, opts graph.BuildOptions) (*Graph, error) {
	g := &Graph{session: s}
	err := s.collective("building the graph", func() error {
		if err := s.suitGraph(book); err != nil {
			return err
		}
		train, err := s.Comm(Train)
		if err != nil {
			return err
		}
		g.topo, err = topology.Build(train, pool, book, edges, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	g.number = s.count()
	return g, nil
}

// count numbers a graph that all workers have made.
func (s *Session) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graphs++
	return s.graphs
}

// GraphFromEdges builds a graph of one relation from edges in memory. Collective.
func (s *Session) GraphFromEdges(ctx context.Context, nodeStart, src, dst []int64) (*Graph, error) {
	if len(nodeStart) != s.World()+1 {
		return nil, Invalid("node_start has %d entries: %d workers need %d", len(nodeStart), s.World(), s.World()+1)
	}
	book, err := graph.HomogeneousBook(slices.Clone(nodeStart)) // the caller's memory is not kept
	if err != nil {
		return nil, Invalid("node_start: %v", err)
	}
	return s.fromEdges(ctx, book, nodeStart, []graph.Ends{{Src: src, Dst: dst}})
}

// Types names the node types and relations of a graph from memory.
type Types struct {
	NodeTypes []string    `json:"node_types"`
	EdgeTypes [][3]string `json:"edge_types"`
}

// Ends are the ends of the edges of a relation.
type Ends = graph.Ends

// GraphFromRelations builds a graph of several types from edges in memory:
// worker p owns counts[t][p] nodes of type t, and ids are homogenized. Collective.
func (s *Session) GraphFromRelations(
	ctx context.Context, types Types, counts [][]int64, ends []Ends,
) (*Graph, error) {
	edgeTypes := make([]graph.EdgeType, len(types.EdgeTypes))
	for i, t := range types.EdgeTypes {
		edgeTypes[i] = graph.EdgeType{Src: t[0], Rel: t[1], Dst: t[2]}
	}
	if len(ends) != len(edgeTypes) {
		return nil, Invalid("edges of %d relations, and %d are named", len(ends), len(edgeTypes))
	}
	for i, of := range counts {
		if len(of) != s.World() {
			return nil, Invalid("node_counts has %d numbers for node type %d: %d workers need %d",
				len(of), i, s.World(), s.World())
		}
	}
	book, err := graph.TypedBook(types.NodeTypes, edgeTypes, counts)
	if err != nil {
		return nil, Invalid("%v", err)
	}
	return s.fromEdges(ctx, book, book.Starts(), ends)
}

func (s *Session) fromEdges(ctx context.Context, book *graph.Book, starts []int64, ends []graph.Ends) (*Graph, error) {
	for _, e := range ends {
		if len(e.Src) != len(e.Dst) {
			return nil, Invalid("src has %d entries and dst %d: an edge is one of each", len(e.Src), len(e.Dst))
		}
	}
	source, err := graph.FromEdges(starts, s.Rank(), ends...)
	if err != nil {
		return nil, Invalid("%v", err)
	}
	defer source.Free()
	// The caller's arrays are not kept, so the order of edges cannot be read off them later.
	return s.graphWithin(ctx, func() (*Graph, error) {
		return s.build(book, source, graph.BuildOptions{KeepOrder: true})
	})
}

// Free unmaps the graph, once no sampler uses it any more.
func (g *Graph) Free() {
	g.hold.Lock()
	g.freed = true
	now := g.samplers == 0
	g.hold.Unlock()
	if now {
		g.unmap()
	}
}

func (g *Graph) unmap() {
	if g.sampling != nil {
		g.sampling.Free()
	}
	for _, w := range g.coverings.weights {
		w.free()
	}
	g.topo.Free()
}

// NumRelations is the number of edge types.
func (g *Graph) NumRelations() int { return len(g.topo.Relations) }

// Relation returns one of them.
func (g *Graph) Relation(i int) (*graph.Relation, error) {
	if i < 0 || i >= len(g.topo.Relations) {
		return nil, Invalid("there is no relation %d: this graph has %d", i, len(g.topo.Relations))
	}
	return g.topo.Relations[i], nil
}

// Info is the sizes of one relation.
type Info struct {
	NumSrc, NumDst, NumEdges                   int64
	NumSrcGlobal, NumDstGlobal, NumEdgesGlobal int64
	NumBoundary, NumSend, StructureBytes       int64
}

// Info returns the sizes of relation i.
func (g *Graph) Info(i int) (Info, error) {
	rel, err := g.Relation(i)
	if err != nil {
		return Info{}, err
	}
	info := Info{
		NumSrc: int64(rel.NumSrc), NumDst: int64(rel.NumDst), NumEdges: rel.NumEdges,
		NumEdgesGlobal: rel.NumEdgesGlobal,
		NumBoundary:    int64(rel.NumCols() - rel.NumSrc),
		StructureBytes: rel.Bytes(),
	}
	info.NumSrcGlobal, info.NumDstGlobal = g.topo.NumNodesGlobal(rel)
	for r := 1; r < rel.Parts; r++ {
		info.NumSend += int64(len(rel.Send[r].Data))
	}
	return info, nil
}

// Pair is the rows that travel between this worker and one peer.
type Pair struct {
	Peer        int `json:"peer"`
	ReceiveRows int `json:"receive_rows"`
	SendRows    int `json:"send_rows"`
	// What a sum in the precision of its rows receives: rows, and sums in place of the others.
	CoverRows int `json:"cover_rows"`
	CoverSums int `json:"cover_sums"`
}

// Boundary lists the rows exchanged with every peer in relation i.
func (g *Graph) Boundary(i int) ([]Pair, error) {
	rel, err := g.Relation(i)
	if err != nil {
		return nil, err
	}
	pairs := make([]Pair, rel.Parts)
	for q := range pairs {
		pairs[q].Peer = q
	}
	for r := 1; r < rel.Parts; r++ {
		h := rel.Halo[r]
		of := &pairs[h.Peer]
		of.ReceiveRows = int(h.End - h.Begin)
		of.CoverRows, of.CoverSums = int(h.Leading[graph.SumIsOne]), int(h.Sums[graph.SumIsOne])
		pairs[(rel.Rank+r)%rel.Parts].SendRows = len(rel.Send[r].Data)
	}
	return append(pairs[:rel.Rank], pairs[rel.Rank+1:]...), nil
}

// SendRows are the own source rows that a peer reads in relation i, in the order
// in which they travel.
func (g *Graph) SendRows(i, peer int) ([]int32, error) {
	rel, err := g.Relation(i)
	if err != nil {
		return nil, err
	}
	if peer < 0 || peer >= rel.Parts || peer == rel.Rank {
		return nil, Invalid("rank %d is no peer of rank %d of %d", peer, rel.Rank, rel.Parts)
	}
	return rel.Send[(peer-rel.Rank+rel.Parts)%rel.Parts].Data, nil
}

// Degrees writes the in-degrees of own destination rows, or the out-degrees of
// own source rows over all workers, into out.
func (g *Graph) Degrees(i int, outgoing bool, out []int64) error {
	rel, err := g.Relation(i)
	if err != nil {
		return err
	}
	want := rel.NumDst
	if outgoing {
		want = rel.NumSrc
	}
	if len(out) != want {
		return Invalid("degrees: out has %d entries for %d rows", len(out), want)
	}
	if outgoing {
		copy(out, rel.OutDegree.Data)
		return nil
	}
	rel.InDegrees(out)
	return nil
}

// edgeOrder makes the order of edges of a relation if it is not there yet.
func (g *Graph) edgeOrder(rel *graph.Relation) error { return g.topo.EdgeOrder(rel) }
