package kernel

import (
	"sar/core/internal/ascending"
	"sar/core/internal/view"
)

// SpMM: y = m. y [n, h, d]. Rows without slots become 0.
func SpMM[T Float](p *Pool, y []T, m Product[T]) {
	adviseHuge(y)
	SpMMRows(p, y, m, 0, m.A.Rows())
}

// SpMMRows is rows [r0, r1) of SpMM; y [r1-r0, h, d]. An order counts only where
// they are all rows.
func SpMMRows[T Float](p *Pool, y []T, m Product[T], r0, r1 int) {
	need("y", len(y), (r1-r0)*m.Width)
	spmm(p, y, nil, m, r0, r1)
}

// SpMMHalf is SpMM whose sums are rounded to bfloat16 while they are in the cache.
func SpMMHalf[T Float](p *Pool, y []BFloat16, m Product[T]) {
	need("y", len(y), m.A.Rows()*m.Width)
	adviseHuge(y)
	spmm(p, nil, y, m, 0, m.A.Rows())
}

// spmm is SpMMRows, into half where that is given.
func spmm[T Float](p *Pool, y []T, half []BFloat16, m Product[T], r0, r1 int) {
	m.check(len(m.W), m.W != nil)
	if r0 != 0 || r1 != m.A.Rows() {
		m.A.needRows()
		m.A.Order = Order{}
	}
	a, all := &m.A, newSums(m)
	if r1 > r0 {
		m.willRead(p, a.at(r1)-a.at(r0))
	}
	rows, long := plan(a, r0, r1, m.Width, view.Size[T](), p.Threads())
	parts := append(long, rows...)
	p.Run(len(parts), func(t int) {
		q, m := parts[t], all
		m.start(q)
		to := y
		if half != nil {
			to = make([]T, touchRows*m.width)
		}
		a.eachBlock(q.p0, q.p1, func(place int, rows []int32) {
			m.runs = m.runs[:0]
			for k, i := range rows {
				at := int(i) - r0
				if half != nil {
					at = k
				}
				k0, k1 := a.slots(place+k, i)
				m.add(i, at, k0, k1, a.at(int(i)), true)
			}
			m.sum(to, true)
			if half == nil {
				return
			}
			for k, i := range rows {
				m.ops.Narrow(half[int(i)*m.width:][m.c0:m.c1], to[k*m.width:][m.c0:m.c1])
			}
		})
	})
}

// Window is columns [Begin, End) of a matrix. Cursor is where windows before it have come
// to; of several uses of a matrix each has its own. First: it is the first window.
type Window struct {
	Cursor     *Cursor
	Begin, End int32
	First      bool
}

// windowTasks is the tasks for each thread of a window that is few columns of many.
const windowTasks = 8

// SpMMWindow adds one window of columns to a product: for each row i, for slots k from
// the cursor on while k < ptr[i+1] and col[k] < End: y[i,:] += c_k · x[col[k]-Begin,:]; the
// cursor is left at the first slot not read. Rows whose last slot was read (in the first
// window also rows without slots) are then scaled by Post. y [n, h, d], x [End-Begin, h, d],
// without Scale. The first window does not read y. Columns between two windows are passed over.
// Windows that follow each other from column 0 to the last give the bits of SpMM.
func SpMMWindow[T Float](p *Pool, y []T, m Product[T], w Window) {
	m.check(len(m.W), m.W != nil)
	m.A.needRows()
	need("y", len(y), m.A.Rows()*m.Width)
	m.needSources(int(w.End - w.Begin))
	needCursor(w.Cursor, m.A.Rows())
	if w.First {
		adviseHuge(y)
	}
	a, all := &m.A, newSums(m)
	all.g.Base = w.Begin
	cursor, colEnd, first := w.Cursor, w.End, w.First
	if first { // own rows; windows after it are few rows of many
		m.willRead(p, windowSlots(a, cursor.Slot, colEnd))
	}
	rows, long := plan(a, 0, a.Rows(), m.Width, view.Size[T](), p.Threads())
	if !first {
		rows = fewer(rows, windowTasks*p.Threads())
	}
	parts := append(long, rows...)
	p.Run(len(parts), func(t int) {
		q, m := parts[t], all
		m.start(q)
		a.eachBlock(q.p0, q.p1, func(_ int, rows []int32) {
			m.runs = m.runs[:0]
			for _, i := range rows {
				if !first && cursor.Passes(i, colEnd) {
					continue
				}
				k0, end := cursor.Slot[i], a.at(int(i)+1)
				if !first && k0 < end && a.Col[k0] < w.Begin {
					k0 = ascending.RunEnd(a.Col, k0, end, w.Begin)
				}
				k1 := ascending.RunEnd(a.Col, k0, end, colEnd)
				if k0 == k1 && !first {
					continue
				}
				m.add(i, int(i), k0, k1, k0, k1 == end)
				if t >= len(long) {
					cursor.Move(i, a.Col, k1, end)
				}
			}
			m.sum(y, first)
		})
	})
	// The parts of a long row share its cursor, so it moves once they are done.
	for _, q := range long {
		i := a.row(q.p0)
		end := a.at(i + 1)
		cursor.Move(int32(i), a.Col, ascending.RunEnd(a.Col, cursor.Slot[i], end, colEnd), end)
	}
}

// Cursor is how far windows of columns have come in the rows of a matrix.
type Cursor = ascending.Cursor[int64]

// needCursor panics where c is not of n rows.
func needCursor(c *Cursor, n int) {
	need("cursor", len(c.Slot), n)
	if c.Next != nil {
		need("next columns", len(c.Next), n)
	}
}
