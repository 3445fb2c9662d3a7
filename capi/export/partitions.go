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
	return guard("sar_partition_open", func(*call) error {
		if err := give("partition", out, 0); err != nil {
			return err
		}
		p, err := session.OpenPartition(text(path), int(part), uint32(flags))
		if err != nil {
			return err
		}
		*out = register(kindPartition, p, nil)
		return nil
	})
}

//export sar_partition_verify
func sar_partition_verify(path *C.sar_const_char, part C.int32_t, flags C.uint32_t, json **C.char) C.sar_status {
	return guard("sar_partition_verify", func(*call) error {
		reports, err := session.VerifyPartition(text(path), int(part), uint32(flags))
		if err != nil {
			return err
		}
		return giveJSON(json, reports)
	})
}

//export sar_partition_close
func sar_partition_close(h C.sar_handle) C.sar_status {
	return guard("sar_partition_close", func(*call) error {
		e, err := remove(h, kindPartition)
		if err != nil {
			return err
		}
		e.busy.Lock() // until the reads that go on are done
		defer e.busy.Unlock()
		return e.value.(*session.Partition).Close()
	})
}

func usePartition(c *call, h C.sar_handle) (*session.Partition, error) {
	return use[*session.Partition](c, h, kindPartition)
}

//export sar_partition_info
func sar_partition_info(h C.sar_handle, json **C.char) C.sar_status {
	return guard("sar_partition_info", func(c *call) error {
		p, err := usePartition(c, h)
		if err != nil {
			return err
		}
		return giveJSON(json, p.Info())
	})
}

//export sar_partition_read
func sar_partition_read(h C.sar_handle, edge C.int32_t, name *C.sar_const_char, out *C.DLTensor) C.sar_status {
	return guard("sar_partition_read", func(c *call) error {
		p, err := usePartition(c, h)
		if err != nil {
			return err
		}
		v, err := view("out", constant(out))
		if err != nil {
			return err
		}
		return p.Read(edge != 0, text(name), v.bytes(), v.dtype.String(), v.shape)
	})
}

//export sar_partition_map
func sar_partition_map(h C.sar_handle, edge C.int32_t, name *C.sar_const_char, address *C.uint64_t, out *C.sar_handle) C.sar_status {
	return guard("sar_partition_map", func(c *call) error {
		p, err := usePartition(c, h)
		if err != nil {
			return err
		}
		if err := give("map", out, 0); err != nil {
			return err
		}
		if err := give("address", address, 0); err != nil {
			return err
		}
		m, err := p.MapFeature(edge != 0, text(name))
		if err != nil {
			return err
		}
		*address = C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data))))
		*out = register(kindMap, m, nil)
		return nil
	})
}

//export sar_map_read
func sar_map_read(h C.sar_handle, first, n C.int64_t, window *C.DLTensor, at *C.int64_t) C.sar_status {
	return guard("sar_map_read", func(c *call) error {
		m, err := use[*session.MappedFeature](c, h, kindMap)
		if err != nil {
			return err
		}
		if size := int64(len(m.Data)); first < 0 || n < 0 || int64(first) > size-int64(n) {
			return invalid("bytes %d to %d are outside the %d of the map", first, int64(first)+int64(n), size)
		}
		v, err := view("window", constant(window))
		if err != nil {
			return err
		}
		begin, err := m.Read(int64(first), int64(n), v.bytes())
		if err != nil {
			return err
		}
		return give("at", at, C.int64_t(begin))
	})
}

//export sar_map_close
func sar_map_close(h C.sar_handle) C.sar_status {
	return guard("sar_map_close", func(*call) error {
		e, err := remove(h, kindMap)
		if err != nil {
			return err
		}
		e.busy.Lock()
		defer e.busy.Unlock()
		return e.value.(*session.MappedFeature).Close()
	})
}

//export sar_partition_count_edges
func sar_partition_count_edges(h C.sar_handle, relation C.int32_t, n *C.int64_t) C.sar_status {
	return guard("sar_partition_count_edges", func(c *call) error {
		p, err := usePartition(c, h)
		if err != nil {
			return err
		}
		count, err := p.NumRelationEdges(int(relation))
		if err != nil {
			return err
		}
		return give("n", n, C.int64_t(count))
	})
}

//export sar_partition_edges
func sar_partition_edges(h C.sar_handle, relation C.int32_t, src, dst, id *C.DLTensor) C.sar_status {
	return guard("sar_partition_edges", func(c *call) error {
		p, err := usePartition(c, h)
		if err != nil {
			return err
		}
		n, err := p.NumRelationEdges(int(relation))
		if err != nil {
			return err
		}
		var out [3][]int64
		for i, t := range []*C.DLTensor{src, dst, id} {
			if t == nil {
				continue
			}
			name := [3]string{"src", "dst", "id"}[i]
			if out[i], err = vector[int64](name, constant(t), int64Type); err != nil {
				return err
			}
			if int64(len(out[i])) != n {
				return invalid("tensor %s has %d entries, and relation %d has %d edges here", name, len(out[i]), relation, n)
			}
		}
		return p.RelationEdges(int(relation), out[0], out[1], out[2])
	})
}
