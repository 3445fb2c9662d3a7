package sample

import (
	"sync"

	"sar/core/internal/view"
	"sar/core/mem"
)

// slabBytes is the granularity of the memory of batches.
const slabBytes = 4 << 20

// Slabs are the memory of batches, used again when a batch is freed: fresh
// pages for some ten megabytes a batch would cost more than filling them.
type Slabs struct {
	mu     sync.Mutex
	free   []mem.Array[byte]
	closed bool
}

// take returns a slab of at least n bytes, what is in it undefined. Slabs that
// are all too small make room for the new one, so that their number is bounded
// by what batches hold at one time.
func (p *Slabs) take(n int) (mem.Array[byte], error) {
	p.mu.Lock()
	best := -1
	for i, s := range p.free {
		if len(s.Data) >= n && (best < 0 || len(s.Data) < len(p.free[best].Data)) {
			best = i
		}
	}
	i := best
	if best < 0 {
		i = len(p.free) - 1
	}
	var s mem.Array[byte]
	if i >= 0 {
		s = p.free[i]
		p.free = append(p.free[:i], p.free[i+1:]...)
	}
	p.mu.Unlock()
	if best >= 0 {
		return s, nil
	}
	s.Free()
	return mem.Make[byte](mem.Scratch, (n+slabBytes-1)/slabBytes*slabBytes)
}

func (p *Slabs) give(slabs []mem.Array[byte]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range slabs {
		if p.closed {
			slabs[i].Free()
		} else {
			p.free = append(p.free, slabs[i])
		}
	}
}

// Close unmaps what is free; batches that live on give theirs back to the system.
func (p *Slabs) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for i := range p.free {
		p.free[i].Free()
	}
	p.free = nil
}

// arena is the memory of one batch.
type arena struct {
	pool  *Slabs
	slabs []mem.Array[byte]
	used  int // of the last slab
}

const lineBytes = 64

// bytes returns n bytes, aligned to a cache line, what is in them undefined.
func (a *arena) bytes(n int) ([]byte, error) {
	if n == 0 {
		return []byte{}, nil
	}
	if k := len(a.slabs); k == 0 || len(a.slabs[k-1].Data)-a.used < n {
		s, err := a.pool.take(n)
		if err != nil {
			return nil, err
		}
		a.slabs, a.used = append(a.slabs, s), 0
	}
	b := a.slabs[len(a.slabs)-1].Data[a.used : a.used+n : a.used+n]
	a.used = min(len(a.slabs[len(a.slabs)-1].Data), (a.used+n+lineBytes-1)&^(lineBytes-1))
	return b, nil
}

func (a *arena) ints(n int) ([]int64, error) {
	b, err := a.bytes(8 * n)
	return view.Numbers[int64](b), err
}

func (a *arena) free() {
	a.pool.give(a.slabs)
	a.slabs, a.used = nil, 0
}
