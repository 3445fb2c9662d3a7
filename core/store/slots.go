package store

import (
	"fmt"

	"sar/core/mem"
)

// slots streams (source, destination, edge number) of every slot of the
// matrix; edge numbers are nil where slot k is edge k.
func (p *partGraph) slots(yield func(first int64, src, dst, eid []int64) error) error {
	m := &p.m
	room := min(batch, m.edges)
	src, dst := make([]int64, room), make([]int64, room)
	var eid []int64
	if m.ids != nil {
		eid = make([]int64, room)
	}
	var rows rowWalker
	if m.format != fmtCOO {
		rows = rowWalker{ptr: &m.ptr, rows: m.ptr.n - 1, edges: m.edges}
	}
	for at := int64(0); at < m.edges; at += batch {
		n := int(min(batch, m.edges-at))
		s, d := src[:n], dst[:n]
		var err error
		switch m.format {
		case fmtCOO:
			if err = m.row.ints(at, s); err == nil {
				err = m.col.ints(at, d)
			}
		case fmtCSR:
			if err = rows.fill(at, s); err == nil {
				err = m.col.ints(at, d)
			}
		case fmtCSC:
			if err = rows.fill(at, d); err == nil {
				err = m.col.ints(at, s)
			}
		}
		if err != nil {
			return err
		}
		for i := range s {
			if uint64(s[i]) >= uint64(p.nodes) || uint64(d[i]) >= uint64(p.nodes) {
				return p.f.bad(m.col.off+(at+int64(i))*int64(m.col.dtype.Size()), fmt.Sprintf("an edge between nodes 0 to %d", p.nodes-1), "%d -> %d", s[i], d[i])
			}
		}
		var e []int64
		if eid != nil {
			e = eid[:n]
			if err := m.ids.ints(at, e); err != nil {
				return err
			}
			for i, v := range e {
				if uint64(v) >= uint64(m.edges) {
					return p.f.bad(m.ids.off+(at+int64(i))*int64(m.ids.dtype.Size()), fmt.Sprintf("an edge number from 0 to %d", m.edges-1), "%d", v)
				}
			}
		}
		if err := yield(at, s, d, e); err != nil {
			return err
		}
	}
	return nil
}

// rowWalker gives the row of every slot of a compressed matrix, slot by slot.
type rowWalker struct {
	ptr         *array
	rows, edges int64
	row         int64 // of the next slot
	end         int64 // first slot after it
	buf         []int64
	bufAt       int64 // row whose end buf[0] is
	started     bool
}

func (w *rowWalker) fill(at int64, dst []int64) error {
	if !w.started {
		w.started, w.row = true, -1
	}
	for i := range dst {
		for at+int64(i) >= w.end {
			w.row++
			if w.row >= w.rows {
				return w.ptr.f.bad(w.ptr.off, fmt.Sprintf("row pointers that reach the %d edges", w.edges), "%d", w.end)
			}
			if w.buf == nil || w.row-w.bufAt >= int64(len(w.buf)) {
				w.buf, w.bufAt = make([]int64, min(batch, w.rows-w.row)), w.row
				if err := w.ptr.ints(w.row+1, w.buf); err != nil {
					return err
				}
			}
			next := w.buf[w.row-w.bufAt]
			if next < w.end || next > w.edges {
				return w.ptr.f.bad(w.ptr.off+(w.row+1)*int64(w.ptr.dtype.Size()), fmt.Sprintf("row pointers that ascend from %d to at most %d", w.end, w.edges), "%d", next)
			}
			w.end = next
		}
		dst[i] = w.row
	}
	return nil
}

// gather reads elements of a by number, through a view of the file.
type gather struct {
	array
	view mem.Array[byte]
}

func newGather(a array) (*gather, error) {
	v, err := a.f.view(a.off, a.bytes(), a.what)
	return &gather{a, v}, err
}

func (g *gather) at(idx, dst []int64) error {
	size := int64(g.dtype.Size())
	for i, k := range idx {
		if j := widen(dst[i:i+1], g.view.Data[k*size:(k+1)*size], g.dtype); j >= 0 {
			return g.f.bad(g.off+k*size, "values of "+g.what+" that fit int64", "%d", uint64(dst[i]))
		}
	}
	return nil
}
