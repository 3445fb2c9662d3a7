package expr

import "sync"

// A sweep over columns meets the edges of a destination all over the graph. What it adds
// up for destinations is therefore collected, part by part, and added in the order
// of the parts, whichever thread was first: the bits are those of one thread.

const (
	batchEdges   = 1 << 13 // edges that a part collects at most before it waits for its turn
	partsAhead   = 4       // parts for each thread that may wait for one before them
	adderThreads = 4       // threads whose batches one chain keeps up with
	mostChains   = 4
)

// batch is what a part of a sweep adds up for destinations.
type batch[T Float] struct {
	rows, cols []int32
	values     [][]T // by adding of the sweep: what is added, or coefficients, [len(rows), width]
	left       int   // chains that have not added it
}

// collect takes the block's part of what is scattered.
func (b *batch[T]) collect(a *adding, t *task[T]) {
	reg := a.reg
	if a.c >= 0 {
		reg = a.c
	}
	b.values[a.at] = append(b.values[a.at], t.reg(reg)...)
}

// ordered adds batches in the order of their parts. Where there are many threads it does so in several
// chains, each of which adds some of the columns.
type ordered[T Float] struct {
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

// newOrdered is nil where the sweep scatters nothing.
func newOrdered[T Float](s *Sweep[T]) *ordered[T] {
	if len(s.scattered()) == 0 {
		return nil
	}
	threads := s.pool().Threads()
	o := &ordered[T]{s: s, ahead: partsAhead * threads, ready: map[int]*batch[T]{}}
	o.chains = make([]chain, min(mostChains, (threads+adderThreads-1)/adderThreads))
	o.turn.L = &o.mu
	return o
}

func (o *ordered[T]) take() *batch[T] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.s.batches); n > 0 {
		b := o.s.batches[n-1]
		o.s.batches = o.s.batches[:n-1]
		return b
	}
	return &batch[T]{values: make([][]T, len(o.s.adds))}
}

// guard returns what a part defers: if it panics, those that wait for it go on.
func (o *ordered[T]) guard() func() {
	return func() {
		if v := recover(); v != nil {
			o.mu.Lock()
			o.failed = true
			o.mu.Unlock()
			o.turn.Broadcast()
			panic(v)
		}
	}
}

// deliver hands over the last batch of a part. It waits only for parts before it, and only
// where too many batches are ready; those parts run, since parts begin in order.
func (o *ordered[T]) deliver(part int, b *batch[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for part-o.firstPending() > o.ahead && !o.failed {
		o.turn.Wait()
	}
	o.ready[part], b.left = b, len(o.chains)
	for n := range o.chains {
		o.advance(n)
	}
}

// advance adds what is ready for a chain, unless somebody is at it.
func (o *ordered[T]) advance(n int) {
	c := &o.chains[n]
	for !c.adding && !o.failed {
		b := o.ready[c.next]
		if b == nil {
			return
		}
		c.adding = true
		o.mu.Unlock()
		o.add(b, n)
		o.mu.Lock()
		c.adding = false
		if b.left--; b.left == 0 {
			delete(o.ready, c.next)
			b.clear()
			o.s.batches = append(o.s.batches, b)
		}
		c.next++
		o.turn.Broadcast()
	}
}

// firstPending is the first part that is not added everywhere.
func (o *ordered[T]) firstPending() int {
	part := o.chains[0].next
	for _, c := range o.chains[1:] {
		part = min(part, c.next)
	}
	return part
}

// partly adds what a part with very many edges has so far, once it is its turn.
func (o *ordered[T]) partly(part int, b *batch[T]) {
	o.mu.Lock()
	for o.firstPending() != part && !o.failed {
		o.turn.Wait()
	}
	o.mu.Unlock()
	for n := range o.chains {
		o.add(b, n)
	}
	b.clear()
}

// add adds a chain's share of a batch.
func (o *ordered[T]) add(b *batch[T], n int) {
	for i := range o.s.adds {
		if a := &o.s.adds[i]; a.kind == sinkScatter {
			o.s.scatter(a, b, n, len(o.chains))
		}
	}
}

func (b *batch[T]) clear() {
	b.rows, b.cols = b.rows[:0], b.cols[:0]
	for i := range b.values {
		b.values[i] = b.values[i][:0]
	}
}
