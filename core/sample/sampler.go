package sample

import (
	"cmp"
	"fmt"
	"math"

	"sar/core/graph"
	"sar/core/internal/argument"
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
	Wide     bool        // as with billions of nodes, whatever their number: for tests
	Cache    int64       // bytes for inputs of other ranks' nodes, which then must not change; 0: none
}

// Sampler draws batches from one graph. One goroutine at a time may use it.
type Sampler struct {
	g     *Graph
	cfg   Config
	pool  *kernel.Pool
	Slabs *Slabs

	weights []weights // by relation
	tables  []*table  // by node type

	asked []request // by rank: what it wants of this one
	ask   []request // by rank: what this one wants of it
	serve []reply   // by rank: what this one sends to it
	got   []reply   // by rank: what came from it
	wide  bool      // positions of nodes take 8 bytes on the wire

	want   []request // by rank: whose features this one wants of it
	wanted []request // by rank: whose features it wants of this one

	cache  *Cache // nil: none
	use    []cacheUse
	missed []request // what want points at where there is a cache
}

// weights of the slots of a relation, in the order of the CSR, and how many of
// each row are positive.
type weights struct {
	slot     mem.Array[float32]
	positive mem.Array[int32]
}

// NewSampler prepares draws. Relations must have their edge order where edge
// ids, edge data or weights are used.
func NewSampler(g *Graph, pool *kernel.Pool, cfg Config) (*Sampler, error) {
	s := &Sampler{g: g, cfg: cfg, pool: pool, Slabs: &Slabs{}, weights: make([]weights, len(g.Rels))}
	for _, rel := range g.Rels {
		if rel.NumDst != g.Own(rel.DstType) || rel.NumSrc != g.Own(rel.SrcType) {
			return nil, fmt.Errorf("relation %s joins %d and %d rows, and this worker owns %d and %d nodes of its types: only "+
				"whole graphs are sampled",
				rel.Type, rel.NumSrc, rel.NumDst, g.Own(rel.SrcType), g.Own(rel.DstType))
		}
	}
	s.prepare()
	if cfg.Cache > 0 && g.World > 1 && cfg.Inputs != nil {
		var err error
		if s.cache, err = NewCache(g, cfg.Inputs, cfg.Cache); err != nil {
			return nil, err
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

// Another is a sampler with the same columns, weights and cache, for batches that
// are drawn at the same time. It lasts until Free of the first one.
func (s *Sampler) Another() *Sampler {
	t := &Sampler{g: s.g, cfg: s.cfg, pool: s.pool, Slabs: s.Slabs, weights: s.weights, cache: s.cache}
	t.prepare()
	return t
}

// prepare makes what a batch works with.
func (s *Sampler) prepare() {
	world, types := s.g.World, len(s.g.Types)
	s.tables = make([]*table, types)
	few := fewNodes(s.g.Rels)
	if s.wide = s.cfg.Wide; s.wide {
		few = 0
	}
	for t, space := range s.g.Types {
		s.tables[t] = newTable(space, s.g.Rank, few)
		s.wide = s.wide || s.tables[t].total > math.MaxUint32
	}
	for _, r := range []*[]request{&s.asked, &s.ask, &s.want, &s.wanted, &s.missed} {
		*r = requests(world, types)
	}
	s.serve, s.got = make([]reply, world), make([]reply, world)
	s.use = make([]cacheUse, types)
}

func (w *weights) fill(rel *graph.Relation, given []float32) error {
	for k, x := range given {
		if !(x >= 0 && x <= math.MaxFloat32) {
			return argument.Errorf("the weight of edge %d of %s is %g: weights must be finite and not negative", k, rel.Type, x)
		}
	}
	err := cmp.Or(w.slot.Make(mem.Structure, int(rel.NumEdges)), w.positive.Make(mem.Structure, rel.NumDst))
	if err != nil {
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

// MaxRowBytes is the largest row that travels, the head of a request included.
func (s *Sampler) MaxRowBytes() int {
	n := headBytes(len(s.use))
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
func (s *Sampler) withEdges(rel int) bool { return s.cfg.EdgeIDs || s.cfg.hasData(rel) }

// named tells whether edges of any relation are.
func (s *Sampler) named() bool {
	for i := range s.g.Rels {
		if s.withEdges(i) {
			return true
		}
	}
	return false
}

// edgeLayoutHash and inputLayoutHash stand for the sizes of what travels for edges and for
// nodes, which must be alike on all ranks.
func (s *Sampler) edgeLayoutHash() uint64 {
	return hashColumns(mix(uint64(edgeSize(s))), s.cfg.EdgeData)
}

func (s *Sampler) inputLayoutHash() uint64 { return hashColumns(0, s.cfg.Inputs) }

func hashColumns(sum uint64, columns [][]Column) uint64 {
	for kind, of := range columns {
		for _, c := range of {
			sum = mix(sum+golden) ^ uint64(kind)<<48 ^ uint64(c.RowBytes)
		}
	}
	return sum
}

// NeedsEdgeOrder tells whether draws from a relation read its edges in the
// users' order.
func (c *Config) NeedsEdgeOrder(rel int) bool {
	return c.EdgeIDs || c.Weights != nil || c.hasData(rel)
}

func (c *Config) hasData(rel int) bool { return c.EdgeData != nil && len(c.EdgeData[rel]) > 0 }

// Free unmaps what the sampler holds. Batches live on.
func (s *Sampler) Free() {
	for i := range s.weights {
		s.weights[i].slot.Free()
		s.weights[i].positive.Free()
	}
	if s.cache != nil {
		s.cache.Free()
	}
	s.Slabs.Close()
}
