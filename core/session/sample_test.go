package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// sampled is the oracle's view of what is sampled from: the graph and, by
// (rank, position), the edges in the order in which ids count.
type sampled struct {
	whole
	degree []int
	order  []int // edge id -> position in the whole graph
}

func newSampled(g whole) *sampled {
	s := &sampled{whole: g, degree: make([]int, g.n)}
	for _, v := range g.dst {
		s.degree[v]++
	}
	for p := range len(g.starts) - 1 {
		_, _, at := g.of(p)
		s.order = append(s.order, at...)
	}
	return s
}

func nodeBytes(g *sampled, p int) []byte {
	var out []byte
	for id := g.starts[p]; id < g.starts[p+1]; id++ {
		out = append(out, byte(id), byte(id>>8), byte(id*7))
	}
	return out
}

// config fetches 3 bytes a node and 4 an edge.
func (g *sampled) config(p int, replace bool, fanouts ...int) SampleConfig {
	cfg := SampleConfig{Replace: replace, EdgeIDs: true}
	for _, n := range fanouts {
		cfg.Fanouts = append(cfg.Fanouts, []int{n})
	}
	_, _, at := g.of(p)
	var edges []byte
	for _, k := range at {
		edges = binary.LittleEndian.AppendUint32(edges, uint32(k))
	}
	column := SampleColumn{Rows: nodeBytes(g, p), RowBytes: 3}
	cfg.EdgeData = [][]SampleColumn{{{Rows: edges, RowBytes: 4}}}
	cfg.Inputs, cfg.Outputs = [][]SampleColumn{{column}}, [][]SampleColumn{{column}}
	return cfg
}

// check holds a batch against the graph.
func (g *sampled) check(b *Batch, p int, cfg SampleConfig) error {
	for l, layer := range b.Layers {
		nodes, e := layer.Nodes[0], layer.Edges[0]
		if l > 0 && !slices.Equal(nodes, b.Layers[l-1].Nodes[0][:b.Layers[l-1].NumDst[0]]) {
			return fmt.Errorf("layer %d reads other nodes than layer %d makes", l, l-1)
		}
		sorted := slices.Clone(nodes)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != len(nodes) {
			return fmt.Errorf("layer %d has a node twice", l)
		}
		if len(e.Indptr) != layer.NumDst[0]+1 {
			return fmt.Errorf("layer %d: %d offsets for %d nodes", l, len(e.Indptr), layer.NumDst[0])
		}
		for i := range layer.NumDst[0] {
			from, to := e.Indptr[i], e.Indptr[i+1]
			have, fanout := g.degree[nodes[i]], cfg.Fanouts[l][0]
			want := fanout
			if have == 0 || fanout == -1 || fanout >= have && !cfg.Replace {
				want = have
			}
			if int(to-from) != want {
				return fmt.Errorf("layer %d: node %d of degree %d got %d edges, expected %d", l, nodes[i], have, to-from, want)
			}
			ids := slices.Clone(e.IDs[from:to])
			slices.Sort(ids)
			if !cfg.Replace && len(slices.Compact(ids)) != want {
				return fmt.Errorf("layer %d: node %d got an edge twice", l, nodes[i])
			}
			for k := from; k < to; k++ {
				at := g.order[e.IDs[k]]
				if g.src[at] != nodes[e.Indices[k]] || g.dst[at] != nodes[i] {
					return fmt.Errorf("layer %d: edge %d joins %d and %d, and the block says %d and %d",
						l, e.IDs[k], g.src[at], g.dst[at], nodes[e.Indices[k]], nodes[i])
				}
				if got := binary.LittleEndian.Uint32(e.Data[0][4*k:]); int(got) != at {
					return fmt.Errorf("layer %d: edge %d has the data of edge %d", l, at, got)
				}
			}
		}
	}
	var want []byte
	for _, id := range b.Layers[0].Nodes[0] {
		want = append(want, byte(id), byte(id>>8), byte(id*7))
	}
	if !bytes.Equal(b.Inputs[0][0], want) {
		return errors.New("wrong features of input nodes")
	}
	last := b.Layers[len(b.Layers)-1]
	want = want[:0]
	for i, row := range b.Seeds[0] {
		id := g.starts[p] + int64(row)
		if last.Nodes[0][i] != id {
			return fmt.Errorf("seed %d is node %d, and the block says %d", i, id, last.Nodes[0][i])
		}
		want = append(want, byte(id), byte(id>>8), byte(id*7))
	}
	if !bytes.Equal(b.Outputs[0][0], want) {
		return errors.New("wrong features of seeds")
	}
	return nil
}

func (g *sampled) seeds(rng *rand.Rand, p int) [][]int64 {
	own := int(g.starts[p+1] - g.starts[p])
	var rows []int64
	for _, row := range rng.Perm(own)[:rng.IntN(own+1)] {
		rows = append(rows, int64(row))
	}
	return [][]int64{rows}
}

