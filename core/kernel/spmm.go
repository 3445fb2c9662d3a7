package kernel

import (
	"sort"

	"sar/core/internal/vec"
)

// coefBlock is the slots whose coefficients are gathered before they are used.
const coefBlock = 512

// SpMM: y[i,:] = Σ_k c_k · x[col[k],:] over the slots k of row i,
// c_k = w[edge[k],h] · scale[col[k]]. y [n, h, d], x [m, h, d], w [E, h] (nil:
// 1), scale [m] (nil: 1). width = h*d. Rows without slots become 0.
func SpMM[T Float](p *Pool, y, x []T, width int, a CSR, w []T, heads int, scale []T) {
	adviseHuge(y)
	SpMMRows(p, y, x, width, a, w, heads, scale, 0, a.Rows())
}

// SpMMScaled is SpMM without scale, and then y[i,:] *= post[i] while the row is
// in cache; post [n]. The bits are those of SpMM and ScaleRows.
func SpMMScaled[T Float](p *Pool, y, x []T, width int, a CSR, w []T, heads int, post []T) {
	adviseHuge(y)
	need("post", len(post), a.Rows())
	spmm(p, y, x, width, a, w, heads, nil, post, 0, a.Rows())
}

// SpMMRows is rows [r0, r1) of SpMM; y [r1-r0, h, d]. An order counts only where
// they are all rows.
func SpMMRows[T Float](p *Pool, y, x []T, width int, a CSR, w []T, heads int, scale []T, r0, r1 int) {
	spmm(p, y, x, width, a, w, heads, scale, nil, r0, r1)
}

func spmm[T Float](p *Pool, y, x []T, width int, a CSR, w []T, heads int, scale, post []T, r0, r1 int) {
	checkProduct(width, heads, a, len(w), w != nil)
	need("y", len(y), (r1-r0)*width)
	if r0 != 0 || r1 != a.Rows() {
		a.Order = Order{}
	}
	if is32[T]() {
		m := newProduct(as[float32](x), width, a, as[float32](w), heads)
		m.scale, m.post = as[float32](scale), as[float32](post)
		spmmRows(p, as[float32](y), m, a, r0, r1)
	} else {
		m := newProduct(as[float64](x), width, a, as[float64](w), heads)
		m.scale, m.post = as[float64](scale), as[float64](post)
		spmmRows(p, as[float64](y), m, a, r0, r1)
	}
}

func spmmRows[T vec.Float](p *Pool, y []T, m product[T], a CSR, r0, r1 int) {
	if r1 > r0 {
		slots := a.at(r1) - a.at(r0)
		willRead(p, m.x, slots, m.width)
		defer m.align(p, &a, slots)()
	}
	rows, hubs := plan(&a, r0, r1, m.width, sizeof[T](), p.Threads())
	parts := append(hubs, rows...)
	p.Run(len(parts), func(t int) {
		q, m := parts[t], m
		m.start(q)
		a.eachRow(q.p0, q.p1, func(i int) {
			row := y[(i-r0)*m.width : (i-r0+1)*m.width]
			m.row(row, a.at(i), a.at(i+1), true)
			if m.post != nil {
				m.ops.Scale(row[m.c0:m.c1], m.post[i])
			}
		})
	})
}

// SpMMWindow adds one window of columns to a product: for each row i, for
// slots k from cursor[i] while k < ptr[i+1] and col[k] < colEnd:
// y[i,:] += w[edge[k],h] · x[col[k]-colBegin,:]; cursor[i] is left at the first
// slot not read. y [n, h, d], x [colEnd-colBegin, h, d], cursor [n], w [E, h]
// (nil: 1). first: y starts from 0 and is not read. Windows that follow each
// other from column 0 to the last give the bits of SpMM.
func SpMMWindow[T Float](p *Pool, y, x []T, width int, a CSR, cursor []int64, colBegin, colEnd int32, w []T, heads int, first bool) {
	SpMMWindowScaled(p, y, x, width, a, cursor, colBegin, colEnd, w, heads, first, nil)
}

// SpMMWindowScaled is SpMMWindow, and then y[i,:] *= post[i] for the rows whose
// last slot this window has read (of the first window also rows without slots),
// while they are in the cache; post [n], nil: 1. Windows from column 0 to the
// last give the bits of SpMMScaled.
func SpMMWindowScaled[T Float](p *Pool, y, x []T, width int, a CSR, cursor []int64, colBegin, colEnd int32, w []T, heads int, first bool, post []T) {
	if post != nil {
		need("post", len(post), a.Rows())
	}
	checkProduct(width, heads, a, len(w), w != nil)
	need("y", len(y), a.Rows()*width)
	need("cursor", len(cursor), a.Rows())
	need("x", len(x), int(colEnd-colBegin)*width)
	if first {
		adviseHuge(y)
	}
	if is32[T]() {
		m := newProduct(as[float32](x), width, a, as[float32](w), heads)
		m.g.Base, m.post = colBegin, as[float32](post)
		spmmWindow(p, as[float32](y), m, a, cursor, colEnd, first)
	} else {
		m := newProduct(as[float64](x), width, a, as[float64](w), heads)
		m.g.Base, m.post = colBegin, as[float64](post)
		spmmWindow(p, as[float64](y), m, a, cursor, colEnd, first)
	}
}

