package kernel

import "sar/core/internal/view"

// Accumulation is SpMM in parts that may be run one after another, with other work
// between them, into a y that already has something in some of its rows:
//
//	y[i,:] = Σ_k c_k · x[col[k],:]            where filled[i] is 0
//	y[i,:] = y[i,:] + (Σ_k c_k · x[col[k],:])  where it is not
//
// The sum is complete before it is added, so the bits are those of adding what
// y had to the result of SpMM.
type Accumulation struct {
	Parts int            // how many there are
	Run   func(part int) // computes one
	After []int          // so many parts have ended when a group of rows has
}

// SpMMAccumulate prepares the product in about parts parts, without Post. filled [n]. ends
// are the places of the order at which groups of rows end, the last of them n: a group
// begins when those before it have ended.
func SpMMAccumulate[T Float](p *Pool, y []T, m Product[T], filled []uint8, parts int, ends ...int) Accumulation {
	m.check(len(m.W), m.W != nil)
	m.A.needRows()
	need("y", len(y), m.A.Rows()*m.Width)
	need("filled", len(filled), m.A.Rows())
	adviseHuge(y)
	a, all := &m.A, newSums(m)
	var tasks []part
	cuts, after, begin := []int{0}, make([]int, len(ends)), 0 // part i is tasks cuts[i] to cuts[i+1]
	for g, end := range ends {
		rows, long := plan(a, begin, end, m.Width, view.Size[T](), p.Threads())
		first, n := len(tasks), len(long)+len(rows)
		tasks = append(append(tasks, long...), rows...)
		for i, pieces := 0, min(max(1, parts/len(ends)), n); i < pieces; i++ {
			cuts = append(cuts, first+n*(i+1)/pieces)
		}
		begin, after[g] = end, len(cuts)-1
	}
	run := func(part int) {
		from, to := cuts[part], cuts[part+1]
		p.Run(to-from, func(t int) {
			q, m := tasks[from+t], all
			m.start(q)
			var sum []T
			a.eachBlock(q.p0, q.p1, func(_ int, rows []int32) {
				m.runs = m.runs[:0]
				for _, r := range rows {
					i := int(r)
					if filled[i] == 0 {
						m.add(r, i, a.at(i), a.at(i+1), a.at(i), true)
						continue
					}
					if sum == nil {
						sum = make([]T, m.width)
					}
					m.row(sum, a.at(i), a.at(i+1), a.at(i), true)
					m.ops.Add(y[i*m.width:][m.c0:m.c1], sum[m.c0:m.c1])
				}
				m.sum(y, true)
			})
		})
	}
	return Accumulation{len(cuts) - 1, run, after}
}

// ClearRows: y[idx[k],:] = 0. y [n, width].
func ClearRows[T Float](p *Pool, y []T, width int, idx []int32) {
	eachRows(p, len(idx), width, func(k0, k1 int) {
		for _, i := range idx[k0:k1] {
			clear(y[int(i)*width : (int(i)+1)*width])
		}
	})
}
