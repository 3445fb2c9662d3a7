package export

/*
#include "abi.h"
*/
import "C"

import (
	"context"

	"sar/core/session"
)

//export sar_graph_block
func sar_graph_block(
	h C.sar_handle, seeds, seedStart *C.sar_const_tensor, keepSeeds C.int32_t, out *C.sar_handle,
) C.sar_status {
	return guard("sar_graph_block", func(c *call) {
		g := use(c, h, graphs)
		create(c, graphs, out, func() (*session.Graph, error) {
			rows := runs(vector[int64]("seeds", seeds), vector[int64]("seed_start", seedStart))
			return g.Block(context.Background(), rows, keepSeeds != 0)
		})
	})
}

// runs cuts rows where start says.
func runs(rows, start []int64) [][]int64 {
	if len(start) == 0 || start[0] != 0 || start[len(start)-1] != int64(len(rows)) {
		refuse("seed_start must go from 0 to the %d entries of seeds", len(rows))
	}
	out := make([][]int64, len(start)-1)
	for t := range out {
		if start[t+1] < start[t] || start[t+1] > int64(len(rows)) {
			refuse("seed_start[%d] is %d after %d: it must not descend", t+1, start[t+1], start[t])
		}
		out[t] = rows[start[t]:start[t+1]]
	}
	return out
}

//export sar_graph_block_counts
func sar_graph_block_counts(h C.sar_handle, dst C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_block_counts", func(c *call) {
		g, counts := use(c, h, graphs), vector[int64]("out", out)
		if n := g.NumNodeTypes(); len(counts) != n {
			refuse("out has %d entries for %d node types", len(counts), n)
		}
		for t := range counts {
			counts[t] = int64(len(must(g.BlockRows(t, dst != 0))))
		}
	})
}

//export sar_graph_block_rows
func sar_graph_block_rows(h C.sar_handle, nodeType, dst C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_block_rows", func(c *call) {
		widen(vector[int64]("out", out), must(use(c, h, graphs).BlockRows(int(nodeType), dst != 0)))
	})
}

//export sar_graph_block_edges
func sar_graph_block_edges(h C.sar_handle, relation C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_block_edges", func(c *call) {
		widen(vector[int64]("out", out), must(use(c, h, graphs).BlockEdges(int(relation))))
	})
}

//export sar_graph_send_rows
func sar_graph_send_rows(h C.sar_handle, relation, peer C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_send_rows", func(c *call) {
		widen(vector[int64]("out", out), must(use(c, h, graphs).SendRows(int(relation), int(peer))))
	})
}

// widen gives the caller numbers that the engine holds in 32 bits.
func widen(to []int64, from []int32) {
	if len(to) != len(from) {
		refuse("out has %d entries, and must have %d", len(to), len(from))
	}
	for i, v := range from {
		to[i] = int64(v)
	}
}