func TestSampling(t *testing.T) {
	for _, parts := range []int{1, 2, 3, 5, 8} {
		if parts > 3 && testing.Short() {
			continue
		}
		rng := rand.New(rand.NewPCG(5, uint64(parts)))
		g := newSampled(randomGraph(rng, 120, 900, parts))
		workers(t, parts, Config{}, func(s *Session) error {
			p := s.Rank()
			rng := rand.New(rand.NewPCG(9, uint64(p)))
			src, dst, _ := g.of(p)
			dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
			if err != nil {
				return err
			}
			cfgs := []SampleConfig{g.config(p, false, 3, 0, -1, 4), g.config(p, true, 5, 2), g.config(p, false, 4, -1),
				g.config(p, false, 2, 6)}
			cfgs[1].Cache, cfgs[2].Cache = 20*3, 1<<20 // room for some rows of 3 bytes, and for all
			cfgs[2].Wide, cfgs[3].Wide = true, true
			n := len(cfgs)
			var samplers []*Sampler
			for _, cfg := range cfgs {
				sampler, err := dg.NewSampler(cfg)
				if err != nil {
					return err
				}
				samplers = append(samplers, sampler)
			}
			dg.Free() // it lives on while samplers use it
			var waiting []*Batch
			for round := range 6 * n {
				b, err := samplers[round%n].Submit(g.seeds(rng, p), uint64(round/4))
				if err != nil {
					return err
				}
				if round == 5 { // while batches are on their way
					if err := s.SetWindow(4 << 20); err != nil {
						return err
					}
				}
				if waiting = append(waiting, b); round == 7 {
					b.Free() // dropped before it is there
				}
			}
			for round, b := range waiting {
				if err := b.Wait(ctx); err != nil {
					return err
				}
				if round != 7 {
					if err := g.check(b, p, cfgs[round%n]); err != nil {
						return fmt.Errorf("P=%d, rank %d, batch %d: %w", parts, p, round, err)
					}
				}
			}
			for _, sampler := range samplers {
				sampler.Close()
			}
			if err := g.check(waiting[len(waiting)-1], p, cfgs[n-1]); err != nil {
				return fmt.Errorf("after Close: %w", err)
			}
			for _, b := range waiting {
				b.Free()
			}
			return nil
		})
	}
}

// TestSamplingDoesNotDependOnThreads also draws for one node from all ranks.
func TestSamplingDoesNotDependOnThreads(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	g := newSampled(randomGraph(rng, 4000, 40000, 3))
	defer pool.SetThreads(pool.Threads())
	var first [3][]int64
	for _, threads := range []int{1, 4} {
		pool.SetThreads(threads)
		workers(t, 3, Config{}, func(s *Session) error {
			p := s.Rank()
			src, dst, _ := g.of(p)
			dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
			if err != nil {
				return err
			}
			defer dg.Free()
			sampler, err := dg.NewSampler(g.config(p, false, 4, 6))
			if err != nil {
				return err
			}
			defer sampler.Close()
			var rows []int64
			for row := range g.starts[p+1] - g.starts[p] {
				rows = append(rows, row)
			}
			b, err := sampler.Submit([][]int64{rows}, 42)
			if err == nil {
				err = b.Wait(ctx)
			}
			if err != nil {
				return err
			}
			defer b.Free()
			drawn := slices.Clone(b.Layers[0].Edges[0].IDs)
			if threads > 1 && !slices.Equal(drawn, first[p]) {
				return fmt.Errorf("rank %d drew other edges with %d threads", p, threads)
			}
			first[p] = drawn
			return nil
		})
	}
}

func TestSamplerArguments(t *testing.T) {
	g := newSampled(randomGraph(rand.New(rand.NewPCG(1, 1)), 50, 300, 1))
	workers(t, 1, Config{}, func(s *Session) error {
		dg, err := s.GraphFromEdges(ctx, g.starts, g.src, g.dst)
		if err != nil {
			return err
		}
		defer dg.Free()
		bad := map[string]func(cfg *SampleConfig){
			"fanouts are empty": func(cfg *SampleConfig) { cfg.Fanouts = nil },
			"it must be -1":     func(cfg *SampleConfig) { cfg.Fanouts[1][0] = -2 },
			"2 fan-outs":        func(cfg *SampleConfig) { cfg.Fanouts[0] = []int{1, 2} },
			"weights, and":      func(cfg *SampleConfig) { cfg.Weights = [][]float32{{1}} },
			"edge data has":     func(cfg *SampleConfig) { cfg.EdgeData[0][0].RowBytes = 5 },
			"a feature has":     func(cfg *SampleConfig) { cfg.Inputs[0][0].Rows = nil },
			"weight of edge 3 o": func(cfg *SampleConfig) {
				cfg.Weights = [][]float32{make([]float32, len(g.src))}
				cfg.Weights[0][3] = -1
			},
		}
		for want, spoil := range bad {
			cfg := g.config(0, false, 2, 2)
			spoil(&cfg)
			_, err := dg.NewSampler(cfg)
			var argument *ArgumentError
			if !errors.As(err, &argument) || !bytes.Contains([]byte(err.Error()), []byte(want)) {
				return fmt.Errorf("%q expected, got %v", want, err)
			}
		}
		sampler, err := dg.NewSampler(g.config(0, false, 2))
		if err != nil {
			return err
		}
		for _, rows := range [][]int64{{0, 50}, {-1}, {3, 1, 3}} {
			if _, err := sampler.Submit([][]int64{rows}, 0); err == nil {
				return fmt.Errorf("seeds %v were taken", rows)
			}
		}
		sampler.Close()
		if _, err := sampler.Submit([][]int64{{1}}, 0); !errors.Is(err, ErrClosed) {
			return fmt.Errorf("a closed sampler says %v", err)
		}
		return nil
	})
}
