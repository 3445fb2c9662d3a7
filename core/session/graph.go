package session

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/graph"
	"sar/core/mem"
	"sar/core/sample"
)

// Graph is this worker's part of a distributed graph: one relation an edge type.
type Graph struct {
	session   *Session
	book      *graph.Book
	relations []*graph.Relation

	source  *fileSource // of graphs built from files
	block   *block      // of blocks
	pushing pushing
	orderMu sync.Mutex

	sampling *sample.Graph // made by the first sampler
	hold     sync.Mutex
	samplers int // that use the graph
	freed    bool
}

// EdgeData asks BuildGraph to keep the order of edges from the start.
const EdgeData = 1

// BuildGraph makes the worker's part of the graph from its partition. Collective.
func (s *Session) BuildGraph(book *graph.Book, part int, edges graph.EdgeSource, flags uint32) (*Graph, error) {
	if book.Parts != s.World() {
		return nil, Invalid("the graph has %d partitions and there are %d workers: start %d workers, or partition the graph into %d parts",
			book.Parts, s.World(), book.Parts, s.World())
	}
	if part != s.Rank() {
		return nil, Invalid("partition %d was given to rank %d: each worker builds its own partition", part, s.Rank())
	}
	return s.build(book, edges, graph.BuildOptions{EdgeOrder: flags&EdgeData != 0, Threads: pool.Threads()})
}

func (s *Session) build(book *graph.Book, edges graph.EdgeSource, opts graph.BuildOptions) (*Graph, error) {
	g := &Graph{session: s, book: book}
	err := s.collective("building the graph", func() error {
		if err := s.suitGraph(book); err != nil {
			return err
		}
		relations, err := graph.Build(book, s.Rank(), edges, opts)
		if err != nil {
			return err
		}
		g.relations = relations
		for _, rel := range relations {
			if err := s.connect(rel); err != nil {
				return fmt.Errorf("relation %s: %w", rel.Type, err)
			}
		}
		return nil
	})
	if err != nil {
		g.Free()
		return nil, err
	}
	return g, nil
}

// GraphFromEdges builds a graph of one relation from edges in memory. Collective.
func (s *Session) GraphFromEdges(nodeStart, src, dst []int64) (*Graph, error) {
	if len(nodeStart) != s.World()+1 {
		return nil, Invalid("node_start has %d entries: %d workers need %d", len(nodeStart), s.World(), s.World()+1)
	}
	book, err := graph.HomogeneousBook(slices.Clone(nodeStart)) // the caller's memory is not kept
	if err != nil {
		return nil, Invalid("node_start: %v", err)
	}
	return s.fromEdges(book, nodeStart, []graph.Ends{{Src: src, Dst: dst}})
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
func (s *Session) GraphFromRelations(types Types, counts [][]int64, ends []Ends) (*Graph, error) {
	edgeTypes := make([]graph.EdgeType, len(types.EdgeTypes))
	for i, t := range types.EdgeTypes {
		edgeTypes[i] = graph.EdgeType{Src: t[0], Rel: t[1], Dst: t[2]}
	}
	if len(ends) != len(edgeTypes) {
		return nil, Invalid("edges of %d relations, and %d are named", len(ends), len(edgeTypes))
	}
	for i, of := range counts {
		if len(of) != s.World() {
			return nil, Invalid("node_counts has %d numbers for node type %d: %d workers need %d", len(of), i, s.World(), s.World())
		}
	}
	book, err := graph.TypedBook(types.NodeTypes, edgeTypes, counts)
	if err != nil {
		return nil, Invalid("%v", err)
	}
	return s.fromEdges(book, book.Starts(), ends)
}

func (s *Session) fromEdges(book *graph.Book, starts []int64, ends []graph.Ends) (*Graph, error) {
	for _, e := range ends {
		if len(e.Src) != len(e.Dst) {
			return nil, Invalid("src has %d entries and dst %d: an edge is one of each", len(e.Src), len(e.Dst))
		}
	}
	source, err := graph.FromRelations(starts, s.Rank(), ends)
	if err != nil {
		return nil, Invalid("%v", err)
	}
	defer source.Free()
	// The caller's arrays are not kept, so the order of edges cannot be read off them later.
	return s.build(book, source, graph.BuildOptions{KeepOrder: true, Threads: pool.Threads()})
}

// connect gives the owners of boundary rows their send lists, and learns from
// the readers how many edges leave each own row. Two movements: 4 and 8 bytes
// a boundary row.
func (s *Session) connect(rel *graph.Relation) error {
	train, err := s.Comm(Train)
	if err != nil {
		return err
	}
	total, err := s.sumGlobal(train, rel.NumEdges)
	if err != nil {
		return err
	}
	rel.NumEdgesGlobal = total
	rel.Send = make([]mem.Array[int32], rel.Parts)
	sizes, err := s.sendSizes(train, rel)
	if err != nil {
		return err
	}
	for r := 1; r < rel.Parts; r++ {
		if rel.Send[r], err = mem.Make[int32](mem.Structure, sizes[r]); err != nil {
			return err
		}
	}
	if rel.OutDegree, err = mem.Make[int64](mem.Structure, rel.NumSrc); err != nil {
		return err
	}
	if err := s.sendHalo(train, rel, sizes); err != nil {
		return err
	}
	for r := range rel.Halo {
		rel.Halo[r].Rows.Free()
	}
	return s.countOut(train, rel, sizes)
}

func (s *Session) sumGlobal(c *comm.Communicator, n int64) (int64, error) {
	buf := binary.LittleEndian.AppendUint64(nil, uint64(n))
	if err := c.AllReduce(buf, comm.Int64, comm.Sum); err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(buf)), nil
}

