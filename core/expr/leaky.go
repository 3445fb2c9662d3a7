package expr

import "sar/core/internal/vec"

// Attention whose logits are products of a vector with activations, a·leaky(u + v), as GATv2 has them. The activations
// have the width of a row and are never made: one loop reads rows of both sides and makes the logit, and others add up
// what its gradients are, c · a · slope(u + v) for both sides and c · leaky(u + v) for the vector.

// leaky is leaky ReLU of the sum of a row of the source and one of the destination.
type leaky struct {
	u, v  int // loads
	p     int // the load of the vector, -1: what is added up are activations
	alpha float64
	with  int // the sink of the activations that a sum of slopes takes along, -1: none
}

func leakyAttention[T Float]() pattern[T] {
	return pattern[T]{
		call: func(s *selection, n node) (any, []int, bool) {
			l := s.leakyDots(n)
			return l, nil, l != nil
		},
		run: (*task[T]).leakyDots,
		sum: func(s *selection, k sink) (a addend, ok bool) {
			a, l, ok := addend{rows: -1}, leaky{}, false
			lanes := vec.HeadBytes / s.size
			switch k.kind {
			case sinkRow, sinkColumn, sinkScatter:
				l, a.from, a.d, ok = s.slopes(k.reg, lanes)
			case sinkParam:
				var activations int
				a.from, activations, a.d, ok = s.scaled(k.reg, s.nodes[k.reg].shape, lanes, func(i int) bool {
					_, ok := s.activated(i)
					return ok
				})
				if ok {
					l, _ = s.activated(activations)
				}
			}
			a.form = l
			return a, ok
		},
		add:     (*task[T]).leakySum,
		scatter: scatterLeaky[T],
		join:    joinLeaky[T],
	}
}

// leakyDots recognizes products of a parameter with activations, summed over runs of as
// many elements as the loops take.
func (s *selection) leakyDots(n node) *leaky {
	if n.op != opDots || n.width == 0 {
		return nil
	}
	if w := s.nodes[n.a].width; w == 0 || w/n.width%(vec.HeadBytes/s.size) != 0 {
		return nil
	}
	for _, try := range [][2]int{{n.a, n.b}, {n.b, n.a}} {
		if l, ok := s.activated(try[0]); ok && s.parameter(try[1]) {
			l.p = try[1]
			return &l
		}
	}
	return nil
}

// activated tells whether a register is the leaky ReLU of such a sum. The loops take the
// greater of s and alpha·s.
func (c *code) activated(i int) (l leaky, ok bool) {
	n := c.nodes[i]
	if n.op != opLeaky || n.alpha < 0 || n.alpha > 1 {
		return l, false
	}
	return c.sumOfBoth(n.a, n.alpha)
}

// sumOfBoth tells whether a register is the sum of a row of the source and one of the
// destination, both read where they lie.
func (c *code) sumOfBoth(i int, alpha float64) (l leaky, ok bool) {
	n := c.nodes[i]
	if n.op != opAdd || !c.lies(n.a) || !c.lies(n.b) || c.nodes[n.a].width != n.width || c.nodes[n.b].width != n.width {
		return l, false
	}
	l = leaky{u: n.a, v: n.b, p: -1, alpha: alpha, with: -1}
	switch a, b := c.p.side(c.nodes[n.a].arg), c.p.side(c.nodes[n.b].arg); {
	case a == U && b == V:
		return l, true
	case a == V && b == U:
		l.u, l.v = n.b, n.a
		return l, true
	}
	return l, false
}

// slopes tells whether a register is a parameter times the slopes of such activations times a
// coefficient for every d elements, which the loops take.
func (c *code) slopes(reg, lanes int) (l leaky, coefficient, d int, ok bool) {
	n := c.nodes[reg]
	if n.op != opSlope || op(n.arg) != opLeaky || n.alpha < 0 || n.alpha > 1 {
		return l, 0, 0, false
	}
	if l, ok = c.sumOfBoth(n.a, n.alpha); !ok {
		return l, 0, 0, false
	}
	coefficient, l.p, d, ok = c.scaled(n.b, n.shape, lanes, c.parameter)
	return l, coefficient, d, ok
}

