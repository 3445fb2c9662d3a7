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
	return guard("sar_dataset_open", func(*call) error {
		if err := give("dataset", out, 0); err != nil {
			return err
		}
		d, err := session.OpenDataset(text(path))
		if err != nil {
			return err
		}
		*out = register(kindDataset, d, nil)
		return nil
	})
}

//export sar_dataset_close
func sar_dataset_close(h C.sar_handle) C.sar_status {
	return guard("sar_dataset_close", func(*call) error {
		e, err := remove(h, kindDataset)
		if err != nil {
			return err
		}
		e.busy.Lock() // until the reads that go on are done
		defer e.busy.Unlock()
		return e.value.(*session.Dataset).Close()
	})
}

func useDataset(c *call, h C.sar_handle) (*session.Dataset, error) {
	return use[*session.Dataset](c, h, kindDataset)
}

//export sar_dataset_add_self_loops
func sar_dataset_add_self_loops(h C.sar_handle) C.sar_status {
	return guard("sar_dataset_add_self_loops", func(c *call) error {
		d, err := useDataset(c, h)
		if err != nil {
			return err
		}
		return d.AddSelfLoops()
	})
}

//export sar_dataset_info
func sar_dataset_info(h C.sar_handle, json **C.char) C.sar_status {
	return guard("sar_dataset_info", func(c *call) error {
		d, err := useDataset(c, h)
		if err != nil {
			return err
		}
		return giveJSON(json, d.Info())
	})
}

//export sar_dataset_adjacency
func sar_dataset_adjacency(h C.sar_handle, xadj, adjncy *C.DLTensor, length *C.int64_t) C.sar_status {
	return guard("sar_dataset_adjacency", func(c *call) error {
		d, err := useDataset(c, h)
		if err != nil {
			return err
		}
		if adjncy == nil {
			n, err := d.AdjacencyLen()
			if err != nil {
				return err
			}
			return give("length", length, C.int64_t(n))
		}
		ptr, err := vector[int64]("xadj", constant(xadj), int64Type)
		if err != nil {
			return err
		}
		v, err := view("adjncy", constant(adjncy))
		if err != nil {
			return err
		}
		switch v.dtype {
		case int64Type:
			err = session.FillAdjacency(d, ptr, elements[int64](v))
		case int32Type:
			err = session.FillAdjacency(d, ptr, elements[int32](v))
		default:
			err = wrongType("tensor adjncy is %s, and must be int64 or int32", v.dtype)
		}
		if err == nil && length != nil {
			*length = C.int64_t(v.n)
		}
		return err
	})
}

//export sar_dataset_assign
func sar_dataset_assign(h C.sar_handle, method *C.sar_const_char, parts C.int32_t, seed C.uint64_t, assignment *C.DLTensor) C.sar_status {
	return guard("sar_dataset_assign", func(c *call) error {
		d, a, err := datasetAndAssignment(c, h, constant(assignment))
		if err != nil {
			return err
		}
		return d.Assign(text(method), int(parts), uint64(seed), a)
	})
}

//export sar_dataset_quality
func sar_dataset_quality(h C.sar_handle, assignment *C.sar_const_tensor, parts C.int32_t, json **C.char) C.sar_status {
	return guard("sar_dataset_quality", func(c *call) error {
		d, a, err := datasetAndAssignment(c, h, assignment)
		if err != nil {
			return err
		}
		report, err := d.Quality(a, int(parts))
		if err != nil {
			return err
		}
		return giveJSON(json, report)
	})
}

//export sar_dataset_weights
func sar_dataset_weights(h C.sar_handle, what *C.sar_const_char, weights *C.DLTensor) C.sar_status {
	return guard("sar_dataset_weights", func(c *call) error {
		d, err := useDataset(c, h)
		if err != nil {
			return err
		}
		w, err := vector[int32]("weights", constant(weights), int32Type)
		if err != nil {
			return err
		}
		return d.Weigh(text(what), w)
	})
}

