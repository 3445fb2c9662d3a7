package expr

import "sar/core/internal/vec"

// task is a block of edges and its registers, as one thread computes them.
type task[T Float] struct {
	s                *Sweep[T]
	m                int // edges of the block
	col, row_, edge  []int32
	buffers          [][]T
	left, right      []T // operands broadcast to the shape of a result
	coefficients     []T
	gather           vec.Gather[T]
	pairs            vec.Pairs[T]
	rises            []rise
	fixedDone        bool
	sums             [][]float64 // of gradients of parameters, by sink
	colRuns, rowRuns []int32
	byColumn         bool // the block was gathered column by column

	own   *partial[T] // where a segment of a hub adds up; nil: where the result belongs
	part  int         // of the sweep
	order *ordered[T]
	batch *batch[T] // what is scattered; nil where nothing is
}

func newTask[T Float](s *Sweep[T]) *task[T] {
	n := s.capacity
	t := &task[T]{s: s, col: make([]int32, n), row_: make([]int32, n), edge: make([]int32, n)}
	widest := 1
	for _, w := range s.widths {
		t.buffers = append(t.buffers, make([]T, n*w))
		widest = max(widest, w)
	}
	t.right, t.coefficients = make([]T, n*widest), make([]T, n*widest)
	for _, a := range s.adds { // sums of what is never made
		widest = max(widest, (a.width+n-1)/n)
	}
	t.left = make([]T, n*widest)
	return t
}

func (t *task[T]) begin() { t.m, t.fixedDone = 0, false }

// reg is the block's values of a register, [m, width].
func (t *task[T]) reg(i int) []T {
	return t.buffers[t.s.buffer[i]][:t.m*t.s.code.nodes[i].width]
}

// flush computes the block.
func (t *task[T]) flush() {
	if t.m == 0 {
		return
	}
	m := t.m
	if !t.fixedDone {
		t.m = t.s.capacity // what is the same for all edges, for any block to come
		for i := range t.s.steps[:t.s.fixed] {
			t.compute(&t.s.steps[i])
		}
		t.m, t.fixedDone = m, true
	}
	t.rises, t.colRuns, t.rowRuns = t.rises[:0], t.colRuns[:0], t.rowRuns[:0]
	for i := range t.s.steps[t.s.fixed:] {
		t.compute(&t.s.steps[t.s.fixed+i])
	}
	for i := range t.s.adds {
		if a := &t.s.adds[i]; !a.done {
			t.finish(a)
		}
	}
	if t.batch != nil {
		t.batch.rows, t.batch.cols = append(t.batch.rows, t.row_[:t.m]...), append(t.batch.cols, t.col[:t.m]...)
		if len(t.batch.rows) >= batchEdges {
			t.order.partly(t.part, t.batch)
		}
	}
	t.m = 0
}

// load is the rows of a slot that each edge reads.
func (t *task[T]) load(slot int) picked[T] {
	x := picked[T]{t.s.loads[slot], t.row_[:t.m]}
	switch t.s.code.p.side(slot) {
	case U:
		x.index = t.col[:t.m]
	case E:
		x.index = t.edge[:t.m]
	case P:
		x.stride = 0
	}
	return x
}

// source is the rows of a register, wherever they are.
func (t *task[T]) source(i int) picked[T] {
	if t.s.buffer[i] < 0 {
		return t.load(t.s.code.nodes[i].slot)
	}
	return picked[T]{rows[T]{data: t.reg(i), stride: t.s.code.nodes[i].width}, t.s.first[:t.m]}
}

func (t *task[T]) compute(st *step) {
	z := t.reg(st.reg)
	switch st.op {
	case opLoad:
		t.copyRows(z, st)
		return
	case opDots:
		if st.leaky != nil {
			t.leakyDots(z, st)
			return
		}
		t.dots(z, st)
		return
	case opWinner:
		t.winner(z, st)
		return
	case opBest:
		t.best(z, st)
		return
	case opMask:
		t.mask(z, st)
		return
	case opAdd, opSub, opMul, opDiv:
		if t.s.buffer[st.a] < 0 || t.s.buffer[st.b] < 0 {
			t.byRow(z, st)
			return
		}
	}
	x := t.reg(st.a)
	switch st.op {
	case opAdd, opSub, opMul, opDiv:
		t.binary(z, x, t.reg(st.b), st)
	case opReshape:
		copy(z, x)
	case opSpread:
		copy(z, t.spread(z, x, st.width, st.ra))
	case opTotal:
		t.total(z, x, st)
	case opWeigh:
		t.weigh(z, x, st)
	case opSlope:
		t.s.defs[st.slot].slope(t, z, x, t.reg(st.b), st.alpha)
	default:
		t.s.defs[st.op].value(t, z, x, st.alpha)
	}
}

