package kernel

import "sar/core/internal/vec"

// SDDMM: dw[edge[k],h] = Σ_d x[col[k],h,d] · g[i,h,d] for every slot k of every
// row i. dw [E, h], x [m, h, d], g [n, h, d].
func SDDMM[T Float](p *Pool, dw []T, heads int, x, g []T, width int, a CSR) {
	sddmm(p, dw, heads, x, g, width, a, nil, 0, 0)
}

// SDDMMWindow is SDDMM of one window of columns: for each row i, for slots k
// from cursor[i] while k < m.a.at(i+1) and col[k] < colEnd:
// dw[edge[k],h] = Σ_d x[col[k]-colBegin,h,d] · g[i,h,d]; cursor[i] is left at
// the first slot not read. dw [E, h], x [colEnd-colBegin, h, d], g [n, h, d],
// cursor [n].
func SDDMMWindow[T Float](p *Pool, dw []T, heads int, x, g []T, width int, a CSR, cursor []int64, colBegin, colEnd int32) {
	need("cursor", len(cursor), a.Rows())
	need("x", len(x), int(colEnd-colBegin)*width)
	sddmm(p, dw, heads, x, g, width, a, cursor, colBegin, colEnd)
}

// sddmm without a cursor is the whole matrix.
func sddmm[T Float](p *Pool, dw []T, heads int, x, g []T, width int, a CSR, cursor []int64, colBegin, colEnd int32) {
	checkProduct(width, heads, a, len(dw), true)
	a.needRows()
	need("g", len(g), a.Rows()*width)
	if is32[T]() {
		sddmmParts(p, dots[float32]{as[float32](dw), as[float32](x), as[float32](g), width, heads, a}, cursor, colBegin, colEnd)
	} else {
		sddmmParts(p, dots[float64]{as[float64](dw), as[float64](x), as[float64](g), width, heads, a}, cursor, colBegin, colEnd)
	}
}

// dots is the arrays of an SDDMM.
type dots[T vec.Float] struct {
	dw, x, g     []T
	width, heads int
	a            CSR
}

func sddmmParts[T vec.Float](p *Pool, m dots[T], cursor []int64, colBegin, colEnd int32) {
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
				k1 = runEnd(m.a.Col, k0, k1, colEnd)
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
				cursor[i] = runEnd(m.a.Col, cursor[i], m.a.at(i+1), colEnd)
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
