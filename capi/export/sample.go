package export

/*
#include "abi.h"
*/
import "C"

import (
	"context"
	"sync"
	"unsafe"

	"sar/core/session"
)

// sampler collects its columns until the first batch is submitted.
type sampler struct {
	graph *session.Graph

	mu     sync.Mutex
	config session.SampleConfig
	made   *session.Sampler
	closed bool
}

//export sar_sampler_create
func sar_sampler_create(h C.sar_handle, config *C.sar_const_sample_config, out *C.sar_handle) C.sar_status {
	return guard("sar_sampler_create", func(c *call) {
		g, from := use(c, h, graphs), copyIn("config", config)
		cfg := session.SampleConfig{
			Fanouts: fanouts(view("fanouts", from.fanouts), g.NumRelations()),
			Replace: from.replace != 0, EdgeIDs: from.edge_ids != 0, Cache: int64(from.cache_bytes),
		}
		create(c, samplers, out, func() (*sampler, error) {
			if err := g.PrepareSampling(cfg); err != nil {
				return nil, err
			}
			types := g.NumNodeTypes()
			cfg.Inputs, cfg.Outputs = make([][]session.SampleColumn, types), make([][]session.SampleColumn, types)
			cfg.EdgeData = make([][]session.SampleColumn, g.NumRelations())
			return &sampler{graph: g, config: cfg}, nil
		})
	})
}

// fanouts reads a tensor [layers, relations].
func fanouts(v tensor, relations int) (out [][]int) {
	numbers := elements[int64](v)
	demand(len(v.shape) == 2 && int(v.shape[1]) == relations,
		"fanouts have shape %s: [layers, relations] with %d relations is needed", v.shape, relations)
	for l := range int(v.shape[0]) {
		layer := make([]int, relations)
		for i := range layer {
			layer[i] = int(min(numbers[l*relations+i], 1<<30))
		}
		out = append(out, layer)
	}
	return out
}

//export sar_sampler_column
func sar_sampler_column(h C.sar_handle, what, kind C.int32_t, rows *C.sar_const_tensor) C.sar_status {
	return guard("sar_sampler_column", func(c *call) {
		s, v := use(c, h, samplers), view("rows", rows)
		v.rows() // refuses what has none
		size := v.itemSize()
		for _, d := range v.shape[1:] {
			size *= int(d)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		demand(s.made == nil, "a column was registered after the first batch")
		if what == C.SAR_SAMPLE_WEIGHT {
			s.weight(int(kind), v)
			return
		}
		lists := [3][][]session.SampleColumn{s.config.Inputs, s.config.Outputs, s.config.EdgeData}
		demand(what >= 0 && int(what) < len(lists), "what is %d: there are SAR_SAMPLE_INPUT (0) to WEIGHT (3)", what)
		list := lists[what]
		demand(kind >= 0 && int(kind) < len(list), "type is %d: there are %d", kind, len(list))
		list[kind] = append(list[kind], session.SampleColumn{Rows: v.bytes(), RowBytes: size})
	})
}

// weight registers the weights of a relation. Those of the others have no
// edges until they are registered too.
func (s *sampler) weight(relation int, v tensor) {
	weights, n := elements[float32](v), s.graph.NumRelations()
	demand(relation >= 0 && relation < n && len(v.shape) == 1,
		"weights of shape %s for relation %d: one number per edge of one of %d relations is needed", v.shape, relation, n)
	if s.config.Weights == nil {
		s.config.Weights = make([][]float32, n)
	}
	s.config.Weights[relation] = weights
}

//export sar_sampler_submit
func sar_sampler_submit(
	h C.sar_handle, seeds *C.sar_const_tensor, numTypes C.int32_t, key C.uint64_t, out *C.sar_handle,
) C.sar_status {
	return guard("sar_sampler_submit", func(c *call) {
		s, given := use(c, h, samplers), views("seeds", seeds, numTypes)
		n := len(s.config.Inputs)
		demand(len(given) == n, "seeds are given for %d node types: there are %d", numTypes, n)
		create(c, batches, out, func() (*session.Batch, error) {
			rows := make([][]int64, len(given))
			for t, v := range given {
				rows[t] = line[int64](v)
			}
			made, err := s.start()
			if err != nil {
				return nil, err
			}
			return made.Submit(rows, uint64(key))
		})
	})
}

// start makes the engine's sampler out of what was collected.
func (s *sampler) start() (*session.Sampler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, &closedError{kind(samplers)}
	}
	var err error
	if s.made == nil {
		s.made, err = s.graph.NewSampler(s.config)
	}
	return s.made, err
}

//export sar_sampler_free
func sar_sampler_free(h C.sar_handle) C.sar_status {
	return guard("sar_sampler_free", func(*call) {
		need(free(h, samplers, func(s *sampler) error {
			s.closed = true
			if s.made != nil {
				s.made.Close()
			}
			return nil
		}))
	})
}

//export sar_batch_wait
func sar_batch_wait(h C.sar_handle) C.sar_status {
	return guard("sar_batch_wait", func(c *call) { need(use(c, h, batches).Wait(context.Background())) })
}

//export sar_batch_array
func sar_batch_array(
	h C.sar_handle, layer, what, kind, column C.int32_t, data *unsafe.Pointer, bytes, numDst *C.int64_t,
) C.sar_status {
	return guard("sar_batch_array", func(c *call) {
		b := use(c, h, batches)
		need(b.Wait(context.Background()))
		array, dst, err := b.Array(int(layer), session.BatchArray(what), int(kind), int(column))
		need(err)
		if numDst != nil {
			*numDst = C.int64_t(dst)
		}
		give("bytes", bytes, C.int64_t(len(array)))
		give("data", data, address(array))
	})
}

//export sar_batch_free
func sar_batch_free(h C.sar_handle) C.sar_status {
	return guard("sar_batch_free", func(*call) { need(drop(h, batches)) })
}
