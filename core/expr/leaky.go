package expr

import "sar/core/internal/vec"

// Attention whose logits are products of a vector with activations, a·leaky(u + v), as
// GATv2 has them. The activations have the width of a row, and are never made:
// one loop reads rows of both sides and makes the logit, others add up what their
// gradients are.

// leaky is activations of the sum of a row of the source and one of the destination.
type leaky struct {
	u, v  int // loads
	p     int // the load of the vector, or -1
	alpha float64
}

// sumOfBoth tells whether a register is the sum of a row of the source and one of the
// destination, both read where they lie.
func (c *code) sumOfBoth(i int) (l leaky, ok bool) {
	n := c.nodes[i]
	if n.op != opAdd || !c.lazy(n.a) || !c.lazy(n.b) || c.nodes[n.a].width != n.width || c.nodes[n.b].width != n.width {
		return l, false
	}
	switch a, b := c.p.side(c.nodes[n.a].slot), c.p.side(c.nodes[n.b].slot); {
	case a == U && b == V:
		return leaky{u: n.a, v: n.b, p: -1}, true
	case a == V && b == U:
		return leaky{u: n.b, v: n.a, p: -1}, true
	}
	return l, false
}

// activated tells whether a register is the leaky ReLU of such a sum. The loops take the
// greater of s and alpha·s.
func (c *code) activated(i int) (l leaky, ok bool) {
	n := c.nodes[i]
	if n.op != opLeaky || n.alpha < 0 || n.alpha > 1 {
		return l, false
	}
	l, ok = c.sumOfBoth(n.a)
	l.alpha = n.alpha
	return l, ok
}

// vector tells whether a register is a parameter.
func (c *code) vector(i int) bool {
	n := c.nodes[i]
	return n.op == opLoad && n.slot < len(c.p.Operands) && c.p.side(n.slot) == P
}

// leakyDots recognises products of a parameter with activations, summed over runs of as
// many elements as the loops take.
func (s *Sweep[T]) leakyDots(n node) *leaky {
	c := s.code
	if s.run.plain || n.op != opDots || n.width == 0 || c.nodes[n.a].width == 0 || c.nodes[n.a].width/n.width%vec.HeadLanes[T]() != 0 {
		return nil
	}
	for _, try := range [][2]int{{n.a, n.b}, {n.b, n.a}} {
		if l, ok := c.activated(try[0]); ok && c.vector(try[1]) {
			l.p = try[1]
			return &l
		}
	}
	return nil
}

// slopes tells whether a register is a parameter times the slopes of such activations times a
// coefficient for every d elements, which the loops take.
func (c *code) slopes(reg, lanes int) (l leaky, coefficient, d int, ok bool) {
	n := c.nodes[reg]
	if n.op != opSlope || op(n.slot) != opLeaky || n.alpha < 0 || n.alpha > 1 {
		return l, 0, 0, false
	}
	if l, ok = c.sumOfBoth(n.a); !ok {
		return l, 0, 0, false
	}
	coefficient, vector, d, ok := c.scaled(n.b, n.shape, lanes, c.vector)
	l.p, l.alpha = vector, n.alpha
	return l, coefficient, d, ok
}

// scaled tells whether a register is a product of one of shape s that is as wanted and one that has a
// coefficient for every d of its elements, d a multiple of lanes.
func (c *code) scaled(reg int, s shape, lanes int, wanted func(i int) bool) (coefficient, other, d int, ok bool) {
	n := c.nodes[reg]
	if n.op != opMul || s.width() == 0 {
		return 0, 0, 0, false
	}
	for _, try := range [][2]int{{n.a, n.b}, {n.b, n.a}} {
		x, y := try[0], try[1]
		if d, ok := grouped(c.nodes[x].shape, s); ok && d%lanes == 0 && c.nodes[y].width == s.width() && wanted(y) {
			return x, y, d, true
		}
	}
	return 0, 0, 0, false
}

// leakySum recognises sums of coefficients times slopes times a parameter, the gradients of
// both sides, and of coefficients times activations, that of the parameter.
func (s *Sweep[T]) leakySum(a *adding) bool {
	c := s.code
	var l leaky
	var ok bool
	switch a.kind {
	case sinkRow, sinkColumn, sinkScatter:
		l, a.c, a.d, ok = c.slopes(a.reg, vec.HeadLanes[T]())
	case sinkParam:
		var made int
		a.c, made, a.d, ok = c.scaled(a.reg, c.nodes[a.reg].shape, vec.HeadLanes[T](), func(i int) bool {
			_, ok := c.activated(i)
			return ok
		})
		if ok {
			l, _ = c.activated(made)
		}
	}
	if !ok {
		a.c, a.d = -1, 0
		return false
	}
	a.leaky = &l
	return true
}