//export sar_dataset_undirect
func sar_dataset_undirect(h C.sar_handle, scratch *C.sar_const_char, memory C.int64_t, progress C.sar_progress, user unsafe.Pointer) C.sar_status {
	return guard("sar_dataset_undirect", func(c *call) error {
		d, err := useDataset(c, h)
		if err != nil {
			return err
		}
		return d.Undirect(text(scratch), int64(memory), teller(progress, user))
	})
}

//export sar_dataset_fennel
func sar_dataset_fennel(h C.sar_handle, parts, groups C.int32_t, imbalance C.double, seed C.uint64_t,
	weights *C.sar_const_tensor, assignment *C.DLTensor, progress C.sar_progress, user unsafe.Pointer) C.sar_status {
	return guard("sar_dataset_fennel", func(c *call) error {
		d, a, err := datasetAndAssignment(c, h, constant(assignment))
		if err != nil {
			return err
		}
		f := session.Fennel{Parts: int(parts), Groups: int(groups), Imbalance: float64(imbalance), Seed: uint64(seed), Progress: teller(progress, user)}
		if weights != nil {
			v, err := view("weights", weights)
			if err == nil {
				err = v.must(int32Type)
			}
			if err != nil {
				return err
			}
			if len(v.shape) != 2 || v.shape[1] != int64(len(a)) {
				return invalid("tensor weights has shape %s, and must have a row of %d numbers for each kind", v.shapeString(), len(a))
			}
			for all := elements[int32](v); len(all) > 0; all = all[len(a):] {
				f.Weights = append(f.Weights, all[:len(a)])
			}
		}
		return d.Fennel(f, a)
	})
}

//export sar_dataset_parhip
func sar_dataset_parhip(h C.sar_handle, path *C.sar_const_char, weights, assignment *C.sar_const_tensor, part C.int32_t,
	nodes, neighbours *C.int64_t) C.sar_status {
	return guard("sar_dataset_parhip", func(c *call) error {
		d, err := useDataset(c, h)
		if err != nil {
			return err
		}
		w, err := optionalVector[int32]("weights", weights, int32Type)
		if err != nil {
			return err
		}
		a, err := optionalVector[int32]("assignment", assignment, int32Type)
		if err != nil {
			return err
		}
		var of *session.Subgraph
		if assignment != nil {
			of = &session.Subgraph{Assignment: a, Part: int32(part)}
		}
		n, m, err := d.WriteParHIP(text(path), w, of)
		if err == nil {
			err = give("nodes", nodes, C.int64_t(n))
		}
		if err == nil {
			err = give("neighbours", neighbours, C.int64_t(m))
		}
		return err
	})
}

//export sar_dataset_write
func sar_dataset_write(h C.sar_handle, assignment *C.sar_const_tensor, parts C.int32_t, dir, name, method *C.sar_const_char,
	progress C.sar_progress, user unsafe.Pointer) C.sar_status {
	return guard("sar_dataset_write", func(c *call) error {
		d, a, err := datasetAndAssignment(c, h, assignment)
		if err != nil {
			return err
		}
		return d.Write(a, int(parts), text(dir), text(name), text(method), teller(progress, user))
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

func datasetAndAssignment(c *call, h C.sar_handle, t *C.sar_const_tensor) (*session.Dataset, []int32, error) {
	d, err := useDataset(c, h)
	if err != nil {
		return nil, nil, err
	}
	a, err := vector[int32]("assignment", t, int32Type)
	return d, a, err
}

//export sar_graph_directory_sum
func sar_graph_directory_sum(dir *C.sar_const_char) C.sar_status {
	return guard("sar_graph_directory_sum", func(*call) error { return session.SumGraphDir(text(dir)) })
}

//export sar_graph_directory_verify
func sar_graph_directory_verify(dir *C.sar_const_char, json **C.char) C.sar_status {
	return guard("sar_graph_directory_verify", func(*call) error {
		reports, err := session.VerifyGraphDir(text(dir))
		if err != nil {
			return err
		}
		return giveJSON(json, reports)
	})
}
