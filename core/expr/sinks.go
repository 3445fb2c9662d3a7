package expr

import (
	"math"
	"slices"

	"sar/core/internal/vec"
)

// rise is where the reference of a destination's logits rises: what was added
// before edge k of the block has to be multiplied by factor.
type rise struct {
	k, head int32
	factor  float64
}

// slack is by how much a logit may exceed the reference. The reference need not be the
// greatest logit: weights up to e^slack lose nothing, and without slack it would
// rise at a logarithmic number of edges of each destination.
const slack = 8

// weigh: z = e^(x - M), M the reference of the destination at this edge, and adds z to
// the destination's sum. A logit of -inf weighs 0 whatever comes.
func (t *task[T]) weigh(z, x []T, st *step) {
	w := st.width
	most, sum := rows[T]{data: t.s.run.Most[st.slot], stride: w}, rows[T]{data: t.s.run.Inv[st.slot], stride: w}
	if t.own != nil {
		most, sum = t.own.most[st.slot], t.own.inv[st.slot]
	}
	begin, k0 := len(t.rises), 0
	for _, end := range t.ofRows() {
		t.relative(z, x, most.row(t.row_[k0])[:w], k0, int(end))
		k0 = int(end)
	}
	t.s.ops.Exp(z, z)
	rises := t.rises[begin:]
	k0 = 0
	for _, end := range t.ofRows() {
		s := sum.row(t.row_[k0])[:w]
		for ; len(rises) > 0 && rises[0].k < end; rises = rises[1:] {
			k := int(rises[0].k)
			t.s.ops.SumRows(s, z[k0*w:k*w])
			s[rises[0].head] *= T(rises[0].factor)
			k0 = k
		}
		t.s.ops.SumRows(s, z[k0*w:int(end)*w])
		k0 = int(end)
	}
}

// relative: z = x - M for edges k0..k1-1 of one destination, whose reference m rises where it has to.
func (t *task[T]) relative(z, x, m []T, k0, k1 int) {
	w, lowest := len(m), T(math.Inf(-1))
	top := t.left[:w] // the greatest logits so far
	for k := k0; k < k1; k++ {
		// The rest at once, where no reference rises any more. That is looked up at the first edge, which
		// may be the destination's, and at the one after it: rises later in a run are few.
		if k <= k0+1 && !slices.Contains(m, lowest) {
			copy(top, m)
			t.s.ops.MostRows(top, x[k*w:k1*w])
			if !t.exceeds(top, m) {
				t.s.ops.LessRow(z[k*w:k1*w], m, x[k*w:k1*w])
				return
			}
		}
		to := z[k*w : (k+1)*w]
		for h, v := range x[k*w : (k+1)*w] {
			if v > m[h]+slack {
				if m[h] != lowest { // else nothing has a weight yet
					t.rises = append(t.rises, rise{int32(k), int32(h), math.Exp(float64(m[h]) - float64(v))})
				}
				m[h] = v
			}
			to[h] = v - m[h]
			if m[h] == lowest {
				to[h] = v
			}
		}
	}
}

// exceeds tells whether a logit is so much above its reference that this rises.
func (t *task[T]) exceeds(x, m []T) bool {
	for h, v := range x {
		if v > m[h]+slack {
			return true
		}
	}
	return false
}

// runs are where the block's edges change their row or column: its ends.
func runs(ends, index []int32) []int32 {
	for k := 1; k < len(index); k++ {
		if index[k] != index[k-1] {
			ends = append(ends, int32(k))
		}
	}
	return append(ends, int32(len(index)))
}

func (t *task[T]) ofRows() []int32 {
	if len(t.rowRuns) == 0 {
		t.rowRuns = runs(t.rowRuns, t.row_[:t.m])
	}
	return t.rowRuns
}

func (t *task[T]) columnRuns() []int32 {
	if len(t.colRuns) == 0 {
		t.colRuns = runs(t.colRuns, t.col[:t.m])
	}
	return t.colRuns
}

