package expr

import "sync"

// A sweep over columns meets the edges of a destination all over the graph. What it adds
// up for destinations is therefore collected, part by part, and added in the order
// of the parts, whichever thread was first: the bits are those of one thread.

const (
	batchEdges = 1 << 13 // edges that a part collects at most before it waits for its turn
	partsAhead = 4       // parts for each thread that may wait for one before them
)

// batch is what a part of a sweep adds up for destinations.
type batch[T Float] struct {
	rows   []int32
	values [][]T // by sink of the sweep, [len(rows), width]
}

func (b *batch[T]) add(sink int, x []T) { b.values[sink] = append(b.values[sink], x...) }

// ordered adds batches in the order of their parts.
type ordered[T Float] struct {
	s     *Sweep[T]
	sinks []int
	ahead int

	mu     sync.Mutex
	turn   sync.Cond // next has moved, or failed is set
	next   int       // the part whose batch comes next
	ready  map[int]*batch[T]
	adding bool // somebody adds
	failed bool // a part panicked: nobody waits for it
	free   []*batch[T]
}

// newOrdered is nil where the sweep scatters nothing.
func newOrdered[T Float](s *Sweep[T]) *ordered[T] {
	sinks := s.scattered()
	if len(sinks) == 0 {
		return nil
	}
	o := &ordered[T]{s: s, sinks: sinks, ahead: partsAhead * s.pool().Threads(), ready: map[int]*batch[T]{}}
	o.turn.L = &o.mu
	return o
}

func (o *ordered[T]) take() *batch[T] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.free); n > 0 {
		b := o.free[n-1]
		o.free = o.free[:n-1]
		return b
	}
	return &batch[T]{values: make([][]T, len(o.s.code.sinks))}
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
	for part-o.next > o.ahead && !o.failed {
		o.turn.Wait()
	}
	o.ready[part] = b
	if o.adding {
		return
	}
	o.adding = true
	for !o.failed {
		b := o.ready[o.next]
		if b == nil {
			break
		}
		delete(o.ready, o.next)
		o.mu.Unlock()
		o.add(b)
		o.mu.Lock()
		o.free = append(o.free, b)
		o.next++
		o.turn.Broadcast()
	}
	o.adding = false
}

// partly adds what a part with very many edges has so far, once it is its turn.
func (o *ordered[T]) partly(part int, b *batch[T]) {
	o.mu.Lock()
	for (o.next != part || o.adding) && !o.failed {
		o.turn.Wait()
	}
	o.mu.Unlock()
	o.add(b)
}

func (o *ordered[T]) add(b *batch[T]) {
	for _, n := range o.sinks {
		target := &o.s.targets[n]
		o.s.ops.ScatterAdd(target.data, b.values[n], b.rows, target.stride)
		b.values[n] = b.values[n][:0]
	}
	b.rows = b.rows[:0]
}
