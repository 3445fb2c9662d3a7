package expr

import (
	"math"
	"slices"

	"sar/core/internal/vec"
)

// softmax is one softmax over the in-edges of each destination.
//
// Its weights are e^x divided by their sum. A sweep finds the greatest argument of each destination (or a number near
// it, the reference), and the sum of e^(x - reference); sweeps after it know both. Where the result of the program is a
// sum that the weights are factors of, one sweep does it all: it adds up what is weighed by e^(x - reference) so far,
// and multiplies that where the reference rises. The division comes last. That softmax is Program.online.
type softmax struct {
	node  int // of the program
	level int // softmaxes of lower levels come before it
	width int
}

func (p *Program) findSoftmaxes() {
	live := (&code{p: p, nodes: p.nodes, sinks: []sink{{reg: p.result}}}).live()
	level := make([]int, len(p.nodes)) // softmaxes on the longest path to a register
	for i, n := range p.nodes {
		if n.a >= 0 {
			level[i] = level[n.a]
		}
		if n.b >= 0 {
			level[i] = max(level[i], level[n.b])
		}
		if n.op == opSoftmax && live[i] {
			p.softmaxes = append(p.softmaxes, softmax{node: i, level: level[i], width: n.width})
			level[i]++
		}
	}
	if last := len(p.softmaxes) - 1; last >= 0 && p.reduce().sum {
		if p.heads = p.proportional(p.softmaxes[last].node); p.heads != nil {
			p.online = last
		}
	}
}

// levels is how many levels of softmaxes there are.
func (p *Program) levels() int {
	n := 0
	for _, s := range p.softmaxes {
		n = max(n, s.level+1)
	}
	return n
}

// proportional returns, for each element of the result, the one element of
// register s that it is a multiple of, or nil if there is no such element.
func (p *Program) proportional(s int) []int32 {
	dep := p.depends(func(i int) bool { return i == s })
	if !dep[p.result] {
		return nil
	}
	of := make([][]int32, len(p.nodes))
	through := func(i, operand int) []int32 { // as an operand is broadcast
		if of[operand] == nil {
			return nil
		}
		out := spread(p.nodes[operand].shape, p.nodes[i].shape)
		for k, at := range out {
			out[k] = of[operand][at]
		}
		return out
	}
	for i := s; i < len(p.nodes); i++ {
		n := p.nodes[i]
		switch {
		case i == s:
			of[i] = spread(n.shape, n.shape)
		case !dep[i]:
		case n.op == opScale, n.op == opNeg, n.op == opDropout, n.op == opReshape:
			of[i] = of[n.a]
		case n.op == opMul && !dep[n.b], n.op == opDiv && !dep[n.b]:
			of[i] = through(i, n.a)
		case n.op == opMul && !dep[n.a]:
			of[i] = through(i, n.b)
		case (n.op == opAdd || n.op == opSub) && dep[n.a] && dep[n.b]:
			if x, y := through(i, n.a), through(i, n.b); x != nil && slices.Equal(x, y) {
				of[i] = x
			}
		case n.op == opTotal && of[n.a] != nil:
			of[i] = sameOf(of[n.a], spread(n.shape, p.nodes[n.a].shape), n.width)
		}
	}
	return of[p.result]
}

// sameOf is what sums over elements are multiples of, where all are of the same.
func sameOf(of, to []int32, width int) []int32 {
	out := make([]int32, width)
	for i := range out {
		out[i] = -1
	}
	for k, at := range to {
		if out[at] >= 0 && out[at] != of[k] {
			return nil
		}
		out[at] = of[k]
	}
	if slices.Contains(out, -1) {
		return nil // sums over nothing
	}
	return out
}

// runOfHeads is how many elements of the result belong to one element of the online softmax,
// where they lie side by side; else 0.
func (p *Program) runOfHeads() int {
	heads := p.softmaxes[p.online].width
	if heads == 0 || len(p.heads)%heads != 0 {
		return 0
	}
	d := len(p.heads) / heads
	for j, h := range p.heads {
		if int(h) != j/d {
			return 0
		}
	}
	return d
}