// finish hands a register of the block over.
func (t *task[T]) finish(a *adding) {
	target := &t.s.targets[a.slot]
	if t.own != nil {
		target = &t.own.targets[a.slot]
	}
	switch a.kind {
	case sinkWeights:
	case sinkRow, sinkOnline:
		t.sum(a, target, t.row_[:t.m], t.ofRows())
	case sinkColumn:
		t.sum(a, target, t.col[:t.m], t.columnRuns())
	case sinkScatter:
		t.batch.collect(a, t)
	case sinkEdge:
		w := a.width
		x := t.reg(a.reg)
		for k, e := range t.edge[:t.m] {
			copy(target.data[int(e)*w:][:w], x[k*w:(k+1)*w])
		}
	case sinkParam:
		if a.leaky != nil {
			t.leakyParam(a)
			return
		}
		g, total := &t.gather, t.left[:a.width] // the block's own sum first
		g.Y, g.X, g.Stride, g.Base, g.Col, g.C, g.First = total, t.reg(a.reg), a.width, 0, t.s.first[:t.m], nil, true
		t.s.ops.GatherSum(g)
		t.addParam(a, total)
	case sinkExtremum:
		t.extremum(a, target)
	}
}

// addParam adds the block's sum to the part's.
func (t *task[T]) addParam(a *adding, total []T) {
	for j, v := range total {
		t.sums[a.slot][j] += float64(v)
	}
}

// sum: target[index[k], :] += x[k, :] · c[k, :], edge by edge.
func (t *task[T]) sum(a *adding, target *rows[T], index, ends []int32) {
	if a.leaky != nil {
		t.leakySum(a, target, index, ends)
		return
	}
	x := picked[T]{rows[T]{stride: a.width}, t.s.first[:t.m]}
	if a.x < 0 {
		x.data = t.reg(a.reg)
	} else {
		x = t.load(t.s.code.nodes[a.x].slot)
	}
	all := terms[T]{x: x, heads: 1, of: a.of}
	joint := true // all heads at once
	var c []T
	heads := 1
	if a.c >= 0 {
		c, heads = t.reg(a.c), a.width/a.d
		if joint = heads == 1 || a.d%vec.HeadLanes[T]() == 0; !joint {
			c = t.coefficientsByHead(c, heads)
		} else {
			all.c, all.heads = c, heads
		}
	}
	var rises []rise
	if a.kind == sinkOnline {
		rises = t.rises
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
				one := terms[T]{x: x, c: c[h*t.m : (h+1)*t.m], heads: 1, of: a.of[min(h*d, len(a.of)):]}
				one.x.data = tail(x.data, h*d)
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
		if a.heads > 1 {
			ops.GatherSumHeads(g, a.heads)
		} else {
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
	if heads == 1 {
		return c
	}
	out := t.coefficients[:len(c)]
	for h := range heads {
		row := out[h*t.m : (h+1)*t.m]
		for k := range row {
			row[k] = c[k*heads+h]
		}
	}
	return out
}

// extremum keeps the greatest (least) number of each destination's element and the
// edge that it is of: of equal ones the first edge's, whatever the order in which they come. (DGL
// keeps the first too, but for float32 on CPUs with AVX-512, where libxsmm computes, the last.)
// Where the gradient is shared, it keeps how many equal ones there are.
// NaN never wins, but where the gradient is shared it always does.
func (t *task[T]) extremum(a *adding, target *rows[T]) {
	w, x, least, shared := a.width, t.reg(a.reg), t.s.code.p.Reduce.least(), t.s.code.p.Reduce.shared()
	for k, i := range t.row_[:t.m] {
		best, won := target.row(i)[:w], t.s.run.Winner[int(i)*w:]
		if t.own != nil {
			won = t.own.winner
		}
		if shared {
			winAll(best, x[k*w:(k+1)*w], won[:w], 1, least)
			continue
		}
		t.s.ops.Win(best, x[k*w:(k+1)*w], won[:w], t.edge[k], least)
	}
}

// winAll: where x[j] > best[j] (least: <), best[j] becomes x[j] and won[j] n; where they are equal, n is added.
// NaN stays, and nothing equals it.
func winAll[T Float](best, x []T, won []int32, n int32, least bool) {
	best, won = best[:len(x)], won[:len(x)]
	for j, v := range x {
		switch {
		case v == best[j]:
			won[j] += n
		case !least && v > best[j], least && v < best[j]:
			best[j], won[j] = v, n
		case v != v:
			best[j], won[j] = v, 0
		}
	}
}