// apart are the rows of the side that stays the same over runs, and those of the other.
func (t *task[T]) apart(l *leaky, byColumn bool) (w, x picked[T]) {
	if byColumn {
		return t.source(l.u), t.source(l.v)
	}
	return t.source(l.v), t.source(l.u)
}

// parameter is the row of a parameter.
func (s *Sweep[T]) parameter(i int) []T {
	n := s.code.nodes[i]
	return s.loads[n.slot].data[:n.width]
}

func (t *task[T]) endsOf(byColumn bool) []int32 {
	if byColumn {
		return t.columnRuns()
	}
	return t.ofRows()
}

// leakyDots: z[k, h] = Σ_j a[h, j] · leaky(u[k, h, j] + v[k, h, j])
func (t *task[T]) leakyDots(z []T, st *step) {
	l, heads := st.leaky, st.width
	w, x := t.apart(l, t.byColumn)
	a := t.s.parameter(l.p)
	g := &t.gather
	g.First, g.C = false, nil
	k0 := 0
	for _, k1 := range t.endsOf(t.byColumn) {
		x.gather(g, k0, int(k1))
		g.Out = z[k0*heads : int(k1)*heads]
		t.s.ops.LeakyDots(g, w.of(k0)[:len(a)], a, heads, T(l.alpha))
		k0 = int(k1)
	}
}

// leakySum: target[index[k], h, j] += c[k, h] · a[h, j] · slope(u[k, h, j] + v[k, h, j])
func (t *task[T]) leakySum(a *adding, target *rows[T], index, ends []int32) {
	r := leakyRuns[T]{adding: a, p: t.s.parameter(a.leaky.p)}
	r.w, r.x = t.apart(a.leaky, a.kind == sinkColumn)
	if a.with != nil {
		r.values = t.left[:a.width]
		clear(r.values)
	}
	k0 := 0
	for _, k1 := range ends {
		t.leakyRun(&r, target.row(index[k0])[:a.width], k0, int(k1))
		k0 = int(k1)
	}
	if a.with != nil {
		t.addParam(a.with, r.values)
	}
}

// leakyParam: the sum over k of c[k, h] · leaky(u[k, h, j] + v[k, h, j])
func (t *task[T]) leakyParam(a *adding) {
	r := leakyRuns[T]{adding: a}
	r.w, r.x = t.apart(a.leaky, t.byColumn)
	total := t.left[:a.width] // the block's own sum first
	clear(total)
	k0 := 0
	for _, k1 := range t.endsOf(t.byColumn) {
		t.leakyRun(&r, total, k0, int(k1))
		k0 = int(k1)
	}
	t.addParam(a, total)
}

// leakyRuns is what the runs of a block have in common.
type leakyRuns[T Float] struct {
	*adding
	w, x   picked[T] // of the side that stays the same over a run, and of the other
	p      []T       // nil: activations are added up, not slopes
	values []T       // the sum of the activations besides, or nil
}

// leakyRun adds edges k0..k1-1, which have the same row of w, to y.
func (t *task[T]) leakyRun(r *leakyRuns[T], y []T, k0, k1 int) {
	heads, g := r.width/r.d, &t.gather
	r.x.gather(g, k0, k1)
	g.First, g.Y, g.C = false, y, t.reg(r.c)[k0*heads:k1*heads]
	row := r.w.of(k0)[:r.width]
	if r.values != nil {
		t.s.ops.LeakyBoth(g, row, r.p, r.values, heads, T(r.leaky.alpha))
		return
	}
	t.s.ops.LeakySums(g, row, r.p, heads, T(r.leaky.alpha))
}

// pairLeaky has a sum of slopes take along that of the activations, which are made of the same
// rows and have the same coefficients.
func (s *Sweep[T]) pairLeaky() {
	for i := range s.adds {
		for j := range s.adds {
			a, b := &s.adds[i], &s.adds[j]
			if a.kind == sinkColumn && b.kind == sinkParam && a.leaky != nil && b.leaky != nil && a.with == nil && !b.done &&
				a.c == b.c && a.d == b.d && a.leaky.u == b.leaky.u && a.leaky.v == b.leaky.v && a.leaky.alpha == b.leaky.alpha {
				a.with, b.done = b, true
			}
		}
	}
}
