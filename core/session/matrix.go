package session

import (
	"cmp"

	"sar/core/graph"
	"sar/core/kernel"
	"sar/core/mem"
)

// Matrix is a sparse matrix that is used many times: a copy of its CSR, stored in
// an order of rows where it is square and has one (see graph.Locality). It belongs
// to no session.
type Matrix struct {
	Cols   int
	ptr    mem.Array[int64]
	col    mem.Array[int32]
	order  mem.Array[int32]
	before mem.Array[int64]
}

// NewMatrix copies a matrix whose structure was checked.
func NewMatrix(a kernel.CSR, cols int) (m *Matrix, err error) {
	m = &Matrix{Cols: cols}
	defer func() {
		if err != nil {
			m.Free()
		}
	}()
	if err = cmp.Or(m.ptr.Make(mem.Structure, len(a.Ptr)), m.col.Make(mem.Structure, len(a.Col))); err != nil {
		return m, err
	}
	copy(m.ptr.Data, a.Ptr)
	if a.Rows() == cols {
		if m.order, err = graph.Locality(a.Ptr, a.Col); err != nil {
			return m, err
		}
		if m.before, err = graph.SlotsBefore(a.Ptr, m.order.Data); err != nil {
			return m, err
		}
	}
	if len(m.order.Data) == 0 {
		copy(m.col.Data, a.Col)
	}
	for place, i := range m.order.Data {
		copy(m.col.Data[m.before.Data[place]:], a.Col[a.Ptr[i]:a.Ptr[i+1]])
	}
	return m, nil
}

// CSR is the matrix as kernels take it, until Free.
func (m *Matrix) CSR() kernel.CSR {
	return kernel.CSR{Ptr: m.ptr.Data, Col: m.col.Data, Order: kernel.Order{
		Rows: m.order.Data, Before: m.before.Data, Stored: len(m.order.Data) > 0,
	}}
}

// Free releases the matrix. It may be called again.
func (m *Matrix) Free() {
	m.ptr.Free()
	m.col.Free()
	m.order.Free()
	m.before.Free()
}
