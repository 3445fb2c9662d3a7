package export

/*
#include "abi.h"
*/
import "C"

import (
	"context"
	"unsafe"

	"sar/core/session"
)

//export sar_graph_build
func sar_graph_build(h, partition C.sar_handle, flags C.uint32_t, out *C.sar_handle) C.sar_status {
	return guard("sar_graph_build", func(c *call) {
		p, s := use(c, partition, partitions), use(c, h, sessions)
		demand(flags&^C.SAR_GRAPH_EDGE_DATA == 0, "flags are %#x: there is SAR_GRAPH_EDGE_DATA (%d)", flags,
			C.SAR_GRAPH_EDGE_DATA)
		create(c, graphs, out, func() (*session.Graph, error) {
			return s.Build(context.Background(), p, session.BuildFlags(flags))
		})
	})
}

//export sar_graph_from_edges
func sar_graph_from_edges(h C.sar_handle, nodeStart, src, dst *C.sar_const_tensor, out *C.sar_handle) C.sar_status {
	return guard("sar_graph_from_edges", func(c *call) {
		s := use(c, h, sessions)
		create(c, graphs, out, func() (*session.Graph, error) {
			return s.GraphFromEdges(context.Background(),
				vector[int64]("node_start", nodeStart), vector[int64]("src", src), vector[int64]("dst", dst))
		})
	})
}

//export sar_graph_from_relations
func sar_graph_from_relations(
	h C.sar_handle, types *C.sar_const_char, nodeCounts, src, dst *C.sar_const_tensor, n C.int32_t, out *C.sar_handle,
) C.sar_status {
	return guard("sar_graph_from_relations", func(c *call) {
		s, named := use(c, h, sessions), readJSON[session.Types]("types", types)
		counts := table2D(view("node_counts", nodeCounts), len(named.NodeTypes))
		sources, targets := views("src", src, n), views("dst", dst, n)
		ends := make([]session.Ends, n)
		for i := range ends {
			ends[i] = session.Ends{Src: line[int64](sources[i]), Dst: line[int64](targets[i])}
		}
		create(c, graphs, out, func() (*session.Graph, error) {
			return s.GraphFromRelations(context.Background(), named, counts, ends)
		})
	})
}

// table2D reads a tensor of some rows.
func table2D(v tensor, rows int) [][]int64 {
	all := elements[int64](v)
	demand(len(v.shape) == 2 && v.shape[0] == int64(rows), "tensor %s has shape %s, and must have %d rows", v, v.shape,
		rows)
	out, width := make([][]int64, rows), int(v.shape[1])
	for i := range out {
		out[i] = all[i*width : (i+1)*width]
	}
	return out
}

//export sar_graph_free
func sar_graph_free(h C.sar_handle) C.sar_status {
	return guard("sar_graph_free", func(*call) { need(drop(h, graphs)) })
}

//export sar_graph_num_relations
func sar_graph_num_relations(h C.sar_handle, n *C.int32_t) C.sar_status {
	return guard("sar_graph_num_relations", func(c *call) { give("n", n, C.int32_t(use(c, h, graphs).NumRelations())) })
}

//export sar_graph_relation_info
func sar_graph_relation_info(h C.sar_handle, relation C.int32_t, out *C.sar_relation_info) C.sar_status {
	return guard("sar_graph_relation_info", func(c *call) {
		g := use(c, h, graphs)
		demand(out != nil, "out is NULL: there is nowhere to put the result")
		i := must(g.Info(int(relation)))
		copyOut(unsafe.Pointer(out), unsafe.Pointer(&C.sar_relation_info{
			num_src: C.int64_t(i.NumSrc), num_dst: C.int64_t(i.NumDst), num_edges: C.int64_t(i.NumEdges),
			num_src_global: C.int64_t(i.NumSrcGlobal), num_dst_global: C.int64_t(i.NumDstGlobal),
			num_edges_global: C.int64_t(i.NumEdgesGlobal),
			num_boundary:     C.int64_t(i.NumBoundary), num_send: C.int64_t(i.NumSend),
			structure_bytes: C.int64_t(i.StructureBytes),
		}), C.sizeof_sar_relation_info)
	})
}

//export sar_graph_boundary
func sar_graph_boundary(h C.sar_handle, relation C.int32_t, json **C.char) C.sar_status {
	return guard("sar_graph_boundary", func(c *call) {
		giveJSON(json, must(use(c, h, graphs).Boundary(int(relation))))
	})
}

//export sar_graph_degrees
func sar_graph_degrees(h C.sar_handle, relation, outDegrees C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_degrees", func(c *call) {
		need(use(c, h, graphs).Degrees(int(relation), outDegrees != 0, vector[int64]("out", out)))
	})
}

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
	demand(len(start) > 0 && start[0] == 0 && start[len(start)-1] == int64(len(rows)),
		"seed_start must go from 0 to the %d entries of seeds", len(rows))
	out := make([][]int64, len(start)-1)
	for t := range out {
		demand(start[t+1] >= start[t] && start[t+1] <= int64(len(rows)),
			"seed_start[%d] is %d after %d: it must not descend", t+1, start[t+1], start[t])
		out[t] = rows[start[t]:start[t+1]]
	}
	return out
}

//export sar_graph_block_counts
func sar_graph_block_counts(h C.sar_handle, dst C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_block_counts", func(c *call) {
		g, counts := use(c, h, graphs), vector[int64]("out", out)
		n := g.NumNodeTypes()
		demand(len(counts) == n, "out has %d entries for %d node types", len(counts), n)
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
	demand(len(to) == len(from), "out has %d entries, and must have %d", len(to), len(from))
	for i, v := range from {
		to[i] = int64(v)
	}
}