// copyRows copies the rows of a load side by side.
func (t *task[T]) copyRows(z []T, st *step) {
	w := st.width
	if st.fixed {
		row := t.s.loads[st.slot].data[:w]
		for k := range t.m {
			copy(z[k*w:], row)
		}
		return
	}
	x := t.load(st.slot)
	t.s.ops.Rows(z, x.data, x.stride, x.base, x.index, w)
}

// spread is x as a result of width w reads it; it may be x itself, or to.
func (t *task[T]) spread(to, x []T, w int, r reading) []T {
	if r.d == 1 {
		return x
	}
	to = to[:t.m*w]
	if r.d > 1 {
		at := 0
		for _, v := range x {
			for j := at; j < at+r.d; j++ {
				to[j] = v
			}
			at += r.d
		}
		return to
	}
	n := len(x) / max(1, t.m)
	for k := range t.m {
		from, row := x[k*n:(k+1)*n], to[k*w:(k+1)*w]
		for j, at := range r.at {
			row[j] = from[at]
		}
	}
	return to
}

func (t *task[T]) binary(z, x, y []T, st *step) {
	ops := t.s.ops
	if st.op == opMul && st.ra.d == 1 && st.rb.d > 1 {
		ops.TimesEach(z, x, y, st.rb.d)
		return
	}
	if st.op == opMul && st.rb.d == 1 && st.ra.d > 1 {
		ops.TimesEach(z, y, x, st.ra.d)
		return
	}
	x, y = t.spread(t.left, x, st.width, st.ra), t.spread(t.right, y, st.width, st.rb)
	t.s.defs[st.op].pair(ops)(z, x, y)
}

// byRow is an operation of two registers of the result's width, of which at least one
// is read where it lies.
func (t *task[T]) byRow(z []T, st *step) {
	x, y := t.source(st.a), t.source(st.b)
	w := st.width
	f := t.s.defs[st.op].pair(t.s.ops)
	for k := range t.m {
		f(z[k*w:(k+1)*w], x.of(k)[:w], y.of(k)[:w])
	}
}

// total sums the elements of x that share one of z.
func (t *task[T]) total(z, x []T, st *step) {
	if st.ra.d > 0 {
		for g := range z {
			var s T
			for _, v := range x[g*st.ra.d : (g+1)*st.ra.d] {
				s += v
			}
			z[g] = s
		}
		return
	}
	clear(z)
	w, n := st.width, len(st.ra.at)
	for k := range t.m {
		to, from := z[k*w:(k+1)*w], x[k*n:(k+1)*n]
		for j, at := range st.ra.at {
			to[at] += from[j]
		}
	}
}

// best: z = x times 1 where y is what its destination has, and times 0 where it is not: NaN at all messages
// of a destination whose result is NaN, as in torch.
func (t *task[T]) best(z []T, st *step) {
	x, y := t.source(st.a), t.source(st.b)
	w := st.width
	for k, i := range t.row_[:t.m] {
		to, from, best := z[k*w:(k+1)*w], x.of(k)[:w], t.s.run.Out[int(i)*w:][:w]
		for j, v := range y.of(k)[:w] {
			var won T
			if v == best[j] {
				won = 1
			}
			to[j] = from[j] * won
		}
	}
}

// winner: z = x where the edge is the one that its destination's element is of.
func (t *task[T]) winner(z []T, st *step) {
	x := t.source(st.a)
	w := st.width
	for k, i := range t.row_[:t.m] {
		t.s.ops.Pick(z[k*w:(k+1)*w], x.of(k)[:w], t.s.run.Winner[int(i)*w:][:w], t.edge[k])
	}
}
