package expr

import "sar/core/internal/vec"

// What a sweep over columns adds up for destinations. Narrow rows are made and collected. Of wide
// ones only coefficients are: the rows that they multiply are those of sources, a
// column's edges share one, and it is read again when the batch is added.

// terms are the registers that a register is the sum of, as far as it may be taken apart.
func (c *code) terms(reg int, apart func(reg int) bool) []int {
	n := c.nodes[reg]
	if n.op != opAdd || !apart(reg) || !c.nodes[n.a].shape.equal(n.shape) || !c.nodes[n.b].shape.equal(n.shape) {
		return []int{reg}
	}
	return append(c.terms(n.a, apart), c.terms(n.b, apart)...)
}

// ofSource tells whether a register is a row of the source that can be read where it lies.
func (c *code) ofSource(i int) bool { return c.lazy(i) && c.p.side(c.nodes[i].slot) == U }

// outer tells whether all terms of a register are rows of sources times coefficients, or slopes
// of activations times coefficients, elements being of so many bytes.
func (c *code) outer(reg, size int) bool {
	for _, x := range c.terms(reg, func(int) bool { return true }) {
		if _, _, _, ok := c.slopes(x, vec.RegisterBytes/size); ok {
			continue
		}
		if _, _, d, ok := c.scaled(x, c.nodes[x].shape, 1, c.ofSource); !ok || d*size < directBytes {
			return false
		}
	}
	return true
}

// scattered are the sinks that are added up for destinations by columns.
func (s *Sweep[T]) scattered() (sinks []int) {
	for n, k := range s.code.sinks {
		if k.kind == sinkScatter {
			sinks = append(sinks, n)
		}
	}
	return sinks
}

// scatter adds a share of a batch to the rows of destinations, edge by edge: of wide rows its share
// of the columns, of others all to the first.
func (s *Sweep[T]) scatter(a *adding, b *batch[T], share, shares int) {
	target, values := &s.targets[a.slot], b.values[a.at]
	if a.c < 0 {
		if share == 0 {
			s.ops.ScatterAdd(target.data, values, b.rows, target.stride)
		}
		return
	}
	heads, d, row := a.width/a.d, a.d, a.x
	h0, h1, from, to := heads*share/shares, heads*(share+1)/shares, 0, d
	if heads == 1 { // columns of the one head, whole registers
		lanes := vec.HeadLanes[T]()
		n := (d + lanes - 1) / lanes
		h0, h1, from, to = 0, 1, n*share/shares*lanes, min(d, n*(share+1)/shares*lanes)
	}
	from, to = h0*d+from, (h1-1)*d+to
	if from >= to {
		return
	}
	call := &vec.Scatter[T]{Y: tail(target.data, from), Stride: target.stride, Heads: h1 - h0, StrideC: heads}
	if l := a.leaky; l != nil {
		w := s.loads[s.code.nodes[l.v].slot]
		row, call.W, call.StrideW, call.A, call.Alpha = l.u, tail(w.data, from), w.stride, s.parameter(l.p)[from:to], T(l.alpha)
	}
	x := &s.loads[s.code.nodes[row].slot]
	for k := 0; k < len(b.cols); {
		end := k + 1
		for end < len(b.cols) && b.cols[end] == b.cols[k] {
			end++
		}
		call.Row, call.X, call.C = b.rows[k:end], x.row(b.cols[k])[from:to], values[k*heads+h0:]
		if a.leaky != nil {
			s.ops.ScatterSlopes(call)
		} else {
			s.ops.ScatterSum(call)
		}
		k = end
	}
}
