package export

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"sar/core/session"
)

//export sar_dataset_open
func sar_dataset_open(path *C.sar_const_char, out *C.sar_handle) C.sar_status {
	return guard("sar_dataset_open", func(c *call) {
		create(c, datasets, out, func() (*session.Dataset, error) { return session.OpenDataset(text(path)) })
	})
}

//export sar_dataset_close
func sar_dataset_close(h C.sar_handle) C.sar_status {
	return guard("sar_dataset_close", func(*call) { need(free(h, datasets, (*session.Dataset).Close)) })
}

//export sar_dataset_add_self_loops
func sar_dataset_add_self_loops(h C.sar_handle) C.sar_status {
	return guard("sar_dataset_add_self_loops", func(c *call) { need(use(c, h, datasets).AddSelfLoops()) })
}

//export sar_dataset_info
func sar_dataset_info(h C.sar_handle, json **C.char) C.sar_status {
	return guard("sar_dataset_info", func(c *call) { giveJSON(json, use(c, h, datasets).Info()) })
}

//export sar_dataset_adjacency
func sar_dataset_adjacency(h C.sar_handle, xadj, adjncy *C.DLTensor, length *C.int64_t) C.sar_status {
	return guard("sar_dataset_adjacency", func(c *call) {
		d := use(c, h, datasets)
		if adjncy == nil {
			give("length", length, C.int64_t(must(d.AdjacencyLen())))
			return
		}
		ptr, v := vector[int64]("xadj", xadj), view("adjncy", adjncy)
		switch v.dtype {
		case session.DTypeFor[int64]():
			need(session.FillAdjacency(d, ptr, elements[int64](v)))
		case session.DTypeFor[int32]():
			need(session.FillAdjacency(d, ptr, elements[int32](v)))
		default:
			refuseType("tensor adjncy is %s, and must be int64 or int32", v.dtype)
		}
		if length != nil {
			*length = C.int64_t(v.n)
		}
	})
}

//export sar_dataset_assign
func sar_dataset_assign(
	h C.sar_handle, method *C.sar_const_char, parts C.int32_t, seed C.uint64_t, assignment *C.DLTensor,
) C.sar_status {
	return guard("sar_dataset_assign", func(c *call) {
		d, a := use(c, h, datasets), vector[int32]("assignment", assignment)
		need(d.Assign(session.Method(text(method)), int(parts), uint64(seed), a))
	})
}

//export sar_dataset_quality
func sar_dataset_quality(
	h C.sar_handle, assignment *C.sar_const_tensor, parts C.int32_t, json **C.char,
) C.sar_status {
	return guard("sar_dataset_quality", func(c *call) {
		d, a := use(c, h, datasets), vector[int32]("assignment", assignment)
		giveJSON(json, must(d.Quality(a, int(parts))))
	})
}

//export sar_dataset_weights
func sar_dataset_weights(h C.sar_handle, what *C.sar_const_char, weights *C.DLTensor) C.sar_status {
	return guard("sar_dataset_weights", func(c *call) {
		need(use(c, h, datasets).Weigh(session.Weight(text(what)), vector[int32]("weights", weights)))
	})
}

//export sar_dataset_undirect
func sar_dataset_undirect(
	h C.sar_handle, scratch *C.sar_const_char, memory C.int64_t, outward C.int32_t,
	progress C.sar_progress, user unsafe.Pointer,
) C.sar_status {
	return guard("sar_dataset_undirect", func(c *call) {
		need(use(c, h, datasets).Undirect(text(scratch), int64(memory), outward != 0, teller(progress, user)))
	})
}

//export sar_dataset_fennel
func sar_dataset_fennel(
	h C.sar_handle, parts, groups C.int32_t, imbalance C.double, seed C.uint64_t, rows C.int32_t,
	weights *C.sar_const_tensor, assignment *C.DLTensor, progress C.sar_progress, user unsafe.Pointer,
) C.sar_status {
	return guard("sar_dataset_fennel", func(c *call) {
		d, a := use(c, h, datasets), vector[int32]("assignment", assignment)
		f := session.Fennel{
			Parts: int(parts), Groups: int(groups), Imbalance: float64(imbalance), Seed: uint64(seed),
			Rows: rows != 0, Progress: teller(progress, user),
		}
		if weights != nil {
			v := view("weights", weights)
			all := elements[int32](v)
			demand(len(v.shape) == 2 && v.shape[1] == int64(len(a)),
				"tensor weights has shape %s, and must have a row of %d numbers for each kind", v.shape, len(a))
			for ; len(all) > 0; all = all[len(a):] {
				f.Weights = append(f.Weights, all[:len(a)])
			}
		}
		need(d.Fennel(f, a))
	})
}

//export sar_dataset_parhip
func sar_dataset_parhip(
	h C.sar_handle, path *C.sar_const_char, weights, assignment *C.sar_const_tensor, part C.int32_t,
	nodes, neighbours *C.int64_t,
) C.sar_status {
	return guard("sar_dataset_parhip", func(c *call) {
		d := use(c, h, datasets)
		give("nodes", nodes, 0)
		give("neighbours", neighbours, 0)
		var of *session.Subgraph
		if assignment != nil {
			of = &session.Subgraph{Assignment: vector[int32]("assignment", assignment), Part: int32(part)}
		}
		n, m, err := d.WriteParHIP(text(path), optional[int32]("weights", weights), of)
		*nodes, *neighbours = C.int64_t(n), C.int64_t(m)
		need(err)
	})
}

//export sar_dataset_write_parts
func sar_dataset_write_parts(
	h C.sar_handle, assignment *C.sar_const_tensor, parts C.int32_t, dir, options *C.sar_const_char,
	progress C.sar_progress, user unsafe.Pointer,
) C.sar_status {
	return guard("sar_dataset_write_parts", func(c *call) {
		d, a := use(c, h, datasets), vector[int32]("assignment", assignment)
		o := readJSON[session.WriteOptions]("options", options)
		need(d.WriteParts(a, int(parts), text(dir), o, teller(progress, user)))
	})
}

//export sar_dataset_least_memory
func sar_dataset_least_memory(
	h C.sar_handle, parts C.int32_t, format *C.sar_const_char, bytes *C.int64_t,
) C.sar_status {
	return guard("sar_dataset_least_memory", func(c *call) {
		give("bytes", bytes, C.int64_t(must(use(c, h, datasets).LeastMemory(int(parts), text(format)))))
	})
}

// teller calls progress.
func teller(progress C.sar_progress, user unsafe.Pointer) session.Progress {
	return func(done, total int64) error {
		if C.call_progress(progress, user, C.int64_t(done), C.int64_t(total)) != 0 {
			return session.ErrStopped
		}
		return nil
	}
}

//export sar_graph_directory_sum
func sar_graph_directory_sum(dir *C.sar_const_char) C.sar_status {
	return guard("sar_graph_directory_sum", func(*call) { need(session.SumGraphDir(text(dir))) })
}

//export sar_graph_directory_verify
func sar_graph_directory_verify(dir *C.sar_const_char, json **C.char) C.sar_status {
	return guard("sar_graph_directory_verify", func(*call) {
		giveJSON(json, must(session.VerifyGraphDir(text(dir))))
	})
}
