package expr

import "sar/core/internal/vec"

// task is a block of edges and its registers, as one thread computes them.
type task[T Float] struct {
	s                *Sweep[T]
	m                int     // edges of the block
	cols, rows, edge []int32 // sources, destinations and the users' numbers of the edges
	buffers          [][]T
	left, right      []T // operands broadcast to the shape of a result
	wide             []T // a row that was widened
	coefficients     []T
	gather           vec.Gather[T]
	pairs            vec.Pairs[T]
	rises            []rise
	fixedDone        bool
	sums             [][]float64 // of gradients of parameters, by sink
	colEnd, rowEnd   []int32     // where columns and rows end in the block; empty: not looked up
	byColumn         bool        // the block was gathered column by column

	own   *partial[T] // where a segment of a long row adds up; nil: where the result belongs
	part  int         // of the sweep
	queue *batchQueue[T]
	batch *batch[T] // what is scattered; nil where nothing is
}

func newTask[T Float](s *Sweep[T]) *task[T] {
	n := s.capacity
	t := &task[T]{s: s, cols: make([]int32, n), rows: make([]int32, n), edge: make([]int32, n)}
	widest := 1
	for _, w := range s.widths {
		t.buffers = append(t.buffers, make([]T, n*w))
		widest = max(widest, w)
	}
	t.right, t.coefficients = make([]T, n*widest), make([]T, n*widest)
	for _, a := range s.calls.sums { // sums of what is never made
		widest = max(widest, (a.width+n-1)/n)
	}
	t.left = make([]T, n*widest)
	return t
}

// reg is the block's values of a register, [m, width].
func (t *task[T]) reg(i int) []T {
	return t.buffers[t.s.buffer[i]][:t.m*t.s.nodes[i].width]
}

// flush computes the block.
func (t *task[T]) flush() {
	if t.m == 0 {
		return
	}
	m, list := t.m, t.s.list
	if !t.fixedDone {
		t.m = t.s.capacity // what is the same for all edges, for any block to come
		t.compute(list[:t.s.fixed])
		t.m, t.fixedDone = m, true
	}
	t.rises, t.colEnd, t.rowEnd = t.rises[:0], t.colEnd[:0], t.rowEnd[:0]
	t.compute(list[t.s.fixed:])
	for _, a := range t.s.calls.sums {
		if a.block != nil {
			a.block(t, a)
		}
	}
	if t.batch != nil {
		t.batch.rows, t.batch.cols = append(t.batch.rows, t.rows[:t.m]...), append(t.batch.cols, t.cols[:t.m]...)
		if len(t.batch.rows) >= batchEdges {
			t.queue.early(t.part, t.batch)
		}
	}
	t.m = 0
}

func (t *task[T]) compute(list []call[T]) {
	for i := range list {
		c := &list[i]
		c.run(t, t.reg(c.reg), c)
	}
}

// ends are where the block's edges change their column, or their row.
func (t *task[T]) ends(byColumn bool) []int32 {
	index, ends := t.rows, &t.rowEnd
	if byColumn {
		index, ends = t.cols, &t.colEnd
	}
	if len(*ends) == 0 {
		*ends = runEnds(*ends, index[:t.m])
	}
	return *ends
}

func runEnds(ends, index []int32) []int32 {
	for k := 1; k < len(index); k++ {
		if index[k] != index[k-1] {
			ends = append(ends, int32(k))
		}
	}
	return append(ends, int32(len(index)))
}

// target is where a sum of the block goes.
func (t *task[T]) target(a *sum[T]) *rows[T] {
	if t.own != nil {
		return &t.own.targets[a.n]
	}
	return &t.s.targets[a.n]
}

// store puts a register where the edges of the block belong.
func (t *task[T]) store(a *sum[T]) {
	w, x, target := a.width, t.reg(a.from), t.target(a)
	for k, e := range t.edge[:t.m] {
		copy(target.data[int(e)*w:][:w], x[k*w:(k+1)*w])
	}
}

// addAll adds a register of the block up over its edges, and then to the part's sum.
func (t *task[T]) addAll(a *sum[T]) {
	g, total := &t.gather, t.left[:a.width]
	g.Y, g.X, g.Stride, g.Base, g.Col, g.C, g.First = total, t.reg(a.from), a.width, 0, t.s.first[:t.m], nil, true
	t.s.ops.GatherSum(g)
	t.addParam(a.n, total)
}

// addParam adds the block's sum to the part's.
func (t *task[T]) addParam(sink int, total []T) {
	for j, v := range total {
		t.sums[sink][j] += float64(v)
	}
}

// load is the rows of an input that the edges read.
func (t *task[T]) load(input int) picked[T] {
	x := picked[T]{t.s.loads[input], t.rows[:t.m]}
	switch t.s.p.side(input) {
	case U:
		x.index = t.cols[:t.m]
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
		return t.load(t.s.nodes[i].arg)
	}
	return picked[T]{rows[T]{data: t.reg(i), stride: t.s.nodes[i].width}, t.s.first[:t.m]}
}
