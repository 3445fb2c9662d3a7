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
	need("x", len(m.X), int(w.End-w.Begin)*m.Width)
	sddmm(p, dw, g, m, w)
}

// sddmm without a cursor is the whole matrix.
func sddmm[T Float](p *Pool, dw, g []T, m Product[T], w Window) {
	m.check(len(dw), true)
	m.A.needRows()
	need("g", len(g), m.A.Rows()*m.Width)
	var cursor []int64
	if w.Cursor != nil {
		cursor = w.Cursor.Slot
	}
	sddmmParts(p, dots[T]{dw, m.X, g, m.Width, m.Heads, m.A}, cursor, w.Begin, w.End)
}

// dots is the arrays of an SDDMM.
type dots[T Float] struct {
	dw, x, g     []T
	width, heads int
	a            CSR
}

func sddmmParts[T Float](p *Pool, m dots[T], cursor []int64, colBegin, colEnd int32) {
	ops := vec.Get[T]()
	parts := planSlots(&m.a, m.width, p.Threads())
	whole := cursor == nil
	p.Run(len(parts), func(t int) {
		q := parts[t]
		run := &vec.Gather[T]{Stride: m.width, Base: colBegin}
		buf := make([]T, coefBlock)
		m.a.eachRow(q.p0, q.p1, func(i int) {
			k0, k1 := m.a.at(i), m.a.at(i+1)
			if !whole {
				k0 = cursor[i]
				k1 = ascending.RunEnd(m.a.Col, k0, k1, colEnd)
			}
			if !q.cut {
				if !whole {
					cursor[i] = k1
				}
			} else {
				k0, k1 = max(k0, q.k0), min(k1, q.k1)
			}
			m.row(ops, run, buf, i, k0, k1)
		})
	})
	if !whole {
		for _, q := range parts {
			if q.cut {
				i := m.a.row(q.p0)
				cursor[i] = ascending.RunEnd(m.a.Col, cursor[i], m.a.at(i+1), colEnd)
			}
		}
	}
}

// row computes slots [k0, k1) of row i.
func (m *dots[T]) row(ops *vec.Ops[T], run *vec.Gather[T], buf []T, i int, k0, k1 int64) {
	d := m.width / m.heads
	for k0 < k1 {
		k := min(k1, k0+coefBlock)
		run.Col = m.a.Col[k0:k]
		for h := range m.heads {
			run.Y = m.g[i*m.width+h*d:][:d]
			run.X = m.x[min(h*d, len(m.x)):]
			if m.heads == 1 && m.a.Edge == nil {
				run.Out = m.dw[k0:k]
				ops.GatherDot(run)
				continue
			}
			run.Out = buf[:k-k0]
			ops.GatherDot(run)
			if m.a.Edge == nil {
				for j, v := range run.Out {
					m.dw[(int(k0)+j)*m.heads+h] = v
				}
			} else {
				for j, v := range run.Out {
					m.dw[int(m.a.Edge[int(k0)+j])*m.heads+h] = v
				}
			}
		}
		k0 = k
	}
}
