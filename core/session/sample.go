package session

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"sar/core/comm"
	"sar/core/mem"
	"sar/core/sample"
)

// SampleConfig says what a Sampler draws and fetches; SampleColumn is a feature.
type (
	SampleConfig = sample.Config
	SampleColumn = sample.Column
	SampleLayer  = sample.Layer
	SampleEdges  = sample.Edges
)

// Sampler draws batches of blocks from a graph, in the background.
type Sampler struct {
	graph   *Graph
	worker  *background
	sampler *sample.Sampler
	layers  int
	pending sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// Batch is one batch of a Sampler, on its way or done.
type Batch struct {
	sample.Batch
	done chan struct{}
	err  error

	mu    sync.Mutex
	ended bool
	freed bool
}

// NewSampler prepares draws from a graph. Collective the first time for a graph
// and for a session. The memory of columns and weights must last until Close.
func (g *Graph) NewSampler(cfg SampleConfig) (*Sampler, error) {
	worker, err := g.prepareSampling(&cfg)
	if err != nil {
		return nil, err
	}
	for i, rel := range g.relations {
		if cfg.NeedsEdgeOrder(i) {
			if err := g.edgeOrder(rel); err != nil {
				return nil, err
			}
		}
	}
	inner, err := sample.NewSampler(g.sampling, pool, cfg)
	if err != nil {
		var bad *sample.BadWeight
		if errors.As(err, &bad) {
			err = Invalid("%v", err)
		}
		return nil, err
	}
	g.hold.Lock()
	defer g.hold.Unlock()
	g.samplers++
	return &Sampler{graph: g, worker: worker, sampler: inner, layers: len(cfg.Fanouts)}, nil
}

// PrepareSampling checks fan-outs and does what of NewSampler is collective.
func (g *Graph) PrepareSampling(cfg SampleConfig) error {
	_, err := g.prepareSampling(&cfg)
	return err
}

func (g *Graph) prepareSampling(cfg *SampleConfig) (*background, error) {
	if g.block != nil {
		return nil, Invalid("sampling needs a full graph, and this graph is a block")
	}
	if err := g.checkSample(cfg); err != nil {
		return nil, err
	}
	worker, err := g.session.sampling()
	if err != nil {
		return nil, err
	}
	return worker, g.sampleIDs(worker)
}

// checkSample holds the sizes of everything against the graph.
func (g *Graph) checkSample(cfg *SampleConfig) error {
	if len(cfg.Fanouts) == 0 {
		return Invalid("fanouts are empty: give one for each layer")
	}
	for l, layer := range cfg.Fanouts {
		if len(layer) != len(g.relations) {
			return Invalid("layer %d has %d fan-outs, and this graph has %d relations", l, len(layer), len(g.relations))
		}
		for i, n := range layer {
			if n < sample.All {
				return Invalid("the fan-out of layer %d and relation %s is %d: it must be -1 (every in-edge) or a number of edges", l, g.relations[i].Type, n)
			}
		}
	}
	for i, rel := range g.relations {
		if cfg.Weights != nil && int64(len(cfg.Weights[i])) != rel.NumEdges {
			return Invalid("there are %d weights, and this worker has %d edges of %s", len(cfg.Weights[i]), rel.NumEdges, rel.Type)
		}
		if cfg.EdgeData == nil {
			continue
		}
		for _, c := range cfg.EdgeData[i] {
			if int64(len(c.Rows)) != rel.NumEdges*int64(c.RowBytes) {
				return Invalid("edge data has %d bytes, and this worker has %d edges of %s of %d bytes", len(c.Rows), rel.NumEdges, rel.Type, c.RowBytes)
			}
		}
	}
	for _, side := range [][][]SampleColumn{cfg.Inputs, cfg.Outputs} {
		for t, columns := range side {
			own := g.book.NumNodes(t, g.session.Rank())
			for _, c := range columns {
				if int64(len(c.Rows)) != own*int64(c.RowBytes) {
					return Invalid("a feature has %d bytes, and this worker has %d nodes of type %q of %d bytes", len(c.Rows), own, g.book.NodeTypes[t], c.RowBytes)
				}
			}
		}
	}
	return nil
}

// sampleIDs makes the ids that sampling names nodes and edges by.
func (g *Graph) sampleIDs(worker *background) error {
	if g.sampling != nil {
		return nil
	}
	return worker.do(func(c *comm.Communicator) error {
		return g.session.collective("preparing sampling", func() (err error) {
			g.sampling, err = sample.NewGraph(c, g.book, g.relations)
			return err
		})
	})
}

// Submit has a batch drawn in the background, after those submitted before.
// Seeds are own rows by node type, none twice, and not kept. Every rank submits
// batches of all its samplers in the same order, also where it has no seeds.
func (s *Sampler) Submit(seeds [][]int64, key uint64) (*Batch, error) {
	b := &Batch{done: make(chan struct{})}
	b.Key, b.Seeds = key, make([][]int32, len(s.graph.book.NodeTypes))
	for t := range b.Seeds {
		if t >= len(seeds) {
			break
		}
		own := s.graph.book.NumNodes(t, s.graph.session.Rank())
		b.Seeds[t] = make([]int32, len(seeds[t]))
		for i, row := range seeds[t] {
			if row < 0 || row >= own {
				return nil, Invalid("seed %d is row %d, and this worker owns %d nodes of type %q", i, row, own, s.graph.book.NodeTypes[t])
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
	s.worker.submit(func(c *comm.Communicator) error {
		if n := s.sampler.MaxRowBytes(); s.graph.session.World() > 1 && n > c.MaxPayload() {
			window := s.graph.session.windowLimit()
			return &mem.BudgetError{
				What:    fmt.Sprintf("window_bytes (features have rows of %d bytes and a frame that samples holds %d): a window", n, c.MaxPayload()),
				Have:    window,
				Minimum: (window/int64(c.MaxPayload()) + 1) * int64(n+pageBytes),
			}
		}
		return s.graph.session.collective("sampling", func() error { return s.sampler.Run(c, &b.Batch) })
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
		s.sampler.Free()
		s.graph.release()
	}
}

func (b *Batch) end(err error) {
	b.mu.Lock()
	b.err, b.ended = err, true
	drop := b.freed || err != nil
	b.mu.Unlock()
	if drop {
		b.Batch.Free()
	}
	close(b.done)
}

// Wait returns once the batch is there, or the error that ended it.
func (b *Batch) Wait() error {
	<-b.done
	return b.err
}

// What Array returns.
const (
	BatchNodes = iota
	BatchIndptr
	BatchIndices
	BatchEdgeIDs
	BatchData
	BatchInput
	BatchOutput
)

// Array returns the memory of one array of a batch that is there, until Free,
// and how many of BatchNodes are destination nodes.
func (b *Batch) Array(layer, what, kind, column int) (array []byte, numDst int, err error) {
	if b.Layers == nil {
		return nil, 0, Invalid("the batch is not there")
	}
	bad := func(name string, n, have int) error {
		return Invalid("there is no %s %d: this batch has %d", name, n, have)
	}
	if layer < 0 || layer >= len(b.Layers) {
		return nil, 0, bad("layer", layer, len(b.Layers))
	}
	l := b.Layers[layer]
	pick := func(columns [][]byte) error {
		if column < 0 || column >= len(columns) {
			return bad("column", column, len(columns))
		}
		array = columns[column]
		return nil
	}
	switch what {
	case BatchNodes, BatchInput, BatchOutput:
		if kind < 0 || kind >= len(l.Nodes) {
			return nil, 0, bad("node type", kind, len(l.Nodes))
		}
		switch what {
		case BatchInput:
			err = pick(b.Inputs[kind])
		case BatchOutput:
			err = pick(b.Outputs[kind])
		default:
			array, numDst = sample.Bytes(l.Nodes[kind]), l.NumDst[kind]
		}
		return array, numDst, err
	case BatchIndptr, BatchIndices, BatchEdgeIDs, BatchData:
		if kind < 0 || kind >= len(l.Edges) {
			return nil, 0, bad("relation", kind, len(l.Edges))
		}
		e := l.Edges[kind]
		switch what {
		case BatchIndptr:
			array = sample.Bytes(e.Indptr)
		case BatchIndices:
			array = sample.Bytes(e.Indices)
		case BatchEdgeIDs:
			array = sample.Bytes(e.IDs)
		default:
			err = pick(e.Data)
		}
		return array, 0, err
	}
	return nil, 0, Invalid("there is no array %d of a batch", what)
}

// Free gives the memory of the batch back; one on its way is dropped when it comes.
func (b *Batch) Free() {
	b.mu.Lock()
	now := b.ended && !b.freed
	b.freed = true
	b.mu.Unlock()
	if now {
		b.Batch.Free()
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

// background runs operations on one communicator one after the other, in the
// order in which they were submitted. That is the order of the script, the same
// on every rank; so several samplers share one communicator, and a queue that
// nobody empties cannot hold up another.
type background struct {
	c *comm.Communicator

	mu   sync.Mutex
	cond *sync.Cond
	jobs []job
	end  bool
}

type job struct {
	run  func(c *comm.Communicator) error
	done func(error)
}

// sampling returns the session's background communicator, making it first
// where it is not there yet. Collective then.
func (s *Session) sampling() (*background, error) {
	s.mu.Lock()
	b := s.sampler
	s.mu.Unlock()
	if b != nil {
		return b, nil
	}
	id, err := s.NewComm("sampling")
	if err != nil {
		return nil, err
	}
	c, err := s.Comm(id)
	if err != nil {
		return nil, err
	}
	b = &background{c: c}
	b.cond = sync.NewCond(&b.mu)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.sampler = b
	go b.work()
	return b, nil
}

func (b *background) submit(run func(c *comm.Communicator) error, done func(error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end {
		go done(ErrClosed) // done may need the lock that the caller holds
		return
	}
	b.jobs = append(b.jobs, job{run, done})
	b.cond.Signal()
}

// do submits an operation and waits for it.
func (b *background) do(run func(c *comm.Communicator) error) error {
	result := make(chan error, 1)
	b.submit(run, func(err error) { result <- err })
	return <-result
}

func (b *background) work() {
	for {
		b.mu.Lock()
		for len(b.jobs) == 0 && !b.end {
			b.cond.Wait()
		}
		if len(b.jobs) == 0 {
			b.mu.Unlock()
			return
		}
		j, end := b.jobs[0], b.end
		b.jobs[0], b.jobs = job{}, b.jobs[1:]
		b.mu.Unlock()
		if end {
			j.done(ErrClosed)
		} else {
			j.done(b.try(j.run))
		}
	}
}

// try makes an error of a panic, and has the peers know of it.
func (b *background) try(run func(c *comm.Communicator) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("bug in the engine: %v\n%s", v, debug.Stack())
			b.c.Group().Abort(err.Error())
		}
	}()
	return run(b.c)
}

// stop has operations that wait end with ErrClosed. The one that runs ends when
// its communicator is closed.
func (b *background) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end = true
	b.cond.Signal()
}
