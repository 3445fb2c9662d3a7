package export

/*
#include "abi.h"
*/
import "C"

import (
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
