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
		a.needRows()
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
		a.eachBlock(q.p0, q.p1, func(place int, rows []int32) {
			m.runs = m.runs[:0]
			for k, i := range rows {
				k0, k1 := a.slots(place+k, i)
				m.add(i, int(i)-r0, k0, k1, a.at(int(i)), true)
			}
			m.sum(y, true)
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
	SpMMWindowScaled(p, y, x, width, a, &Cursor{Slot: cursor}, colBegin, colEnd, w, heads, first, nil)
}

// SpMMWindowScaled is SpMMWindow, and then y[i,:] *= post[i] for the rows whose
// last slot this window has read (of the first window also rows without slots),
// while they are in the cache; post [n], nil: 1. Windows from column 0 to the
// last give the bits of SpMMScaled. The first fills in cursor.Next, where it is kept.
func SpMMWindowScaled[T Float](p *Pool, y, x []T, width int, a CSR, cursor *Cursor, colBegin, colEnd int32, w []T, heads int, first bool, post []T) {
	if post != nil {
		need("post", len(post), a.Rows())
	}
	checkProduct(width, heads, a, len(w), w != nil)
	a.needRows()
	need("y", len(y), a.Rows()*width)
	need("cursor", len(cursor.Slot), a.Rows())
	if cursor.Next != nil {
		need("next columns", len(cursor.Next), a.Rows())
	}
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

// windowTasks is the tasks for each thread of a window that is few columns of many.
const windowTasks = 8

func spmmWindow[T vec.Float](p *Pool, y []T, m product[T], a CSR, cursor *Cursor, colEnd int32, first bool) {
	if first { // own rows; windows after it are few rows of many
		slots := windowSlots(&a, cursor.Slot, colEnd)
		willRead(p, m.x, slots, m.width)
		defer m.align(p, &a, slots)()
	}
	rows, hubs := plan(&a, 0, a.Rows(), m.width, sizeof[T](), p.Threads())
	if !first {
		rows = fewer(rows, windowTasks*p.Threads())
	}
	parts := append(hubs, rows...)
	p.Run(len(parts), func(t int) {
		q, m := parts[t], m
		m.start(q)
		a.eachBlock(q.p0, q.p1, func(_ int, rows []int32) {
			m.runs = m.runs[:0]
			for _, i := range rows {
				if !first && cursor.Passes(i, colEnd) {
					continue
				}
				k0, end := cursor.Slot[i], a.at(int(i)+1)
				k1 := runEnd(a.Col, k0, end, colEnd)
				if k0 == k1 && !first {
					continue
				}
				m.add(i, int(i), k0, k1, k0, k1 == end)
				if t >= len(hubs) {
					cursor.Move(i, a.Col, k1, end)
				}
			}
			m.sum(y, first)
		})
	})
	// The parts of a hub row share its cursor, so it moves once they are done.
	for _, q := range hubs {
		i := a.row(q.p0)
		end := a.at(i + 1)
		cursor.Move(int32(i), a.Col, runEnd(a.Col, cursor.Slot[i], end, colEnd), end)
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
	runs   []vec.Run      // rows that are computed next
	ends   []ended        // those of them whose sums are complete then, where post is set
	coef   []T            // [heads, coefBlock], gathered coefficients
	g      *vec.Gather[T] // one per task
	direct bool           // w is the coefficients as it stands
}

// ended is a row whose sums are complete, and where its results begin.
type ended struct {
	row int32
	y   int
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
	m.runs = make([]vec.Run, 0, touchRows)
	m.direct = m.w == nil && m.scale == nil || m.heads == 1 && m.edge == nil && m.scale == nil
	if !m.direct {
		m.coef = make([]T, m.heads*coefBlock)
	}
}

// add notes that slots [k0, k1) of row i are to be summed into row `to` of the
// results. e is k0 in the order of rows, by which edges are numbered. last: they are the
// last slots of the row.
func (m *product[T]) add(i int32, to int, k0, k1, e int64, last bool) {
	m.runs = append(m.runs, vec.Run{Y: to*m.width + m.c0, From: k0, To: k1, At: e})
	if last && m.post != nil {
		m.ends = append(m.ends, ended{i, to*m.width + m.c0})
	}
}

// sum computes the rows that were added. first: y starts from 0 and is not read.
func (m *product[T]) sum(y []T, first bool) {
	if m.direct {
		g := m.g
		g.Y, g.X, g.Col, g.C = y, m.x[min(m.c0, len(m.x)):], m.col, m.w
		g.D, g.First = m.c1-m.c0, first
		m.ops.GatherSums(g, m.runs)
	} else {
		for _, r := range m.runs {
			m.row(y[r.Y-m.c0:][:m.width], r.From, r.To, r.At, first)
		}
	}
	for _, e := range m.ends {
		m.ops.Scale(y[e.y:][:m.c1-m.c0], m.post[e.row])
	}
	m.ends = m.ends[:0]
}

// row: y[c0:c1] += Σ_k c_k · x[col[k]-base, c0:c1] for slots k0 ≤ k < k1, whose
// edges are e, e+1, …
func (m *product[T]) row(y []T, k0, k1, e int64, first bool) {
	g := m.g
	if m.direct {
		if m.w != nil {
			g.C = m.w[e:][:k1-k0]
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
			g.Y, g.X, g.C = y[from:to], m.x[min(from, len(m.x)):], m.gather(h, m.col[k0:k], e)
			m.ops.GatherSum(g)
		}
		if k == k1 {
			return
		}
		k0, e, first = k, e+k-k0, false
	}
}

// gather returns the coefficients of head h of slots with these columns, whose edges
// are e, e+1, … Its loops run over slices, since a slot has little else to pay
// for than its checks.
func (m *product[T]) gather(h int, col []int32, e int64) []T {
	c, heads := m.coef[h*coefBlock:][:len(col)], m.heads
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
		w := m.w[int(e)*heads+h:]
		for i := range c {
			c[i] = w[i*heads]
		}
	} else {
		w := m.w[h:]
		for i, e := range m.edge[e:][:len(c)] {
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