// joinLeaky joins the sum of slopes for sources with the sum of activations for the vector, where both are made of the
// same rows with the same coefficients: one loop does both.
func joinLeaky[T Float](_ *selection, k *calls[T]) {
	for _, a := range k.sums {
		for _, b := range k.sums {
			la, slopes := a.form.(leaky)
			lb, activations := b.form.(leaky)
			if slopes && activations && a.kind == sinkColumn && b.kind == sinkParam && la.with < 0 && b.block != nil &&
				a.from == b.from && a.d == b.d && la.u == lb.u && la.v == lb.v && la.alpha == lb.alpha {
				la.with = b.n
				a.form, b.block = la, nil
			}
		}
	}
}

// sides are the rows of both ends of the edges: first of the end that is the same for all edges of a run (the source
// where the block goes by columns), then of the other. They are read where they lie, even where another call has made
// registers of them: buffers are kept for operands of calls, and these are further down.
func (t *task[T]) sides(l *leaky, byColumn bool) (same, other picked[T]) {
	u, v := t.load(t.s.nodes[l.u].arg), t.load(t.s.nodes[l.v].arg)
	if byColumn {
		return u, v
	}
	return v, u
}

// leakyDots: z[k, h] = Σ_j p[h, j] · leaky(u[k, h, j] + v[k, h, j])
func (t *task[T]) leakyDots(z []T, c *call[T]) {
	l, heads := c.form.(*leaky), c.width
	w, x := t.sides(l, t.byColumn)
	p := t.s.parameter(l.p)
	g := &t.gather
	g.First, g.C = false, nil
	k0 := 0
	for _, k1 := range t.ends(t.byColumn) {
		x.gather(g, k0, int(k1))
		g.Out = z[k0*heads : int(k1)*heads]
		t.s.ops.LeakyDots(g, w.of(k0)[:len(p)], p, heads, T(l.alpha))
		k0 = int(k1)
	}
}

// leakySum: target[index[k], h, j] += from[k, h] · p[h, j] · slope(u[k, h, j] + v[k, h, j]), or, for the parameter,
// the sum over k of from[k, h] · leaky(u[k, h, j] + v[k, h, j]).
func (t *task[T]) leakySum(a *sum[T]) {
	l, heads, g := a.form.(leaky), a.width/a.d, &t.gather
	byColumn, index, of := a.kind == sinkColumn, t.rows[:t.m], a.n
	var target *rows[T]
	var p, total []T // the block's own sum of activations, where there is one
	switch {
	case a.kind == sinkParam:
		byColumn, total = t.byColumn, t.left[:a.width]
	case l.with >= 0:
		total, of = t.left[:a.width], l.with
	}
	if a.kind != sinkParam {
		p, target = t.s.parameter(l.p), t.target(a)
	}
	if byColumn {
		index = t.cols[:t.m]
	}
	clear(total)
	same, other := t.sides(&l, byColumn)
	c, k0 := t.reg(a.from), 0
	for _, end := range t.ends(byColumn) {
		k1 := int(end)
		other.gather(g, k0, k1)
		g.First, g.C = false, c[k0*heads:k1*heads]
		row := same.of(k0)[:a.width]
		switch {
		case target == nil:
			g.Y = total
			t.s.ops.LeakySums(g, row, nil, heads, T(l.alpha))
		case total != nil:
			g.Y = target.row(index[k0])[:a.width]
			t.s.ops.LeakyBoth(g, row, p, total, heads, T(l.alpha))
		default:
			g.Y = target.row(index[k0])[:a.width]
			t.s.ops.LeakySums(g, row, p, heads, T(l.alpha))
		}
		k0 = k1
	}
	if total != nil {
		t.addParam(of, total)
	}
}

// scatterLeaky scatters slopes of a batch.
func scatterLeaky[T Float](s *Sweep[T], a *sum[T], b *batch[T], share, shares int) {
	l := a.form.(leaky)
	if x, ok := shareOf[T](a, share, shares); ok {
		w := s.loads[s.nodes[l.v].arg]
		call := &vec.Scatter[T]{W: tail(w.data, x.from), StrideW: w.stride, Alpha: T(l.alpha)}
		call.A = s.parameter(l.p)[x.from:x.to]
		x.each(s, a, b, s.nodes[l.u].arg, call, s.ops.ScatterSlopes)
	}
}
