package exchange

import (
	"sync"

	"sar/core/comm"
	"sar/core/trace"
)

// departures sends rows to every peer, to each in the order of its rows. Each
// peer has a goroutine, so that a link that is full holds up no other; they
// produce one at a time, those of lower rounds first, since rounds are taken in
// that order.
type departures struct {
	op       *comm.Op
	world    int
	flags    uint16
	way      comm.Way
	rowBytes int
	rows     int   // of a frame
	counts   []int // rows of each round
	peer     func(r int) int
	produce  func(r, first, n int, dst []byte) error
	// before and after bracket what is done in a link that others use too; before
	// calls late where it has to wait.
	before func(peer, chunk int, late func()) error
	after  func(peer int)

	mu      sync.Mutex
	turn    []chan struct{} // by round
	waiting []bool          // by round, for its turn to produce
	busy    bool
	ahead   int           // rounds that still have room and something to send
	full    chan struct{} // closed when there is none
}

func (d *departures) init() {
	d.turn, d.waiting = make([]chan struct{}, d.world), make([]bool, d.world)
	for r := range d.turn {
		d.turn[r] = make(chan struct{}, 1)
	}
	d.ahead, d.full = d.world-1, make(chan struct{})
}

// stuck notes that a round has filled its link, or has nothing more to send.
func (d *departures) stuck(noted *bool) {
	if *noted {
		return
	}
	*noted = true
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ahead--; d.ahead == 0 {
		close(d.full)
	}
}

// parts are the goroutines, for comm.Op.Run.
func (d *departures) parts() []func() error {
	all := make([]func() error, 0, d.world)
	for r := 1; r < d.world; r++ {
		all = append(all, func() error { return d.send(r) })
	}
	return all
}

// send sends the rows of round r.
func (d *departures) send(r int) error {
	noted := false
	defer d.stuck(&noted)
	peer := d.peer(r)
	for first, chunk := 0, 0; first < d.counts[r] || chunk == 0; chunk++ {
		n := min(d.rows, d.counts[r]-first)
		if err := d.before(peer, chunk, func() { d.stuck(&noted) }); err != nil {
			return err
		}
		dst, err := d.op.TryReserve(peer, n*d.rowBytes)
		if err == nil && dst == nil {
			d.stuck(&noted)
			dst, err = d.op.Reserve(peer, n*d.rowBytes)
		}
		if err == nil && n > 0 {
			err = d.fill(peer, r, first, n, dst)
		}
		if err == nil {
			err = d.op.Commit(peer, d.flags, r, chunk)
		}
		if err == nil {
			d.op.Moved(peer, d.way, n*d.rowBytes)
		}
		if err != nil {
			return err
		}
		d.after(peer)
		first += n
	}
	return nil
}

// fill produces rows once it is the round's turn.
func (d *departures) fill(peer, r, first, n int, dst []byte) error {
	d.mu.Lock()
	if d.busy {
		d.waiting[r] = true
		d.mu.Unlock()
		<-d.turn[r] // who produces computes only, and then passes it on
	} else {
		d.busy = true
		d.mu.Unlock()
	}
	defer d.passOn()
	span := trace.Begin()
	defer span.End("produce", trace.Sending, d.op.Comm(), peer, r, int64(len(dst)))
	return d.produce(r, first, n, dst)
}

// passOn gives the turn to the lowest round that waits for it.
func (d *departures) passOn() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for r, waits := range d.waiting {
		if waits {
			d.waiting[r] = false
			d.turn[r] <- struct{}{}
			return
		}
	}
	d.busy = false
}

// local runs f, what is computed from own rows alone, once all links have been
// filled: what has left travels meanwhile. more says that there is work besides.
func (d *departures) local(rank int, f func() error, more bool) error {
	if f == nil && !more {
		return nil
	}
	<-d.full
	if f == nil {
		return nil
	}
	span := trace.Begin()
	defer span.End("own rows", trace.Computing, d.op.Comm(), rank, 0, 0)
	return f()
}
