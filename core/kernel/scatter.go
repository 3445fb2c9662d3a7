package kernel

import (
	"sar/core/internal/ascending"
	"sar/core/internal/vec"
)

// Columns are columns [Begin, End) of a matrix by columns: column j has slots Ptr[j]..Ptr[j+1]-1,
// slot k is of row Rows[k] and edge Edge[k] (nil: k itself). Rows ascend in each column.
type Columns struct {
	Ptr        []int32
	Rows, Edge []int32
	Begin, End int32
}

// SpMMScatter is SpMMWindow by columns, for windows in which most rows of the
// matrix have no slot: for columns j of s, for slots k of j:
// y[rows[k],:] += w[edge[k],h] · scale[j-Begin] · x[j-Begin,:]. y [n, h, d] is added to, x [End-Begin, h, d].
// Of m, X or Half, Width, W, Heads and Scale count. Threads divide the rows of y. The sums have the bits
// of SpMMWindow on the same window.
func SpMMScatter[T Float](p *Pool, y []T, m Product[T], s Columns) {
	need("column pointers", len(s.Ptr), int(s.End)+1)
	width, w, heads := m.Width, m.W, m.Heads
	m.A = CSR{Ptr: []int64{0, int64(s.Ptr[len(s.Ptr)-1])}, Col: s.Rows, Edge: s.Edge}
	m.check(len(w), w != nil)
	m.needSources(int(s.End - s.Begin))
	if s.Begin >= s.End || width == 0 {
		return
	}
	ops, n := vec.Get[T](), len(y)/width
	parts := 1
	if threads := p.Threads(); threads > 1 {
		slots := int64(s.Ptr[s.End] - s.Ptr[s.Begin])
		// More parts than threads, because rows differ in degree; but every
		// part walks all columns of the window.
		parts = int(min(int64(4*threads), 1+slots*int64(width+slotCost)/taskWork))
	}
	if w == nil {
		heads = 1
	}
	d := width / heads
	p.Run(parts, func(t int) {
		r0, r1 := int32(n*t/parts), int32(n*(t+1)/parts)
		var wide []T
		if m.Half != nil {
			wide = make([]T, width)
		}
		for j := s.Begin; j < s.End; j++ {
			k0, k1 := int64(s.Ptr[j]), int64(s.Ptr[j+1])
			if parts > 1 {
				k0 = ascending.RunEnd(s.Rows, k0, k1, r0)
				k1 = ascending.RunEnd(s.Rows, k0, k1, r1)
			}
			from := wide
			if m.Half == nil {
				from = m.X[int(j-s.Begin)*width:][:width]
			} else if k0 < k1 {
				ops.HalfRows(wide, m.Half, width, s.Begin, []int32{j}, width)
			}
			scale := T(1)
			if m.Scale != nil {
				scale = m.Scale[j-s.Begin]
			}
			for k := k0; k < k1; k++ {
				to := y[int(s.Rows[k])*width:][:width]
				if w == nil && m.Scale == nil {
					ops.Add(to, from)
					continue
				}
				if w == nil {
					ops.Axpy(to, from, scale)
					continue
				}
				e := int(k)
				if s.Edge != nil {
					e = int(s.Edge[k])
				}
				for h, c := range w[e*heads:][:heads] {
					ops.Axpy(to[h*d:(h+1)*d], from[h*d:(h+1)*d], c*scale)
				}
			}
		}
	})
}
