package export

/*
#include "abi.h"
*/
import "C"

import (
	"sync"
	"unsafe"

	"sar/core/session"
)

// sampler collects its columns until the first batch is submitted.
type sampler struct {
	graph *session.Graph

	mu     sync.Mutex
	config session.SampleConfig
	types  int
	made   *session.Sampler
	closed bool
}

//export sar_sampler_create
func sar_sampler_create(h C.sar_handle, config *C.sar_const_sample_config, out *C.sar_handle) C.sar_status {
	return guard("sar_sampler_create", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		owner := c.last()
		var from C.sar_sample_config
		if err := copyIn("config", unsafe.Pointer(&from), unsafe.Pointer(config), C.sizeof_sar_sample_config); err != nil {
			return err
		}
		if err := give("sampler", out, 0); err != nil {
			return err
		}
		cfg, err := sampleConfig(&from, g.NumRelations())
		if err != nil {
			return err
		}
		if err := g.PrepareSampling(cfg); err != nil {
			return err
		}
		types := g.NumNodeTypes()
		cfg.Inputs, cfg.Outputs = make([][]session.SampleColumn, types), make([][]session.SampleColumn, types)
		cfg.EdgeData = make([][]session.SampleColumn, g.NumRelations())
		*out = register(kindSampler, &sampler{graph: g, config: cfg, types: types}, owner)
		return nil
	})
}

func sampleConfig(from *C.sar_sample_config, relations int) (cfg session.SampleConfig, err error) {
	fanouts, err := view("fanouts", (*C.sar_const_tensor)(unsafe.Pointer(from.fanouts)))
	if err != nil {
		return cfg, err
	}
	if err := fanouts.must(int64Type); err != nil {
		return cfg, err
	}
	if len(fanouts.shape) != 2 || int(fanouts.shape[1]) != relations {
		return cfg, invalid("fanouts have shape %s: [layers, relations] with %d relations is needed", fanouts.shapeString(), relations)
	}
	numbers := elements[int64](fanouts)
	for l := range int(fanouts.shape[0]) {
		layer := make([]int, relations)
		for i := range layer {
			layer[i] = int(min(numbers[l*relations+i], 1<<30))
		}
		cfg.Fanouts = append(cfg.Fanouts, layer)
	}
	cfg.Replace, cfg.EdgeIDs, cfg.Cache = from.replace != 0, from.edge_ids != 0, int64(from.cache_bytes)
	return cfg, nil
}

func useSampler(c *call, h C.sar_handle) (*sampler, error) { return use[*sampler](c, h, kindSampler) }

