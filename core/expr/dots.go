package expr

import "sar/core/internal/vec"

// Products of rows, summed over runs of elements: the logits of dot-product attention, and gradients of coefficients.

// dotProducts joins two things that backward does with the rows of a source's destinations: it sums them, weighed by
// coefficients, for the gradient of the source's row, and multiplies each by that row for the gradient of the
// coefficients. One loop does both, so the rows are read once. The coefficients must have been made by then.
func dotProducts[T Float]() pattern[T] {
	return pattern[T]{call: halfDots, run: (*task[T]).halfDots, join: func(s *selection, k *calls[T]) {
		for _, a := range k.sums {
			if a.kind != sinkColumn || a.rows < 0 || a.from < 0 {
				continue
			}
			ready := false
			for i := range k.list {
				c := &k.list[i]
				ready = ready || c.reg == a.from
				fits := c.op == opDots && c.form == nil && c.width*a.d == a.width && s.nodes[c.a].width == a.width
				if !ready || !fits || s.half(a.rows) && a.d < vec.HeadLanes[T]() {
					continue
				}
				row := c.a // of the source
				if row == a.rows {
					row = c.b
				} else if c.b != a.rows {
					continue
				}
				if s.ofSource(row) && !k.makes(row) {
					c.form, a.block = a, nil
					c.run = func(t *task[T], z []T, c *call[T]) { t.dotSums(z, c, row, a) }
					break
				}
			}
		}
	}}
}

// makes tells whether a register exists as such.
func (k *calls[T]) makes(reg int) bool {
	for i := range k.list {
		if k.list[i].reg == reg {
			return true
		}
	}
	return false
}

// halfDots recognizes products of rows of both sides, some in bfloat16, that are read where they lie.
func halfDots(s *selection, n node) (form any, in []int, ok bool) {
	if n.op != opDots || !s.gathered(n.a) || !s.gathered(n.b) || !s.half(n.a) && !s.half(n.b) {
		return nil, nil, false
	}
	ends := [2]Side{s.p.side(s.nodes[n.a].arg), s.p.side(s.nodes[n.b].arg)}
	wide := s.nodes[n.a].width >= n.width*vec.HeadLanes[float32]()
	return nil, nil, n.width > 0 && wide && (ends == [2]Side{U, V} || ends == [2]Side{V, U})
}

func (t *task[T]) halfDots(z []T, c *call[T]) {
	x, y := t.load(t.s.nodes[c.a].arg), t.load(t.s.nodes[c.b].arg)
	if t.byColumn == (t.s.p.side(t.s.nodes[c.a].arg) == U) {
		x, y = y, x
	}
	t.pairs.D = t.s.nodes[c.a].width / c.width
	t.dotRuns(z, &y, &x, t.ends(t.byColumn), c.width)
}

// dots: z[k, h] = Σ_j a[k, h, j] · b[k, h, j]. Loads are read where they lie.
func (t *task[T]) dots(z []T, c *call[T]) {
	p := &t.pairs
	p.Out, p.Heads = z, c.width
	p.D = t.s.nodes[c.a].width / max(1, c.width)
	x, y := t.source(c.a), t.source(c.b)
	if p.D == 0 {
		clear(z)
		return
	}
	if ends, ok := t.sameOverRuns(c.b); ok {
		t.dotRuns(z, &y, &x, ends, c.width)
		return
	}
	if ends, ok := t.sameOverRuns(c.a); ok {
		t.dotRuns(z, &x, &y, ends, c.width)
		return
	}
	p.X, p.StrideX, p.BaseX, p.IX = x.data, x.stride, x.base, x.index
	p.Y, p.StrideY, p.BaseY, p.IY = y.data, y.stride, y.base, y.index
	t.s.ops.DotPairs(p)
}

// sameOverRuns tells whether a register is a row of the side by which edges are grouped in the block, and returns
// the ends of the runs that share one.
func (t *task[T]) sameOverRuns(i int) (ends []int32, ok bool) {
	n := t.s.nodes[i]
	if t.s.buffer[i] >= 0 || n.op != opLoad || t.s.run.plain {
		return nil, false
	}
	side := V
	if t.byColumn {
		side = U
	}
	if t.s.p.side(n.arg) != side {
		return nil, false
	}
	return t.ends(t.byColumn), true
}

// dotRuns is dots where one side, y, is the same row over runs of edges.
func (t *task[T]) dotRuns(z []T, y, x *picked[T], ends []int32, heads int) {
	g := &t.gather
	g.First, g.C = false, nil
	width := t.pairs.D * heads
	k0 := 0
	for _, k1 := range ends {
		x.gather(g, k0, int(k1))
		g.Y, g.Out = y.numbers(t.row(width), k0), z[k0*heads:int(k1)*heads]
		if g.Half != nil {
			t.s.ops.HalfDotHeads(g, heads)
		} else {
			t.s.ops.GatherDotHeads(g, heads)
		}
		k0 = int(k1)
	}
}

// dotSums is dots by columns of the source's row, and the sum a.
func (t *task[T]) dotSums(z []T, c *call[T], row int, a *sum[T]) {
	w, x, target := t.source(row), t.source(a.rows), t.target(a)
	g, from, heads := &t.gather, t.reg(a.from), c.width
	g.First = false
	k0 := 0
	for _, k1 := range t.ends(true) {
		x.gather(g, k0, int(k1))
		g.Y, g.C, g.Out = target.row(t.cols[k0])[:a.width], from[k0*heads:int(k1)*heads], z[k0*heads:int(k1)*heads]
		if row := w.numbers(t.row(a.width), k0); g.Half != nil {
			t.s.ops.HalfDotSums(g, row, heads)
		} else {
			t.s.ops.DotSums(g, row, heads)
		}
		k0 = int(k1)
	}
}
