package export

/*
#include "abi.h"
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"unsafe"

	"sar/core/session"
)

//export sar_graph_build
func sar_graph_build(h, partition C.sar_handle, flags C.uint32_t, out *C.sar_handle) C.sar_status {
	return guard("sar_graph_build", func(c *call) error {
		p, err := usePartition(c, partition)
		if err != nil {
			return err
		}
		if flags&^C.SAR_GRAPH_EDGE_DATA != 0 {
			return invalid("flags are %#x: there is SAR_GRAPH_EDGE_DATA (%d)", flags, C.SAR_GRAPH_EDGE_DATA)
		}
		return newGraph(c, h, out, func(s *session.Session) (*session.Graph, error) { return s.Build(p, uint32(flags)) })
	})
}

//export sar_graph_from_edges
func sar_graph_from_edges(h C.sar_handle, nodeStart, src, dst *C.sar_const_tensor, out *C.sar_handle) C.sar_status {
	return guard("sar_graph_from_edges", func(c *call) error {
		var arrays [3][]int64
		for i, t := range []*C.sar_const_tensor{nodeStart, src, dst} {
			var err error
			if arrays[i], err = vector[int64]([3]string{"node_start", "src", "dst"}[i], t, int64Type); err != nil {
				return err
			}
		}
		return newGraph(c, h, out, func(s *session.Session) (*session.Graph, error) {
			return s.GraphFromEdges(arrays[0], arrays[1], arrays[2])
		})
	})
}

//export sar_graph_from_relations
func sar_graph_from_relations(h C.sar_handle, types *C.sar_const_char, nodeCounts, src, dst *C.sar_const_tensor, n C.int32_t, out *C.sar_handle) C.sar_status {
	return guard("sar_graph_from_relations", func(c *call) error {
		var named session.Types
		if err := json.Unmarshal([]byte(text(types)), &named); err != nil {
			return invalid("types: %v", err)
		}
		counts, err := matrix("node_counts", nodeCounts, len(named.NodeTypes))
		if err != nil {
			return err
		}
		if n < 0 || (n > 0 && (src == nil || dst == nil)) {
			return invalid("n is %d: src and dst must each point at as many tensors", n)
		}
		ends := make([]session.Ends, n)
		if n > 0 {
			sources, targets := unsafe.Slice(src, n), unsafe.Slice(dst, n)
			for i := range ends {
				if ends[i].Src, err = vector[int64](fmt.Sprintf("src[%d]", i), &sources[i], int64Type); err != nil {
					return err
				}
				if ends[i].Dst, err = vector[int64](fmt.Sprintf("dst[%d]", i), &targets[i], int64Type); err != nil {
					return err
				}
			}
		}
		return newGraph(c, h, out, func(s *session.Session) (*session.Graph, error) { return s.GraphFromRelations(named, counts, ends) })
	})
}

// matrix views an int64 tensor of some rows.
func matrix(name string, t *C.sar_const_tensor, rows int) ([][]int64, error) {
	v, err := view(name, t)
	if err != nil {
		return nil, err
	}
	if v.dtype != int64Type || len(v.shape) != 2 || v.shape[0] != int64(rows) {
		return nil, invalid("%s is %s of shape %v: expected int64 with %d rows", name, v.dtype, v.shape, rows)
	}
	out := make([][]int64, rows)
	for i := range out {
		out[i] = elements[int64](v)[int64(i)*v.shape[1] : int64(i+1)*v.shape[1]]
	}
	return out, nil
}

func newGraph(c *call, h C.sar_handle, out *C.sar_handle, build func(s *session.Session) (*session.Graph, error)) error {
	s, err := useSession(c, h)
	if err != nil {
		return err
	}
	owner := c.last()
	if err := give("graph", out, 0); err != nil {
		return err
	}
	g, err := build(s)
	if err != nil {
		return err
	}
	*out = register(kindGraph, g, owner)
	return nil
}

//export sar_graph_free
func sar_graph_free(h C.sar_handle) C.sar_status {
	return guard("sar_graph_free", func(*call) error {
		e, err := remove(h, kindGraph)
		if err != nil {
			return err
		}
		e.busy.Lock() // until the operations that go on are done
		defer e.busy.Unlock()
		e.value.(*session.Graph).Free()
		return nil
	})
}

func useGraph(c *call, h C.sar_handle) (*session.Graph, error) {
	return use[*session.Graph](c, h, kindGraph)
}

//export sar_graph_num_relations
func sar_graph_num_relations(h C.sar_handle, n *C.int32_t) C.sar_status {
	return guard("sar_graph_num_relations", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		return give("n", n, C.int32_t(g.NumRelations()))
	})
}

//export sar_graph_relation_info
func sar_graph_relation_info(h C.sar_handle, relation C.int32_t, out *C.sar_relation_info) C.sar_status {
	return guard("sar_graph_relation_info", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		if out == nil {
			return invalid("out is NULL: there is nowhere to put the result")
		}
		i, err := g.Info(int(relation))
		if err != nil {
			return err
		}
		info := C.sar_relation_info{
			num_src: C.int64_t(i.NumSrc), num_dst: C.int64_t(i.NumDst), num_edges: C.int64_t(i.NumEdges),
			num_src_global: C.int64_t(i.NumSrcGlobal), num_dst_global: C.int64_t(i.NumDstGlobal), num_edges_global: C.int64_t(i.NumEdgesGlobal),
			num_boundary: C.int64_t(i.NumBoundary), num_send: C.int64_t(i.NumSend), structure_bytes: C.int64_t(i.StructureBytes),
		}
		copyOut(unsafe.Pointer(out), unsafe.Pointer(&info), C.sizeof_sar_relation_info)
		return nil
	})
}

//export sar_graph_boundary
func sar_graph_boundary(h C.sar_handle, relation C.int32_t, json **C.char) C.sar_status {
	return guard("sar_graph_boundary", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		pairs, err := g.Boundary(int(relation))
		if err != nil {
			return err
		}
		return giveJSON(json, pairs)
	})
}

//export sar_graph_degrees
func sar_graph_degrees(h C.sar_handle, relation, outDegrees C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_graph_degrees", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		degrees, err := vector[int64]("out", constant(out), int64Type)
		if err != nil {
			return err
		}
		return g.Degrees(int(relation), outDegrees != 0, degrees)
	})
}
