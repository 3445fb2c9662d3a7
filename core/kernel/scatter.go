package kernel

import (
	"sort"

	"sar/core/internal/vec"
)

// SpMMScatter is SpMMWindow by columns, for windows in which most rows of the
// matrix have no slot: for columns j in [colBegin, colEnd), for slots k in
// ptr[j]..ptr[j+1]-1: y[rows[k],:] += w[edge[k],h] · x[j-colBegin,:].
// Rows ascend in each column. y [n, h, d] is added to, x [colEnd-colBegin, h,
// d], edge nil means k itself, w [E, h] (nil: 1). Threads divide the rows of
// y. The sums have the bits of SpMMWindow on the same window.
func SpMMScatter[T Float, P Offset](p *Pool, y, x []T, width int, ptr []P, rows, edge []int32, colBegin, colEnd int32, w []T, heads int) {
	need("column pointers", len(ptr), int(colEnd)+1)
	slots := []int64{0, int64(ptr[len(ptr)-1])}
	checkProduct(width, heads, CSR{Ptr: slots, Col: rows, Edge: edge}, len(w), w != nil)
	need("x", len(x), int(colEnd-colBegin)*width)
	s := columns[P]{ptr, rows, edge, colBegin, colEnd}
	if is32[T]() {
		spmmScatter(p, as[float32](y), as[float32](x), width, s, as[float32](w), heads)
	} else {
		spmmScatter(p, as[float64](y), as[float64](x), width, s, as[float64](w), heads)
	}
}

// Offset numbers slots.
type Offset interface{ int32 | int64 }

// columns is a window of a matrix by columns.
type columns[P Offset] struct {
	ptr        []P
	rows, edge []int32
	begin, end int32
}

func spmmScatter[T vec.Float, P Offset](p *Pool, y, x []T, width int, s columns[P], w []T, heads int) {
	if s.begin >= s.end || width == 0 {
		return
	}
	ops, n := vec.Get[T](), len(y)/width
	parts := 1
	if threads := p.Threads(); threads > 1 {
		slots := int64(s.ptr[s.end] - s.ptr[s.begin])
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
		for j := s.begin; j < s.end; j++ {
			k0, k1 := int64(s.ptr[j]), int64(s.ptr[j+1])
			if parts > 1 {
				k0 = firstNotBelow(s.rows, k0, k1, r0)
				k1 = firstNotBelow(s.rows, k0, k1, r1)
			}
			from := x[int(j-s.begin)*width:][:width]
			for k := k0; k < k1; k++ {
				to := y[int(s.rows[k])*width:][:width]
				if w == nil {
					ops.Add(to, from)
					continue
				}
				e := int(k)
				if s.edge != nil {
					e = int(s.edge[k])
				}
				for h, c := range w[e*heads:][:heads] {
					ops.Axpy(to[h*d:(h+1)*d], from[h*d:(h+1)*d], c)
				}
			}
		}
	})
}

// firstNotBelow is the first slot in [k0, k1) whose row is at least r, or k1.
func firstNotBelow(rows []int32, k0, k1 int64, r int32) int64 {
	run := rows[k0:k1]
	if len(run) < 16 {
		for i, v := range run {
			if v >= r {
				return k0 + int64(i)
			}
		}
		return k1
	}
	return k0 + int64(sort.Search(len(run), func(i int) bool { return run[i] >= r }))
}
