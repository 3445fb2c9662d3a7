package export

/*
#include "abi.h"
*/
import "C"

import (
	"sar/core/session"
)

//export sar_graph_block
func sar_graph_block(h C.sar_handle, seeds, seedStart *C.sar_const_tensor, keepSeeds C.int32_t, out *C.sar_handle) C.sar_status {
	return guard("sar_graph_block", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		owner := c.last()
		if err := give("block", out, 0); err != nil {
			return err
		}
		rows, err := vector[int64]("seeds", seeds, int64Type)
		if err != nil {
			return err
		}
		start, err := vector[int64]("seed_start", seedStart, int64Type)
		if err != nil {
			return err
		}
		byType, err := runs(rows, start)
		if err != nil {
			return err
		}
		b, err := g.Block(byType, keepSeeds != 0)
		if err != nil {
			return err
		}
		*out = register(kindGraph, b, owner)
		return nil
	})
}

// runs cuts rows where start says.
func runs(rows, start []int64) ([][]int64, error) {
	if len(start) == 0 || start[0] != 0 || start[len(start)-1] != int64(len(rows)) {
		return nil, invalid("seed_start must go from 0 to the %d entries of seeds", len(rows))
	}
	out := make([][]int64, len(start)-1)
	for t := range out {
		if start[t+1] < start[t] || start[t+1] > int64(len(rows)) {
			return nil, invalid("seed_start[%d] is %d after %d: it must not descend", t+1, start[t+1], start[t])
		}
		out[t] = rows[start[t]:start[t+1]]
	}
	return out, nil
}

//export sar_graph_block_counts
func sar_graph_block_counts(h C.sar_handle, dst C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_block_counts", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		counts, err := vector[int64]("out", constant(out), int64Type)
		if err != nil {
			return err
		}
		if n := g.NumNodeTypes(); len(counts) != n {
			return invalid("out has %d entries for %d node types", len(counts), n)
		}
		for t := range counts {
			rows, err := g.BlockRows(t, dst != 0)
			if err != nil {
				return err
			}
			counts[t] = int64(len(rows))
		}
		return nil
	})
}

//export sar_graph_block_rows
func sar_graph_block_rows(h C.sar_handle, nodeType, dst C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_block_rows", func(c *call) error {
		return widen(c, h, out, "rows", func(g *session.Graph) ([]int32, error) { return g.BlockRows(int(nodeType), dst != 0) })
	})
}

//export sar_graph_block_edges
func sar_graph_block_edges(h C.sar_handle, relation C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_block_edges", func(c *call) error {
		return widen(c, h, out, "edges", func(g *session.Graph) ([]int32, error) { return g.BlockEdges(int(relation)) })
	})
}

//export sar_graph_send_rows
func sar_graph_send_rows(h C.sar_handle, relation, peer C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_send_rows", func(c *call) error {
		return widen(c, h, out, "rows", func(g *session.Graph) ([]int32, error) { return g.SendRows(int(relation), int(peer)) })
	})
}

// widen gives the caller numbers that the engine holds in 32 bits.
func widen(c *call, h C.sar_handle, out *C.DLTensor, what string, get func(g *session.Graph) ([]int32, error)) error {
	g, err := useGraph(c, h)
	if err != nil {
		return err
	}
	to, err := vector[int64]("out", constant(out), int64Type)
	if err != nil {
		return err
	}
	from, err := get(g)
	if err != nil {
		return err
	}
	if len(to) != len(from) {
		return invalid("out has %d entries for %d %s", len(to), len(from), what)
	}
	for i, v := range from {
		to[i] = int64(v)
	}
	return nil
}
