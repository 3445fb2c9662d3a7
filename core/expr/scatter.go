package expr

import (
	"sync"

	"sar/core/internal/vec"
)

// A sweep over columns meets the edges of a destination all over the graph. What it adds
// up for destinations is therefore collected, part by part, and added in the order
// of the parts, whichever thread was first: the bits are those of one thread.
//
// Narrow rows are collected as they are. Of wide ones only coefficients are: the rows that they
// multiply are those of sources, and all edges of a column share one, which is read again when
// the batch is added.

const (
	batchEdges   = 1 << 13 // edges that a part collects at most before it waits for its turn
	partsAhead   = 4       // parts for each thread that may wait for one before them
	adderThreads = 4       // threads whose batches one chain keeps up with
	mostChains   = 4
)

// batch is what a part of a sweep adds up for destinations.
type batch[T Float] struct {
	rows, cols []int32
	values     [][]T // by sum: what is added, or coefficients, [len(rows), width]
	left       int   // chains that have not added it
}

// collect takes the block's part of what is scattered.
func (t *task[T]) collect(a *sum[T]) {
	t.batch.values[a.at] = append(t.batch.values[a.at], t.reg(a.from)...)
}

// scatterMade adds rows of a batch that were made.
func scatterMade[T Float](s *Sweep[T], a *sum[T], b *batch[T], _, _ int) {
	target := &s.targets[a.n]
	s.ops.ScatterAdd(target.data, b.values[a.at], b.rows, target.stride)
}

// columnShare is columns [from, to) of a sum, which belong to some heads from h0 on.
type columnShare[T Float] struct{ from, to, h0, heads, stride int }

// shareOf is a share of the columns of a sum of rows times coefficients; ok is false where it is none.
func shareOf[T Float](a *sum[T], share, shares int) (x columnShare[T], ok bool) {
	heads, d := a.width/a.d, a.d
	h0, h1, from, to := heads*share/shares, heads*(share+1)/shares, 0, d
	if heads == 1 { // columns of the one head, whole registers
		lanes := vec.HeadLanes[T]()
		n := (d + lanes - 1) / lanes
		h0, h1, from, to = 0, 1, n*share/shares*lanes, min(d, n*(share+1)/shares*lanes)
	}
	x = columnShare[T]{from: h0*d + from, to: (h1-1)*d + to, h0: h0, heads: h1 - h0, stride: heads}
	return x, x.from < x.to
}

// each runs a loop for the edges of each column of a batch, whose row it finds in an input.
func (x *columnShare[T]) each(s *Sweep[T], a *sum[T], b *batch[T], input int, call *vec.Scatter[T],
	loop func(*vec.Scatter[T])) {
	target, values, from := &s.targets[a.n], b.values[a.at], s.loads[input]
	from.data, from.half = tail(from.data, x.from), tail(from.half, x.from)
	room := make([]T, x.to-x.from)
	call.Y, call.Stride, call.Heads, call.StrideC = tail(target.data, x.from), target.stride, x.heads, x.stride
	for k := 0; k < len(b.cols); {
		end := k + 1
		for end < len(b.cols) && b.cols[end] == b.cols[k] {
			end++
		}
		call.Row, call.X, call.C = b.rows[k:end], from.numbers(room, b.cols[k]), values[k*x.stride+x.h0:]
		loop(call)
		k = end
	}
}

// batchQueue adds batches in the order of their parts. Where there are many threads it does so in several
// chains, each of which adds some of the columns.
type batchQueue[T Float] struct {
	s     *Sweep[T]
	ahead int

	mu     sync.Mutex
	turn   sync.Cond // a chain has moved, or failed is set
	chains []chain
	ready  map[int]*batch[T]
	failed bool // a part panicked: nobody waits for it
}

// chain is who adds a share of the columns.
type chain struct {
	next   int  // the part whose batch comes next
	adding bool // somebody adds
}

// newBatchQueue is nil where the sweep scatters nothing.
func newBatchQueue[T Float](s *Sweep[T]) *batchQueue[T] {
	if !s.scatters {
		return nil
	}
	threads := s.pool().Threads()
	q := &batchQueue[T]{s: s, ahead: partsAhead * threads, ready: map[int]*batch[T]{}}
	q.chains = make([]chain, min(mostChains, (threads+adderThreads-1)/adderThreads))
	q.turn.L = &q.mu
	return q
}

func (q *batchQueue[T]) take() *batch[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.s.batches); n > 0 {
		b := q.s.batches[n-1]
		q.s.batches = q.s.batches[:n-1]
		return b
	}
	return &batch[T]{values: make([][]T, len(q.s.calls.sums))}
}

// guard returns what a part defers: if it panics, those that wait for it go on.
func (q *batchQueue[T]) guard() func() {
	return func() {
		if v := recover(); v != nil {
			q.mu.Lock()
			q.failed = true
			q.mu.Unlock()
			q.turn.Broadcast()
			panic(v)
		}
	}
}

// deliver hands over the last batch of a part. It waits only for parts before it, and only
// where too many batches are ready; those parts run, since parts begin in order.
func (q *batchQueue[T]) deliver(part int, b *batch[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for part-q.firstPending() > q.ahead && !q.failed {
		q.turn.Wait()
	}
	q.ready[part], b.left = b, len(q.chains)
	for n := range q.chains {
		q.advance(n)
	}
}

// advance adds what is ready for a chain, unless somebody is at it.
func (q *batchQueue[T]) advance(n int) {
	c := &q.chains[n]
	for !c.adding && !q.failed {
		b := q.ready[c.next]
		if b == nil {
			return
		}
		c.adding = true
		q.mu.Unlock()
		q.add(b, n)
		q.mu.Lock()
		c.adding = false
		if b.left--; b.left == 0 {
			delete(q.ready, c.next)
			b.clear()
			q.s.batches = append(q.s.batches, b)
		}
		c.next++
		q.turn.Broadcast()
	}
}

// firstPending is the first part that is not added everywhere.
func (q *batchQueue[T]) firstPending() int {
	part := q.chains[0].next
	for _, c := range q.chains[1:] {
		part = min(part, c.next)
	}
	return part
}

// early adds what a part with very many edges has so far, once it is its turn.
func (q *batchQueue[T]) early(part int, b *batch[T]) {
	q.mu.Lock()
	for q.firstPending() != part && !q.failed {
		q.turn.Wait()
	}
	q.mu.Unlock()
	for n := range q.chains {
		q.add(b, n)
	}
	b.clear()
}

// add adds a chain's share of a batch. An element of a target is always the same chain's, whatever is added to it: sums
// whose shares would not be the same columns are the first chain's.
func (q *batchQueue[T]) add(b *batch[T], n int) {
	for _, a := range q.s.calls.sums {
		switch {
		case a.kind != sinkScatter:
		case a.divides:
			a.scatter(q.s, a, b, n, len(q.chains))
		case n == 0:
			a.scatter(q.s, a, b, 0, 1)
		}
	}
}

func (b *batch[T]) clear() {
	b.rows, b.cols = b.rows[:0], b.cols[:0]
	for i := range b.values {
		b.values[i] = b.values[i][:0]
	}
}
