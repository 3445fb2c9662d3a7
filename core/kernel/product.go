package kernel

import (
	"fmt"

	"sar/core/internal/vec"
)

// Product is the product of a sparse matrix with rows of features, Width = h*d columns of h
// heads: row i of it is post_i · Σ_k c_k · x[col[k],:] over the slots k of row i, with
// c_k = w[edge[k],h] · scale[col[k]].
type Product[T Float] struct {
	A     CSR
	X     []T        // [m, h, d]
	Half  []BFloat16 // in place of X
	Width int
	W     []T // [E, h]; nil: 1
	Heads int
	Scale []T // [m], of source rows; nil: 1
	Post  []T // [n], of results, applied while they are in the cache; nil: 1
}

// check panics where arrays are shorter than the loops assume. hasW: W is needed.
func (m *Product[T]) check(lenW int, hasW bool) {
	if m.Width < 0 || m.Heads < 1 || m.Width%m.Heads != 0 {
		panic(fmt.Sprintf("kernel: width %d is not a multiple of %d heads", m.Width, m.Heads))
	}
	a := &m.A
	slots := 0
	if n := a.Rows(); n > 0 {
		slots = int(a.at(n))
	}
	need("columns", len(a.Col), slots)
	if a.Order.Rows != nil {
		need("order", len(a.Order.Rows), a.Rows())
		need("slots before", max(len(a.Order.Before), len(a.Order.Before32)), a.Rows()+1)
	}
	if a.Edge != nil {
		need("edge numbers", len(a.Edge), slots)
	} else if hasW {
		need("edge weights", lenW, slots*m.Heads)
	}
	if m.Post != nil {
		need("post", len(m.Post), a.Rows())
	}
}

// needSources panics where there are fewer than n source rows.
func (m *Product[T]) needSources(n int) { need("x", max(len(m.X), len(m.Half)), n*m.Width) }

// willRead notes that source rows of so many slots are about to be read.
func (m *Product[T]) willRead(p *Pool, slots int64) {
	if m.Half != nil {
		willRead(p, m.Half, slots, m.Width)
	} else {
		willRead(p, m.X, slots, m.Width)
	}
}

// coefBlock is the slots whose coefficients are gathered before they are used.
const coefBlock = 512

// sums is a Product as one task computes it.
type sums[T Float] struct {
	ops        *vec.Ops[T]
	gatherOne  func(g *vec.Gather[T])
	gatherMany func(g *vec.Gather[T], runs []vec.Run)
	width      int
	heads, d   int // 1 and width where there are no weights
	x          []T
	half       []BFloat16 // in place of x
	col        []int32
	edge       []int32
	w, scale   []T
	post       []T // of rows, applied to their sums

	c0, c1 int            // columns of the width that the task computes
	runs   []vec.Run      // rows that are computed next
	ends   []ended        // those of them whose sums are complete then, where post is set
	coef   []T            // [heads, coefBlock], gathered coefficients
	g      *vec.Gather[T] // one per task
	direct bool           // w or scale is the coefficients as it stands
}

// ended is a row whose sums are complete, and where its results begin.
type ended struct {
	row int32
	y   int
}

func newSums[T Float](m Product[T]) sums[T] {
	heads := m.Heads
	if m.W == nil {
		heads = 1
	}
	s := sums[T]{
		ops: vec.Get[T](), width: m.Width, heads: heads, d: m.Width / heads,
		x: m.X, half: m.Half, col: m.A.Col, edge: m.A.Edge, w: m.W, scale: m.Scale, post: m.Post, g: &vec.Gather[T]{},
	}
	s.gatherOne, s.gatherMany = s.ops.GatherSum, s.ops.GatherSums
	if m.Half != nil {
		s.gatherOne, s.gatherMany = s.ops.HalfSum, s.ops.HalfSums
	}
	return s
}

// start prepares a copy for one task.
func (m *sums[T]) start(q part) {
	m.c0, m.c1 = q.c0, q.c1
	m.g = &vec.Gather[T]{Stride: m.width, Base: m.g.Base}
	m.runs = make([]vec.Run, 0, touchRows)
	m.direct = m.w == nil || m.heads == 1 && m.edge == nil && m.scale == nil
	if !m.direct {
		m.coef = make([]T, m.heads*coefBlock)
	}
}

// add notes that slots [k0, k1) of row i are to be summed into row `to` of the
// results. e is k0 in the order of rows, by which edges are numbered. last: they are the
// last slots of the row.
func (m *sums[T]) add(i int32, to int, k0, k1, e int64, last bool) {
	m.runs = append(m.runs, vec.Run{Y: to*m.width + m.c0, From: k0, To: k1, At: e})
	if last && m.post != nil {
		m.ends = append(m.ends, ended{i, to*m.width + m.c0})
	}
}

// from makes the loops read source rows from column c on.
func (m *sums[T]) from(c int) {
	m.g.X, m.g.Half = m.x[min(c, len(m.x)):], m.half[min(c, len(m.half)):]
}

// sum computes the rows that were added. first: y starts from 0 and is not read.
func (m *sums[T]) sum(y []T, first bool) {
	if m.direct {
		g := m.g
		m.from(m.c0)
		g.Y, g.Col, g.C, g.Scale = y, m.col, m.w, m.scale
		g.D, g.First = m.c1-m.c0, first
		m.gatherMany(g, m.runs)
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
func (m *sums[T]) row(y []T, k0, k1, e int64, first bool) {
	g := m.g
	if m.direct {
		if m.w != nil {
			g.C = m.w[e:][:k1-k0]
		}
		m.from(m.c0)
		g.Y, g.Col, g.Scale, g.First = y[m.c0:m.c1], m.col[k0:k1], m.scale, first
		m.gatherOne(g)
		return
	}
	for {
		k := min(k1, k0+coefBlock)
		g.Col, g.First = m.col[k0:k], first
		for h := m.c0 / max(1, m.d); h*m.d < m.c1; h++ {
			from, to := max(m.c0, h*m.d), min(m.c1, (h+1)*m.d)
			m.from(from)
			g.Y, g.C = y[from:to], m.coefficients(h, m.col[k0:k], e)
			m.gatherOne(g)
		}
		if k == k1 {
			return
		}
		k0, e, first = k, e+k-k0, false
	}
}

// coefficients returns those of head h of slots with these columns, whose edges
// are e, e+1, … Its loops run over slices, since a slot has little else to pay
// for than its checks.
func (m *sums[T]) coefficients(h int, col []int32, e int64) []T {
	c, heads := m.coef[h*coefBlock:][:len(col)], m.heads
	if len(c) == 0 {
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