// sendSizes learns, by round, how many rows each peer will ask for.
func (s *Session) sendSizes(c *comm.Communicator, rel *graph.Relation) ([]int, error) {
	p := rel.Parts
	out, in := make([][]byte, p), make([][]byte, p)
	for q := range p {
		out[q], in[q] = make([]byte, 8), make([]byte, 8)
	}
	for r := 1; r < p; r++ {
		h := rel.Halo[r]
		binary.LittleEndian.PutUint64(out[h.Peer], uint64(h.End-h.Begin))
	}
	if err := c.AllToAll(out, in); err != nil {
		return nil, err
	}
	sizes := make([]int, p)
	for r := 1; r < p; r++ {
		n := binary.LittleEndian.Uint64(in[(rel.Rank+r)%p])
		if n > uint64(rel.NumSrc) {
			return nil, fmt.Errorf("rank %d asks for %d rows of this rank's %d", (rel.Rank+r)%p, n, rel.NumSrc)
		}
		sizes[r] = int(n)
	}
	return sizes, nil
}

// sendHalo tells the owners which of their rows this worker reads.
func (s *Session) sendHalo(c *comm.Communicator, rel *graph.Relation, sizes []int) error {
	return s.home(c, rel, exchange.HaloRows(rel), sizes, 4,
		func(r, i int, dst []byte) { binary.LittleEndian.PutUint32(dst, uint32(rel.Halo[r].Rows.Data[i])) },
		func(r, i int, src []byte) error {
			row := int32(binary.LittleEndian.Uint32(src))
			if row < 0 || int(row) >= rel.NumSrc {
				return fmt.Errorf("rank %d asks for row %d of this rank's %d", (rel.Rank+r)%rel.Parts, row, rel.NumSrc)
			}
			rel.Send[r].Data[i] = row
			return nil
		})
}

// countOut adds up the edges that leave own rows, here and on the peers.
func (s *Session) countOut(c *comm.Communicator, rel *graph.Relation, sizes []int) error {
	ptr := rel.ColPtr.Data
	for i := range rel.OutDegree.Data {
		rel.OutDegree.Data[i] = int64(ptr[i+1] - ptr[i])
	}
	return s.home(c, rel, exchange.HaloRows(rel), sizes, 8,
		func(r, i int, dst []byte) {
			col := int(rel.Halo[r].Begin) + i
			binary.LittleEndian.PutUint64(dst, uint64(ptr[col+1]-ptr[col]))
		},
		func(r, i int, src []byte) error {
			rel.OutDegree.Data[rel.Send[r].Data[i]] += int64(binary.LittleEndian.Uint64(src))
			return nil
		})
}

// home runs a movement of small records, send and recv of them in each round, from
// the readers of boundary rows to their owners. put and get see them in order.
func (s *Session) home(c *comm.Communicator, rel *graph.Relation, send, recv []int, size int,
	put func(r, i int, dst []byte), get func(r, i int, src []byte) error) error {
	op, err := c.Begin(comm.KindBuild, comm.Backward)
	if err != nil {
		return err
	}
	m := &exchange.Movement{
		Op: op, ToOwner: true, RowBytes: size, Send: send, Recv: recv,
		Produce: func(r, first, n int, dst []byte) error {
			for i := range n {
				put(r, first+i, dst[i*size:])
			}
			return nil
		},
		Consume: func(r, first, n int, src []byte) error {
			for i := range n {
				if err := get(r, first+i, src[i*size:]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	_, err = m.Move(rel.Rank, rel.Parts)
	return op.End(err)
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
	for _, rel := range g.relations {
		rel.Free()
	}
	g.relations = nil
	g.block.free()
}

// NumRelations is the number of edge types.
func (g *Graph) NumRelations() int { return len(g.relations) }

// Relation returns one of them.
func (g *Graph) Relation(i int) (*graph.Relation, error) {
	if i < 0 || i >= len(g.relations) {
		return nil, Invalid("there is no relation %d: this graph has %d", i, len(g.relations))
	}
	return g.relations[i], nil
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
		NumSrcGlobal: g.book.NumNodesGlobal(rel.SrcType), NumDstGlobal: g.book.NumNodesGlobal(rel.DstType),
		NumEdgesGlobal: rel.NumEdgesGlobal,
		NumBoundary:    int64(rel.NumCols() - rel.NumSrc),
		StructureBytes: rel.Bytes(),
	}
	if g.block != nil {
		info.NumSrcGlobal, info.NumDstGlobal = g.block.srcGlobal[rel.SrcType], g.block.dstGlobal[rel.DstType]
	}
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
		pairs[h.Peer].ReceiveRows = int(h.End - h.Begin)
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
	for i := range out {
		out[i] = int64(rel.RowPtr.Data[i+1] - rel.RowPtr.Data[i])
	}
	return nil
}
