package export

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"sar/core/session"
)

//export sar_partition_open
func sar_partition_open(path *C.sar_const_char, part C.int32_t, flags C.uint32_t, out *C.sar_handle) C.sar_status {
	return guard("sar_partition_open", func(c *call) {
		create(c, partitions, out, func() (*session.Partition, error) {
			return session.OpenPartition(text(path), int(part), session.PartitionFlags(flags))
		})
	})
}

//export sar_partition_verify
func sar_partition_verify(path *C.sar_const_char, part C.int32_t, flags C.uint32_t, json **C.char) C.sar_status {
	return guard("sar_partition_verify", func(*call) {
		giveJSON(json, must(session.VerifyPartition(text(path), int(part), session.PartitionFlags(flags))))
	})
}

//export sar_partition_close
func sar_partition_close(h C.sar_handle) C.sar_status {
	return guard("sar_partition_close", func(*call) { need(free(h, partitions, (*session.Partition).Close)) })
}

//export sar_partition_info
func sar_partition_info(h C.sar_handle, json **C.char) C.sar_status {
	return guard("sar_partition_info", func(c *call) { giveJSON(json, use(c, h, partitions).Info()) })
}

//export sar_partition_read
func sar_partition_read(h C.sar_handle, edge C.int32_t, name *C.sar_const_char, out *C.DLTensor) C.sar_status {
	return guard("sar_partition_read", func(c *call) {
		p, v := use(c, h, partitions), view("out", out)
		need(p.Read(edge != 0, text(name), v.bytes(), v.dtype, v.shape))
	})
}

//export sar_partition_map
func sar_partition_map(
	h C.sar_handle, edge C.int32_t, name *C.sar_const_char, address *C.uint64_t, out *C.sar_handle,
) C.sar_status {
	return guard("sar_partition_map", func(c *call) {
		p := use(c, h, partitions)
		give("address", address, 0)
		create(c, maps, out, func() (*session.MappedFeature, error) {
			m, err := p.MapFeature(edge != 0, text(name))
			if err == nil {
				*address = C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data))))
			}
			return m, err
		})
	})
}

//export sar_map_read
func sar_map_read(h C.sar_handle, first, n C.int64_t, window *C.DLTensor, at *C.int64_t) C.sar_status {
	return guard("sar_map_read", func(c *call) {
		m, v := use(c, h, maps), view("window", window)
		size := int64(len(m.Data))
		demand(first >= 0 && n >= 0 && int64(first) <= size-int64(n), "bytes %d to %d are outside the %d of the map",
			first, int64(first)+int64(n), size)
		give("at", at, C.int64_t(must(m.Read(int64(first), int64(n), v.bytes()))))
	})
}

//export sar_map_close
func sar_map_close(h C.sar_handle) C.sar_status {
	return guard("sar_map_close", func(*call) { need(free(h, maps, (*session.MappedFeature).Close)) })
}

//export sar_partition_count_edges
func sar_partition_count_edges(h C.sar_handle, relation C.int32_t, n *C.int64_t) C.sar_status {
	return guard("sar_partition_count_edges", func(c *call) {
		give("n", n, C.int64_t(must(use(c, h, partitions).NumRelationEdges(int(relation)))))
	})
}

//export sar_partition_edges
func sar_partition_edges(h C.sar_handle, relation C.int32_t, src, dst, id *C.DLTensor) C.sar_status {
	return guard("sar_partition_edges", func(c *call) {
		p := use(c, h, partitions)
		n := must(p.NumRelationEdges(int(relation)))
		read := func(name string, t *C.DLTensor) []int64 {
			x := optional[int64](name, t)
			demand(x == nil || int64(len(x)) == n, "tensor %s has %d entries, and relation %d has %d edges here", name, len(x),
				relation, n)
			return x
		}
		need(p.RelationEdges(int(relation), read("src", src), read("dst", dst), read("id", id)))
	})
}
