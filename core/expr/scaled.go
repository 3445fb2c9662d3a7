package expr

import "sar/core/internal/vec"

// Sums of rows as they lie, and of rows times coefficients: what attention adds up forward and backward.

// rowsInPlace are rows that are added up as they are.
func rowsInPlace[T Float]() pattern[T] {
	return pattern[T]{sum: func(s *selection, k sink) (addend, bool) {
		return addend{from: -1, rows: k.reg}, k.kind.addsRows() && s.gathered(k.reg)
	}}
}

// scaledRows are rows times a coefficient for every d elements, which nothing else reads.
func scaledRows[T Float]() pattern[T] {
	return pattern[T]{
		sum: func(s *selection, k sink) (a addend, ok bool) {
			wanted := s.gathered
			switch {
			case k.kind == sinkScatter:
				wanted = s.ofSource
			case !k.kind.addsRows() || s.uses[k.reg] > 1:
				return a, false
			}
			a.from, a.rows, a.d, ok = s.scaled(k.reg, s.nodes[k.reg].shape, 1, wanted)
			return a, ok && a.d*s.size >= directBytes && (k.kind != sinkOnline || runsOf(s.p.heads, a.d))
		},
		scatter: func(s *Sweep[T], a *sum[T], b *batch[T], share, shares int) {
			if x, ok := shareOf[T](a, share, shares); ok {
				x.each(s, a, b, s.nodes[a.rows].arg, &vec.Scatter[T]{}, s.ops.ScatterSum)
			}
		},
	}
}

func (k sinkKind) addsRows() bool { return k == sinkRow || k == sinkColumn || k == sinkOnline }

// runsOf tells whether the d elements of each group have one head.
func runsOf(of []int32, d int) bool {
	for j, h := range of {
		if h != of[j/d*d] {
			return false
		}
	}
	return true
}

// addRows: target[index[k], :] += rows[k, :] · from[k, :], edge by edge.
func (t *task[T]) addRows(a *sum[T]) {
	target, index, ends := t.target(a), t.rows[:t.m], t.ends(a.kind == sinkColumn)
	if a.kind == sinkColumn {
		index = t.cols[:t.m]
	}
	all := terms[T]{heads: 1}
	var rises []rise
	if a.kind == sinkOnline {
		all.of, rises = t.s.p.heads, t.rises
	}
	if a.rows < 0 {
		all.x = t.source(a.from)
	} else {
		all.x = t.load(t.s.nodes[a.rows].arg)
	}
	joint := true // all heads at once
	var c []T
	heads := 1
	if a.rows >= 0 && a.from >= 0 {
		c, heads = t.reg(a.from), a.width/a.d
		if joint = heads == 1 || all.x.half != nil || a.d%vec.HeadLanes[T]() == 0; !joint {
			c = t.coefficientsByHead(c, heads)
		} else {
			all.c, all.heads = c, heads
		}
	}
	k0 := 0
	for _, k1 := range ends {
		y := target.row(index[k0])[:a.width]
		n := 0
		for n < len(rises) && rises[n].k < k1 {
			n++
		}
		if joint {
			t.addRun(&all, y, k0, int(k1), rises[:n])
		} else {
			d := a.d
			for h := range heads {
				one := terms[T]{x: all.x, c: c[h*t.m : (h+1)*t.m], heads: 1, of: all.of[min(h*d, len(all.of)):]}
				one.x.data = tail(one.x.data, h*d)
				t.addRun(&one, y[h*d:(h+1)*d], k0, int(k1), rises[:n])
			}
		}
		rises, k0 = rises[n:], int(k1)
	}
}

// terms is what a block adds up: rows alone, or times their coefficients, c [m, heads].
type terms[T Float] struct {
	x     picked[T]
	c     []T
	heads int
	of    []int32 // which head's rises concern an element
}

// addRun adds edges k0..k1-1 of the block, which have one target, to y.
func (t *task[T]) addRun(a *terms[T], y []T, k0, k1 int, rises []rise) {
	g, ops := &t.gather, t.s.ops
	g.Y, g.First, g.C = y, false, nil
	add := func(to int) {
		if k0 == to {
			return
		}
		a.x.gather(g, k0, to)
		if a.c != nil {
			g.C = a.c[k0*a.heads : to*a.heads]
		}
		switch {
		case a.heads > 1 && g.Half != nil:
			ops.HalfSumHeads(g, a.heads)
		case a.heads > 1:
			ops.GatherSumHeads(g, a.heads)
		case g.Half != nil:
			ops.HalfSum(g)
		default:
			ops.GatherSum(g)
		}
		k0 = to
	}
	for _, r := range rises {
		add(int(r.k))
		for i := range y {
			if a.of[i] == r.head {
				y[i] *= T(r.factor)
			}
		}
	}
	add(k1)
}

// coefficientsByHead turns c [m, heads] into [heads, m].
func (t *task[T]) coefficientsByHead(c []T, heads int) []T {
	out := t.coefficients[:len(c)]
	for h := range heads {
		row := out[h*t.m : (h+1)*t.m]
		for k := range row {
			row[k] = c[k*heads+h]
		}
	}
	return out
}