// rise is where the reference of a destination's arguments rises: what was added
// before edge k of the block has to be multiplied by factor.
type rise struct {
	k, head int32
	factor  float64
}

// slack is by how much an argument may exceed the reference. The reference need not be the
// greatest one: weights up to e^slack lose nothing, and without slack it would
// rise at a logarithmic number of edges of each destination.
const slack = 8

// weigh: z = e^(x - M), M the reference of the destination at this edge, and adds z to
// the destination's sum. An argument of -inf weighs 0 whatever comes.
func (t *task[T]) weigh(z []T, c *call[T]) {
	w, x := c.width, t.reg(c.a)
	most, sum := rows[T]{data: t.s.run.Most[c.arg], stride: w}, rows[T]{data: t.s.run.Inv[c.arg], stride: w}
	if t.own != nil {
		most, sum = t.own.most[c.arg], t.own.inv[c.arg]
	}
	begin, k0 := len(t.rises), 0
	for _, end := range t.ends(false) {
		t.relative(z, x, most.row(t.rows[k0])[:w], k0, int(end))
		k0 = int(end)
	}
	t.s.ops.Exp(z, z)
	rises := t.rises[begin:]
	k0 = 0
	for _, end := range t.ends(false) {
		s := sum.row(t.rows[k0])[:w]
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
	top := t.left[:w] // the greatest arguments so far
	for k := k0; k < k1; k++ {
		// The rest at once, where no reference rises any more. That is looked up at the first edge, which
		// may be the destination's, and at the one after it: rises later in a run are few.
		if k <= k0+1 && !slices.Contains(m, lowest) {
			copy(top, m)
			t.s.ops.MostRows(top, x[k*w:k1*w])
			if !exceeds(top, m) {
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

// exceeds tells whether an argument is so much above its reference that this rises.
func exceeds[T Float](x, m []T) bool {
	for h, v := range x {
		if v > m[h]+slack {
			return true
		}
	}
	return false
}

// factors are those of what a destination has come to and of what is added to it, where both are relative to references
// of their own: for each element of a softmax.
type factors[T Float] [2][]T

func newFactors[T Float](width int) factors[T] { return factors[T]{make([]T, width), make([]T, width)} }

// mergeWeights adds the sum of the weights of some edges of destination i to what softmax n has of it, and says with
// which factors.
func (r *Run[T]) mergeWeights(n int, i int32, theirs, weights []T, f *factors[T]) {
	w := len(theirs)
	most, sum := r.Most[n][int(i)*w:][:w], r.Inv[n][int(i)*w:][:w]
	for h, m := range theirs {
		f[0][h], f[1][h] = 1, 1
		switch {
		case m > most[h]:
			f[0][h] = T(math.Exp(float64(most[h]) - float64(m)))
			most[h] = m
		case !math.IsInf(float64(m), -1): // else nothing has a weight there
			f[1][h] = T(math.Exp(float64(m) - float64(most[h])))
		}
		sum[h] = sum[h]*f[0][h] + weights[h]*f[1][h]
	}
}

// mergeWeighed adds what the online softmax has weighed, runs of d elements with one factor each; 0: there are none.
func (r *Run[T]) mergeWeighed(to, x []T, f *factors[T], d int) {
	if d > 0 {
		ops := vec.Get[T]()
		for h, factor := range f[0] {
			if factor != 1 {
				ops.Scale(to[h*d:(h+1)*d], factor)
			}
			ops.Axpy(to[h*d:(h+1)*d], x[h*d:(h+1)*d], f[1][h])
		}
		return
	}
	for j, h := range r.Program.heads {
		to[j] = to[j]*f[0][h] + x[j]*f[1][h]
	}
}

// invert turns the sums of a softmax into their inverses, 0 where there are no edges.
func (r *Run[T]) invert(s int) {
	w, ptr, inv := r.Program.softmaxes[s].width, r.Rel.RowPtr.Data, r.Inv[s]
	for i := range r.Rel.NumDst {
		if ptr[i] == ptr[i+1] {
			continue
		}
		for h := i * w; h < (i+1)*w; h++ {
			inv[h] = 1 / inv[h]
		}
	}
}
