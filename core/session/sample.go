package session

import (
	"slices"
	"sync"

	"sar/core/comm"
	"sar/core/sample"
)

// SampleConfig says what a Sampler draws and fetches; SampleColumn is a feature.
type (
	SampleConfig = sample.Config
	SampleColumn = sample.Column
)

// Sampler draws batches of blocks from a graph, in the background.
type Sampler struct {
	graph      *Graph
	background *background
	samplers   [numWorkers]*sample.Sampler // of each worker; the first one frees what they share
	pending    sync.WaitGroup

	mu     sync.Mutex
	turn   int // batches submitted, which take the workers in turns
	closed bool
}

// NewSampler prepares draws from a graph. Collective the first time for a graph
// and for a session. The memory of columns and weights must last until Close.
func (g *Graph) NewSampler(cfg SampleConfig) (*Sampler, error) {
	background, err := g.prepareSampling(&cfg)
	if err != nil {
		return nil, err
	}
	for i, rel := range g.topo.Relations {
		if cfg.NeedsEdgeOrder(i) {
			if err := g.edgeOrder(rel); err != nil {
				return nil, err
			}
		}
	}
	inner, err := sample.NewSampler(g.sampling, pool, cfg)
	if err != nil {
		return nil, err
	}
	g.hold.Lock()
	defer g.hold.Unlock()
	g.samplers++
	s := &Sampler{graph: g, background: background}
	for i := range s.samplers {
		if s.samplers[i] = inner; i > 0 {
			s.samplers[i] = inner.Another()
		}
	}
	return s, nil
}

// PrepareSampling checks fan-outs and does what of NewSampler is collective.
func (g *Graph) PrepareSampling(cfg SampleConfig) error {
	_, err := g.prepareSampling(&cfg)
	return err
}

func (g *Graph) prepareSampling(cfg *SampleConfig) (*background, error) {
	if g.topo.IsBlock() {
		return nil, Invalid("sampling needs a full graph, and this graph is a block")
	}
	if err := g.checkSample(cfg); err != nil {
		return nil, err
	}
	background, err := g.session.sampling()
	if err != nil {
		return nil, err
	}
	return background, g.sampleIDs(background)
}

// checkSample holds the sizes of everything against the graph.
func (g *Graph) checkSample(cfg *SampleConfig) error {
	if len(cfg.Fanouts) == 0 {
		return Invalid("fanouts are empty: give one for each layer")
	}
	for l, layer := range cfg.Fanouts {
		if len(layer) != len(g.topo.Relations) {
			return Invalid("layer %d has %d fan-outs, and this graph has %d relations", l, len(layer), len(g.topo.Relations))
		}
		for i, n := range layer {
			if n < sample.All {
				return Invalid("the fan-out of layer %d and relation %s is %d: it must be -1 (every in-edge) or a number of edges",
					l, g.topo.Relations[i].Type, n)
			}
		}
	}
	for i, rel := range g.topo.Relations {
		if cfg.Weights != nil && int64(len(cfg.Weights[i])) != rel.NumEdges {
			return Invalid("there are %d weights, and this worker has %d edges of %s",
				len(cfg.Weights[i]), rel.NumEdges, rel.Type)
		}
		if cfg.EdgeData == nil {
			continue
		}
		for _, c := range cfg.EdgeData[i] {
			if int64(len(c.Rows)) != rel.NumEdges*int64(c.RowBytes) {
				return Invalid("edge data has %d bytes, and this worker has %d edges of %s of %d bytes",
					len(c.Rows), rel.NumEdges, rel.Type, c.RowBytes)
			}
		}
	}
	for _, side := range [][][]SampleColumn{cfg.Inputs, cfg.Outputs} {
		for t, columns := range side {
			own := g.topo.Book.NumNodes(t, g.session.Rank())
			for _, c := range columns {
				if int64(len(c.Rows)) != own*int64(c.RowBytes) {
					return Invalid("a feature has %d bytes, and this worker has %d nodes of type %q of %d bytes",
						len(c.Rows), own, g.topo.Book.NodeTypes[t], c.RowBytes)
				}
			}
		}
	}
	return nil
}

// sampleIDs makes the ids that sampling names nodes and edges by.
func (g *Graph) sampleIDs(b *background) error {
	if g.sampling != nil {
		return nil
	}
	return b.workers[0].do(func(c *comm.Communicator) error {
		return g.session.collective("preparing sampling", func() (err error) {
			g.sampling, err = sample.NewGraph(c, g.topo.Book, g.topo.Relations)
			return err
		})
	})
}

// Submit has a batch drawn in the background, after those submitted before.
// Seeds are own rows by node type, none twice, and not kept. Every rank submits
// batches of all its samplers in the same order, also where it has no seeds.
func (s *Sampler) Submit(seeds [][]int64, key uint64) (*Batch, error) {
	b := &Batch{done: make(chan struct{})}
	b.Key, b.Seeds = key, make([][]int32, len(s.graph.topo.Book.NodeTypes))
	for t := range b.Seeds {
		if t >= len(seeds) {
			break
		}
		own := s.graph.topo.Book.NumNodes(t, s.graph.session.Rank())
		b.Seeds[t] = make([]int32, len(seeds[t]))
		for i, row := range seeds[t] {
			if row < 0 || row >= own {
				return nil, Invalid("seed %d is row %d, and this worker owns %d nodes of type %q",
					i, row, own, s.graph.topo.Book.NodeTypes[t])
			}
			b.Seeds[t][i] = int32(row)
		}
		if twice, row := repeats(b.Seeds[t]); twice {
			return nil, Invalid("row %d is twice among the seeds", row)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.pending.Add(1)
	turn := s.turn % numWorkers
	s.turn++
	sampler := s.samplers[turn]
	s.background.workers[turn].submit(func(c *comm.Communicator) error {
		if n := sampler.MaxRowBytes(); s.graph.session.World() > 1 && n > c.MaxPayload() {
			return s.graph.session.tooNarrow(c, n, "a sampler sends rows of up to")
		}
		return s.graph.session.collective("sampling", func() error { return sampler.Run(c, &b.Batch) })
	}, func(err error) {
		b.end(err)
		s.pending.Done()
	})
	return b, nil
}

func repeats(rows []int32) (bool, int32) {
	if slices.IsSorted(rows) {
		for i := 1; i < len(rows); i++ {
			if rows[i] == rows[i-1] {
				return true, rows[i]
			}
		}
		return false, 0
	}
	rows = slices.Clone(rows)
	slices.Sort(rows)
	return repeats(rows)
}

// Close waits for the batches that were submitted, which the peers count on,
// and frees the sampler. Batches live on.
func (s *Sampler) Close() {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	s.pending.Wait()
	if !again {
		s.samplers[0].Free()
		s.graph.release()
	}
}

// release ends a sampler's use of the graph, and frees it if it was the last
// use of one that Free was called for.
func (g *Graph) release() {
	g.hold.Lock()
	g.samplers--
	last := g.samplers == 0 && g.freed
	g.hold.Unlock()
	if last {
		g.unmap()
	}
}