func spmmWindow[T vec.Float](p *Pool, y []T, m product[T], a CSR, cursor []int64, colEnd int32, first bool) {
	if first { // own rows; windows after it are few rows of many
		slots := windowSlots(&a, cursor, colEnd)
		willRead(p, m.x, slots, m.width)
		defer m.align(p, &a, slots)()
	}
	rows, hubs := plan(&a, 0, a.Rows(), m.width, sizeof[T](), p.Threads())
	parts := append(hubs, rows...)
	p.Run(len(parts), func(t int) {
		q, m := parts[t], m
		m.start(q)
		a.eachRow(q.p0, q.p1, func(i int) {
			k0 := cursor[i]
			k1 := runEnd(a.Col, k0, a.at(i+1), colEnd)
			if k0 == k1 && !first {
				return
			}
			row := y[i*m.width : (i+1)*m.width]
			m.row(row, k0, k1, first)
			if m.post != nil && k1 == a.at(i+1) {
				m.ops.Scale(row[m.c0:m.c1], m.post[i])
			}
			if t >= len(hubs) {
				cursor[i] = k1
			}
		})
	})
	// The parts of a hub row share its cursor, so it moves once they are done.
	for _, q := range hubs {
		i := a.row(q.p0)
		cursor[i] = runEnd(a.Col, cursor[i], a.at(i+1), colEnd)
	}
}

// runEnd is the first slot from k on whose column is not below colEnd.
func runEnd(col []int32, k, end int64, colEnd int32) int64 {
	if k == end || col[end-1] < colEnd {
		return end
	}
	// Runs are short in sparse windows: step, doubling, then search.
	step := int64(1)
	lo := k
	for lo < end && col[lo] < colEnd {
		k = lo
		lo += step
		step *= 2
	}
	if lo == k {
		return k
	}
	hi := min(lo, end)
	return k + int64(sort.Search(int(hi-k), func(i int) bool { return col[k+int64(i)] >= colEnd }))
}

// product is the right-hand side of a product, as one task uses it.
type product[T vec.Float] struct {
	ops      *vec.Ops[T]
	width    int
	heads, d int // 1 and width where there are no weights
	x        []T
	stride   int // elements from one row of x to the next
	col      []int32
	edge     []int32
	w, scale []T
	post     []T // of rows, applied to their sums

	c0, c1 int            // columns of the width that the task computes
	coef   []T            // [heads, coefBlock], gathered coefficients
	g      *vec.Gather[T] // one per task
	direct bool           // w is the coefficients as it stands
}

func newProduct[T vec.Float](x []T, width int, a CSR, w []T, heads int) product[T] {
	if w == nil {
		heads = 1
	}
	return product[T]{
		ops: vec.Get[T](), width: width, heads: heads, d: width / heads,
		x: x, stride: width, col: a.Col, edge: a.Edge, w: w, g: &vec.Gather[T]{},
	}
}

// start prepares a copy of the product for one task.
func (m *product[T]) start(q part) {
	m.c0, m.c1 = q.c0, q.c1
	m.g = &vec.Gather[T]{Stride: m.stride, Base: m.g.Base}
	m.direct = m.w == nil && m.scale == nil || m.heads == 1 && m.edge == nil && m.scale == nil
	if !m.direct {
		m.coef = make([]T, m.heads*coefBlock)
	}
}

// row: y[c0:c1] += Σ_k c_k · x[col[k]-base, c0:c1] for slots k0 ≤ k < k1.
func (m *product[T]) row(y []T, k0, k1 int64, first bool) {
	g := m.g
	if m.direct {
		if m.w != nil {
			g.C = m.w[k0:k1]
		}
		g.Y, g.X, g.Col, g.First = y[m.c0:m.c1], m.x[min(m.c0, len(m.x)):], m.col[k0:k1], first
		m.ops.GatherSum(g)
		return
	}
	for {
		k := min(k1, k0+coefBlock)
		g.Col, g.First = m.col[k0:k], first
		for h := m.c0 / max(1, m.d); h*m.d < m.c1; h++ {
			from, to := max(m.c0, h*m.d), min(m.c1, (h+1)*m.d)
			g.Y, g.X, g.C = y[from:to], m.x[min(from, len(m.x)):], m.gather(h, k0, k)
			m.ops.GatherSum(g)
		}
		if k == k1 {
			return
		}
		k0, first = k, false
	}
}

// gather returns the coefficients of head h of slots [k0, k1). Its loops run
// over slices, since a slot has little else to pay for than its checks.
func (m *product[T]) gather(h int, k0, k1 int64) []T {
	c, col, heads := m.coef[h*coefBlock:][:k1-k0], m.col[k0:k1], m.heads
	if len(c) == 0 {
		return c
	}
	if m.w == nil {
		scale := m.scale
		for i, j := range col {
			c[i] = scale[j]
		}
		return c
	}
	if m.edge == nil {
		w := m.w[int(k0)*heads+h:]
		for i := range c {
			c[i] = w[i*heads]
		}
	} else {
		w := m.w[h:]
		for i, e := range m.edge[k0:k1] {
			c[i] = w[int(e)*heads]
		}
	}
	if scale := m.scale; scale != nil {
		for i, j := range col {
			c[i] *= scale[j]
		}
	}
	return c
}
