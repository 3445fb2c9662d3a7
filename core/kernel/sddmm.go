package kernel

import (
	"sar/core/internal/ascending"
	"sar/core/internal/vec"
)

// SDDMM: dw[edge[k],h] = Σ_d x[col[k],h,d] · g[i,h,d] for every slot k of every
// row i. dw [E, h], x [m, h, d], g [n, h, d]. Coefficients of m do not count.
func SDDMM[T Float](p *Pool, dw, g []T, m Product[T]) {
	sddmm(p, dw, g, m, Window{})
}

// SDDMMWindow is SDDMM of one window of columns: for each row i, for slots k from the cursor on
// while k < ptr[i+1] and col[k] < End: dw[edge[k],h] = Σ_d x[col[k]-Begin,h,d] · g[i,h,d]; the
// cursor is left at the first slot not read. dw [E, h], x [End-Begin, h, d], g [n, h, d].
func SDDMMWindow[T Float](p *Pool, dw, g []T, m Product[T], w Window) {
	needCursor(w.Cursor, m.A.Rows())
	m.needSources(int(w.End - w.Begin))
	sddmm(p, dw, g, m, w)
}

// sddmm without a cursor is the whole matrix.
func sddmm[T Float](p *Pool, dw, g []T, m Product[T], w Window) {
	m.check(len(dw), true)
	m.A.needRows()
	need("g", len(g), m.A.Rows()*m.Width)
	a, whole := &m.A, w.Cursor == nil
	parts := planSlots(a, m.Width, p.Threads())
	p.Run(len(parts), func(t int) {
		q := parts[t]
		d := dots[T]{Product: m, dw: dw, g: g, ops: vec.Get[T](), buf: make([]T, coefBlock*m.Heads)}
		d.run, d.base = &vec.Gather[T]{Stride: m.Width, Base: w.Begin}, w.Begin
		if m.Half != nil {
			d.widen()
		}
		a.eachRow(q.p0, q.p1, func(i int) {
			k0, k1 := a.at(i), a.at(i+1)
			if !whole {
				k0 = w.Cursor.Slot[i]
				k1 = ascending.RunEnd(a.Col, k0, k1, w.End)
			}
			if q.cut {
				k0, k1 = max(k0, q.k0), min(k1, q.k1)
			} else if !whole {
				w.Cursor.Slot[i] = k1
			}
			d.row(i, k0, k1)
		})
	})
	if whole {
		return
	}
	for _, q := range parts { // the parts of a long row share its cursor
		if i := a.row(q.p0); q.cut {
			w.Cursor.Slot[i] = ascending.RunEnd(a.Col, w.Cursor.Slot[i], a.at(i+1), w.End)
		}
	}
}

// dots is an SDDMM as one task computes it.
type dots[T Float] struct {
	Product[T]
	dw, g []T
	ops   *vec.Ops[T]
	run   *vec.Gather[T]
	buf   []T

	base int32   // column that the source rows begin with
	rows []int32 // of Half, which is widened into X, as many rows as these at a time
}

// widen has the source rows read from X.
func (m *dots[T]) widen() {
	m.rows, m.X, m.run.Base = make([]int32, halfBlock), make([]T, halfBlock*m.Width), 0
	for i := range m.rows {
		m.rows[i] = int32(i)
	}
}

// halfBlock is the rows that are widened at a time.
const halfBlock = 64

// row computes slots [k0, k1) of row i.
func (m *dots[T]) row(i int, k0, k1 int64) {
	run, heads := m.run, m.Heads
	run.Y = m.g[i*m.Width:][:m.Width]
	for k0 < k1 {
		k := min(k1, k0+coefBlock)
		if m.Half != nil {
			k = min(k, k0+halfBlock)
			m.ops.HalfRows(m.X, m.Half, m.Width, m.base, m.A.Col[k0:k], m.Width)
			run.Col = m.rows[:k-k0]
		} else {
			run.Col = m.A.Col[k0:k]
		}
		run.X = m.X
		if m.A.Edge == nil {
			run.Out = m.dw[int(k0)*heads : int(k)*heads]
			m.ops.GatherDotHeads(run, heads)
		} else {
			run.Out = m.buf[:int(k-k0)*heads]
			m.ops.GatherDotHeads(run, heads)
			for j, e := range m.A.Edge[k0:k] {
				copy(m.dw[int(e)*heads:][:heads], run.Out[j*heads:])
			}
		}
		k0 = k
	}
}
