package sample

import (
	"fmt"
	"math"

	"sar/core/graph"
	"sar/core/kernel"
	"sar/core/mem"
)

// Column is a feature: one row of RowBytes bytes per own node, or per in-edge
// in the users' order. The memory is the caller's.
type Column struct {
	Rows     []byte
	RowBytes int
}

// Config says what to draw and what to fetch. It must be the same on every
// rank but for the memory of columns.
type Config struct {
	Fanouts  [][]int     // [layer][relation]: edges drawn per destination, All for every one
	Replace  bool        // draw with replacement
	EdgeIDs  bool        // tell the ids of the edges drawn
	Weights  [][]float32 // [relation] of in-edges in the users' order, >= 0; nil: all alike
	EdgeData [][]Column  // [relation], for the edges drawn
	Inputs   [][]Column  // [node type], for the nodes that the first layer reads
	Outputs  [][]Column  // [node type], for the seeds
}

// Sampler draws batches from one graph. One goroutine at a time may use it.
type Sampler struct {
	g     *Graph
	cfg   Config
	pool  *kernel.Pool
	Slabs *Slabs

	weights []weights // by relation
	into    [][]int   // relations by destination type
	tables  []*table  // by node type

	asked []request   // by rank: what it wants of this one
	ask   []request   // by rank: what this one wants of it
	place [][][]int32 // [rank][type]: numbers of the nodes of ask
	serve []answer    // by rank: what this one sends to it
	got   []answer    // by rank: what came from it
	sizes [2][][]byte // of messages, by rank
}

// weights of the slots of a relation, in the order of the CSR, and how many of
// each row are positive.
type weights struct {
	slot     mem.Array[float32]
	positive mem.Array[int32]
}

// request is own rows that a rank asks for, by node type.
type request struct {
	key  uint64
	rows [][]int32
	new  []int // of rows, those that this layer added
}

// NewSampler prepares draws. Relations must have their edge order where edge
// ids, edge data or weights are used.
func NewSampler(g *Graph, pool *kernel.Pool, cfg Config) (*Sampler, error) {
	s := &Sampler{g: g, cfg: cfg, pool: pool, Slabs: &Slabs{},
		weights: make([]weights, len(g.Rels)), into: make([][]int, len(g.Types)), tables: make([]*table, len(g.Types)),
		asked: make([]request, g.World), ask: make([]request, g.World), place: make([][][]int32, g.World),
		serve: make([]answer, g.World), got: make([]answer, g.World)}
	for i, rel := range g.Rels {
		s.into[rel.DstType] = append(s.into[rel.DstType], i)
		if rel.NumDst != g.Own(rel.DstType) || rel.NumSrc != g.Own(rel.SrcType) {
			return nil, fmt.Errorf("relation %s joins %d and %d rows, and this worker owns %d and %d nodes of its types: only whole graphs are sampled",
				rel.Type, rel.NumSrc, rel.NumDst, g.Own(rel.SrcType), g.Own(rel.DstType))
		}
	}
	for t, space := range g.Types {
		s.tables[t] = newTable(space, g.Rank)
	}
	for q := range g.World {
		s.asked[q], s.ask[q] = newRequest(len(g.Types)), newRequest(len(g.Types))
		s.place[q] = make([][]int32, len(g.Types))
		for dir := range s.sizes {
			s.sizes[dir] = append(s.sizes[dir], make([]byte, 8*(2+len(g.Types))))
		}
	}
	if cfg.Weights == nil {
		return s, nil
	}
	for i, rel := range g.Rels {
		if err := s.weights[i].fill(rel, cfg.Weights[i]); err != nil {
			s.Free()
			return nil, err
		}
	}
	return s, nil
}

func newRequest(types int) request {
	return request{rows: make([][]int32, types), new: make([]int, types)}
}

// BadWeight is a weight that is no probability.
type BadWeight struct {
	Relation graph.EdgeType
	Edge     int
	Weight   float32
}

func (e *BadWeight) Error() string {
	return fmt.Sprintf("the weight of edge %d of %s is %g: weights must be finite and not negative", e.Edge, e.Relation, e.Weight)
}

func (w *weights) fill(rel *graph.Relation, given []float32) (err error) {
	for k, x := range given {
		if !(x >= 0 && x <= math.MaxFloat32) {
			return &BadWeight{rel.Type, k, x}
		}
	}
	if w.slot, err = mem.Make[float32](mem.Structure, int(rel.NumEdges)); err != nil {
		return err
	}
	if w.positive, err = mem.Make[int32](mem.Structure, rel.NumDst); err != nil {
		return err
	}
	for row := range rel.NumDst {
		for k := rel.RowPtr.Data[row]; k < rel.RowPtr.Data[row+1]; k++ {
			x := given[rel.RowEdge.Data[k]]
			w.slot.Data[k] = x
			if x > 0 {
				w.positive.Data[row]++
			}
		}
	}
	return nil
}

// MaxRowBytes is the largest row that travels.
func (s *Sampler) MaxRowBytes() int {
	n := 16
	for _, side := range [][][]Column{s.cfg.EdgeData, s.cfg.Inputs} {
		for _, columns := range side {
			for _, c := range columns {
				n = max(n, c.RowBytes)
			}
		}
	}
	return n
}

// withEdges tells whether edges of a relation are named on the wire.
func (s *Sampler) withEdges(rel int) bool {
	return s.cfg.EdgeIDs || s.cfg.EdgeData != nil && len(s.cfg.EdgeData[rel]) > 0
}

// named tells whether edges of any relation are.
func (s *Sampler) named() bool {
	for i := range s.g.Rels {
		if s.withEdges(i) {
			return true
		}
	}
	return false
}

// NeedsEdgeOrder tells whether draws from a relation read its edges in the
// users' order.
func (c *Config) NeedsEdgeOrder(rel int) bool {
	return c.EdgeIDs || c.Weights != nil || c.EdgeData != nil && len(c.EdgeData[rel]) > 0
}

// Free unmaps what the sampler holds. Batches live on.
func (s *Sampler) Free() {
	for i := range s.weights {
		s.weights[i].slot.Free()
		s.weights[i].positive.Free()
	}
	s.Slabs.Close()
}