//export sar_sampler_column
func sar_sampler_column(h C.sar_handle, what, kind C.int32_t, rows *C.sar_const_tensor) C.sar_status {
	return guard("sar_sampler_column", func(c *call) error {
		s, err := useSampler(c, h)
		if err != nil {
			return err
		}
		v, err := view("rows", rows)
		if err != nil {
			return err
		}
		if _, _, err := v.rows(); err != nil {
			return err
		}
		size := v.itemSize()
		for _, d := range v.shape[1:] {
			size *= int(d)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.made != nil {
			return invalid("a column was registered after the first batch")
		}
		if what == C.SAR_SAMPLE_WEIGHT {
			return s.weight(int(kind), v)
		}
		column := session.SampleColumn{Rows: v.bytes(), RowBytes: size}
		lists := [3][][]session.SampleColumn{s.config.Inputs, s.config.Outputs, s.config.EdgeData}
		if what < 0 || int(what) >= len(lists) {
			return invalid("what is %d: there are SAR_SAMPLE_INPUT (0) to WEIGHT (3)", what)
		}
		list := lists[what]
		if kind < 0 || int(kind) >= len(list) {
			return invalid("type is %d: there are %d", kind, len(list))
		}
		list[kind] = append(list[kind], column)
		return nil
	})
}

// weight registers the weights of a relation. Those of the others have no
// edges until they are registered too.
func (s *sampler) weight(relation int, v tensor) error {
	if err := v.must(float32Type); err != nil {
		return err
	}
	if relation < 0 || relation >= s.graph.NumRelations() || len(v.shape) != 1 {
		return invalid("weights of shape %s for relation %d: one number per edge of one of %d relations is needed", v.shapeString(), relation, s.graph.NumRelations())
	}
	if s.config.Weights == nil {
		s.config.Weights = make([][]float32, s.graph.NumRelations())
	}
	s.config.Weights[relation] = elements[float32](v)
	return nil
}

//export sar_sampler_submit
func sar_sampler_submit(h C.sar_handle, seeds *C.sar_const_tensor, numTypes C.int32_t, key C.uint64_t, out *C.sar_handle) C.sar_status {
	return guard("sar_sampler_submit", func(c *call) error {
		s, err := useSampler(c, h)
		if err != nil {
			return err
		}
		owner := c.last()
		if err := give("batch", out, 0); err != nil {
			return err
		}
		if int(numTypes) != s.types || seeds == nil {
			return invalid("seeds are given for %d node types: there are %d", numTypes, s.types)
		}
		rows := make([][]int64, s.types)
		given := unsafe.Slice(seeds, numTypes)
		for t := range rows {
			if rows[t], err = vector[int64]("seeds", &given[t], int64Type); err != nil {
				return err
			}
		}
		made, err := s.start()
		if err != nil {
			return err
		}
		b, err := made.Submit(rows, uint64(key))
		if err != nil {
			return err
		}
		*out = register(kindBatch, b, owner)
		return nil
	})
}

// start makes the engine's sampler out of what was collected.
func (s *sampler) start() (*session.Sampler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, &closedError{kindSampler}
	}
	if s.made == nil {
		made, err := s.graph.NewSampler(s.config)
		if err != nil {
			return nil, err
		}
		s.made = made
	}
	return s.made, nil
}

//export sar_sampler_free
func sar_sampler_free(h C.sar_handle) C.sar_status {
	return guard("sar_sampler_free", func(*call) error {
		e, err := remove(h, kindSampler)
		if err != nil {
			return err
		}
		e.busy.Lock()
		defer e.busy.Unlock()
		s := e.value.(*sampler)
		s.closed = true
		if s.made != nil {
			s.made.Close()
		}
		return nil
	})
}

func useBatch(c *call, h C.sar_handle) (*session.Batch, error) {
	return use[*session.Batch](c, h, kindBatch)
}

//export sar_batch_wait
func sar_batch_wait(h C.sar_handle) C.sar_status {
	return guard("sar_batch_wait", func(c *call) error {
		b, err := useBatch(c, h)
		if err != nil {
			return err
		}
		return b.Wait()
	})
}

//export sar_batch_array
func sar_batch_array(h C.sar_handle, layer, what, kind, column C.int32_t, data *unsafe.Pointer, bytes, numDst *C.int64_t) C.sar_status {
	return guard("sar_batch_array", func(c *call) error {
		b, err := useBatch(c, h)
		if err != nil {
			return err
		}
		if err := b.Wait(); err != nil {
			return err
		}
		array, dst, err := b.Array(int(layer), int(what), int(kind), int(column))
		if err != nil {
			return err
		}
		if numDst != nil {
			*numDst = C.int64_t(dst)
		}
		if err := give("bytes", bytes, C.int64_t(len(array))); err != nil {
			return err
		}
		if len(array) == 0 {
			return give("data", data, nil)
		}
		return give("data", data, unsafe.Pointer(unsafe.SliceData(array)))
	})
}

//export sar_batch_free
func sar_batch_free(h C.sar_handle) C.sar_status {
	return guard("sar_batch_free", func(*call) error {
		e, err := remove(h, kindBatch)
		if err != nil {
			return err
		}
		e.busy.Lock()
		defer e.busy.Unlock()
		e.value.(*session.Batch).Free()
		return nil
	})
}
