package expr

// dots reads loads where they lie.
func (t *task[T]) dots(z []T, st *step) {
	p := &t.pairs
	p.Out, p.Heads = z, st.width
	w := t.s.code.nodes[st.a].width
	p.D = w / max(1, st.width)
	x, y := t.source(st.a), t.source(st.b)
	if p.D == 0 {
		clear(z)
		return
	}
	if st.sum != nil {
		t.dotSums(z, st)
		return
	}
	if ends, ok := t.constant(st.b); ok {
		t.dotRuns(z, &y, &x, ends, st.width)
		return
	}
	if ends, ok := t.constant(st.a); ok {
		t.dotRuns(z, &x, &y, ends, st.width)
		return
	}
	p.X, p.StrideX, p.BaseX, p.IX = x.data, x.stride, x.base, x.index
	p.Y, p.StrideY, p.BaseY, p.IY = y.data, y.stride, y.base, y.index
	t.s.ops.DotPairs(p)
}

// constant tells where a register keeps its value from edge to edge, and returns the ends of
// the runs that share one.
func (t *task[T]) constant(i int) (ends []int32, ok bool) {
	n := t.s.code.nodes[i]
	if t.s.buffer[i] >= 0 || n.op != opLoad || t.s.run.plain {
		return nil, false
	}
	switch side := t.s.code.p.side(n.slot); {
	case side == U && t.byColumn:
		return t.columnRuns(), true
	case side == V && !t.byColumn:
		return t.ofRows(), true
	}
	return nil, false
}

// dotRuns is dots where one side, y, is the same row over runs of edges.
func (t *task[T]) dotRuns(z []T, y, x *picked[T], ends []int32, heads int) {
	g := &t.gather
	g.First, g.C = false, nil
	width := t.pairs.D * heads
	k0 := 0
	for _, k1 := range ends {
		x.gather(g, k0, int(k1))
		g.Y, g.Out = y.of(k0)[:width], z[k0*heads:int(k1)*heads]
		t.s.ops.GatherDotHeads(g, heads)
		k0 = int(k1)
	}
}

// pair has products of rows of destinations with the row of a source take along the sum of the
// same rows for that source, where its coefficients come first: the rows are read once.
func (s *Sweep[T]) pair() {
	c := s.code
	for i := range s.adds {
		a := &s.adds[i]
		if a.kind != sinkColumn || a.x < 0 || a.c < 0 || a.leaky != nil || s.run.plain {
			continue
		}
		ready := false
		for j := range s.steps {
			st := &s.steps[j]
			ready = ready || st.reg == a.c
			if !ready || st.op != opDots || st.leaky != nil || st.sum != nil || st.width*a.d != a.width || c.nodes[st.a].width != a.width {
				continue
			}
			if st.a == a.x && s.buffer[st.b] < 0 && c.ofSource(st.b) || st.b == a.x && s.buffer[st.a] < 0 && c.ofSource(st.a) {
				st.sum, a.done = a, true
				break
			}
		}
	}
}

// dotSums is dots by columns, and what pair has put with it.
func (t *task[T]) dotSums(z []T, st *step) {
	a := st.sum
	fixed := st.a
	if fixed == a.x {
		fixed = st.b
	}
	w, x := t.source(fixed), t.source(a.x)
	target := &t.s.targets[a.slot]
	if t.own != nil {
		target = &t.own.targets[a.slot]
	}
	g, c, heads := &t.gather, t.reg(a.c), st.width
	g.First = false
	k0 := 0
	for _, k1 := range t.columnRuns() {
		x.gather(g, k0, int(k1))
		g.Y, g.C, g.Out = target.row(t.col[k0])[:a.width], c[k0*heads:int(k1)*heads], z[k0*heads:int(k1)*heads]
		t.s.ops.DotSums(g, w.of(k0)[:a.width], heads)
		k0 = int(k1)
	}
}
