package dgl

import (
	"fmt"

	"sar/core/mem"
	"sar/core/store/disk"
)

// slots streams (source, destination, edge number) of every slot of the
// matrix; edge numbers are nil where slot k is edge k.
func (p *Part) slots(yield func(first int64, src, dst, eid []int64) error) error {
	m := &p.m
	rows := disk.RowWalker{Ptr: &m.ptr, Rows: m.ptr.Len - 1, Edges: m.edges}
	sources, destinations := rows.Fill, m.col.Ints
	switch m.format {
	case fmtCOO:
		sources = m.row.Ints
	case fmtCSC:
		sources, destinations = m.col.Ints, rows.Fill
	}
	var eid []int64
	if m.ids != nil {
		eid = make([]int64, min(disk.Batch, m.edges))
	}
	return disk.Pairs(m.edges, sources, destinations, func(at int64, src, dst []int64) error {
		for i, u := range src {
			if uint64(u) >= uint64(p.nodes) || uint64(dst[i]) >= uint64(p.nodes) {
				return p.f.Bad(m.col.Offset+(at+int64(i))*int64(m.col.DType.Size()),
					fmt.Sprintf("an edge between nodes 0 to %d", p.nodes-1), "%d -> %d", u, dst[i])
			}
		}
		if eid == nil {
			return yield(at, src, dst, nil)
		}
		e := eid[:len(src)]
		if err := m.ids.Ints(at, e); err != nil {
			return err
		}
		for i, v := range e {
			if uint64(v) >= uint64(m.edges) {
				return p.f.Bad(m.ids.Offset+(at+int64(i))*int64(m.ids.DType.Size()),
					fmt.Sprintf("an edge number from 0 to %d", m.edges-1), "%d", v)
			}
		}
		return yield(at, src, dst, e)
	})
}

// gather reads elements of a by number, through a view of the file.
type gather struct {
	disk.Array
	view mem.Array[byte]
}

func newGather(a disk.Array) (*gather, error) {
	v, err := a.File.View(a.Offset, a.Bytes(), a.Name)
	return &gather{a, v}, err
}

func (g *gather) at(idx, dst []int64) error {
	size := int64(g.DType.Size())
	for i, k := range idx {
		if j := disk.Widen(dst[i:i+1], g.view.Data[k*size:(k+1)*size], g.DType); j >= 0 {
			return g.File.Bad(g.Offset+k*size, "values of "+g.Name+" that fit int64", "%d", uint64(dst[i]))
		}
	}
	return nil
}
