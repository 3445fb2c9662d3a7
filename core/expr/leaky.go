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

// leakySum recognises sums of coefficients times slopes times a parameter, the gradients of
// both sides, and of coefficients times activations, that of the parameter.
func (s *Sweep[T]) leakySum(a *adding) bool {
	c := s.code
	n := c.nodes[a.reg]
	product := n
	switch {
	case (a.kind == sinkRow || a.kind == sinkColumn) && n.op == opSlope && op(n.slot) == opLeaky && n.alpha >= 0 && n.alpha <= 1:
		product = c.nodes[n.b]
	case a.kind != sinkParam:
		return false
	}
	if product.op != opMul || n.width == 0 {
		return false
	}
	for _, try := range [][2]int{{product.a, product.b}, {product.b, product.a}} {
		x, y := try[0], try[1]
		d, ok := grouped(c.nodes[x].shape, n.shape)
		if !ok || d%vec.HeadLanes[T]() != 0 || c.nodes[y].width != n.width {
			continue
		}
		var l leaky
		if a.kind == sinkParam {
			l, ok = c.activated(y)
		} else if l, ok = c.sumOfBoth(n.a); ok {
			l.p, l.alpha = y, n.alpha
			ok = c.vector(y)
		}
		if ok {
			a.c, a.d, a.leaky = x, d, &l
			return true
		}
	}
	return false
}

// apart are the rows of the side that stays the same over runs, and those of the other.
func (t *task[T]) apart(l *leaky, byColumn bool) (w rows[T], iw []int32, x rows[T], ix []int32) {
	w, iw = t.source(l.v)
	x, ix = t.source(l.u)
	if byColumn {
		w, iw, x, ix = x, ix, w, iw
	}
	return w, iw, x, ix
}

// parameter is one of the copies of a parameter.
func (t *task[T]) parameter(i int) []T {
	return t.buffers[t.s.buffer[i]][:t.s.code.nodes[i].width]
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
	w, iw, x, ix := t.apart(l, t.byColumn)
	a := t.parameter(l.p)
	g := &t.gather
	g.X, g.Stride, g.Base, g.First, g.C = x.data, x.stride, x.base, false, nil
	k0 := 0
	for _, k1 := range t.endsOf(t.byColumn) {
		g.Col, g.Out = ix[k0:k1], z[k0*heads:int(k1)*heads]
		t.s.ops.LeakyDots(g, w.data[int(iw[k0]-w.base)*w.stride:][:len(a)], a, heads, T(l.alpha))
		k0 = int(k1)
	}
}

// leakySum: target[index[k], h, j] += c[k, h] · a[h, j] · slope(u[k, h, j] + v[k, h, j])
func (t *task[T]) leakySum(a *adding, target *rows[T], index, ends []int32) {
	k0 := 0
	for _, k1 := range ends {
		y := target.data[int(index[k0]-target.base)*target.stride:][:a.width]
		t.leakyRun(a, y, t.parameter(a.leaky.p), a.kind == sinkColumn, k0, int(k1))
		k0 = int(k1)
	}
}

// leakyParam: total[h, j] += Σ_k c[k, h] · leaky(u[k, h, j] + v[k, h, j])
func (t *task[T]) leakyParam(a *adding, total []T) {
	k0 := 0
	for _, k1 := range t.endsOf(t.byColumn) {
		t.leakyRun(a, total, nil, t.byColumn, k0, int(k1))
		k0 = int(k1)
	}
}

// leakyRun adds edges k0..k1-1, which have the same row of one side, to y.
func (t *task[T]) leakyRun(a *adding, y, p []T, byColumn bool, k0, k1 int) {
	w, iw, x, ix := t.apart(a.leaky, byColumn)
	heads, g := a.width/a.d, &t.gather
	g.X, g.Stride, g.Base, g.First, g.Y = x.data, x.stride, x.base, false, y
	g.Col, g.C = ix[k0:k1], t.reg(a.c)[k0*heads:k1*heads]
	t.s.ops.LeakySums(g, w.data[int(iw[k0]-w.base)*w.stride:][:a.width], p, heads, T(a.leaky.alpha))
}
