package exchange

import (
	"sync"

	"sar/core/trace"
)

// sendScheduler sends rows to every peer, to each in the order of its rows. Each
// peer has a goroutine, so that a link that is full holds up no other; they
// produce one at a time, those of lower rounds first, since rounds are taken in
// that order.
type sendScheduler struct {
	m *frames

	mu      sync.Mutex
	turn    []chan struct{} // by round
	waiting []bool          // by round, for its turn to produce
	busy    bool
	ahead   int           // rounds that still have room and something to send
	full    chan struct{} // closed when there is none
}

func newSendScheduler(m *frames) *sendScheduler {
	d := &sendScheduler{m: m, ahead: m.world - 1, full: make(chan struct{})}
	d.turn, d.waiting = make([]chan struct{}, m.world), make([]bool, m.world)
	for r := range d.turn {
		d.turn[r] = make(chan struct{}, 1)
	}
	return d
}

// stuck notes that a round has filled its link, or has nothing more to send.
func (d *sendScheduler) stuck(noted *bool) {
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

// tasks are the goroutines, for comm.Op.Run.
func (d *sendScheduler) tasks() []func() error {
	all := make([]func() error, 0, d.m.world+2)
	for r := 1; r < d.m.world; r++ {
		all = append(all, func() error { return d.send(r) })
	}
	return all
}

// send sends the rows of round r.
func (d *sendScheduler) send(r int) error {
	m, noted := d.m, false
	defer d.stuck(&noted)
	peer := m.peer(r, true)
	var order *frameOrder
	if m.replies {
		order = &m.sending[peer]
	}
	all, done := m.outgoing(r), cargo{}
	for chunk := 0; done != all || chunk == 0; chunk++ {
		load := m.load(all, done)
		ahead := m.aheadBytes(load.ahead)
		size := ahead + load.rows*m.RowBytes
		if err := m.await(order, false, chunk, func() { d.stuck(&noted) }); err != nil {
			return err
		}
		dst, err := m.Op.TryReserve(peer, size)
		if err == nil && dst == nil {
			d.stuck(&noted)
			dst, err = m.Op.Reserve(peer, size)
		}
		if err == nil && load != (cargo{}) {
			err = d.fill(peer, r, done, load, dst)
		}
		if err == nil {
			err = m.Op.Commit(peer, m.Flags, r, chunk)
		}
		if err == nil {
			m.Op.Moved(peer, m.way, size-ahead)
		}
		if err == nil && ahead > 0 {
			m.Op.Moved(peer, m.Ahead.Way, ahead)
		}
		if err != nil {
			return err
		}
		m.passOn(order)
		done.ahead, done.rows = done.ahead+load.ahead, done.rows+load.rows
	}
	return nil
}

// fill produces what a frame has, behind what is done, once it is the round's turn.
func (d *sendScheduler) fill(peer, r int, done, load cargo, dst []byte) error {
	d.mu.Lock()
	if d.busy {
		d.waiting[r] = true
		d.mu.Unlock()
		<-d.turn[r] // who produces computes only, and then passes it on
	} else {
		d.busy = true
		d.mu.Unlock()
	}
	defer d.nextRound()
	span := trace.Begin()
	defer span.End("produce", trace.Sending, d.m.Op.Comm(), peer, r, int64(len(dst)))
	if load.ahead > 0 {
		ahead := d.m.aheadBytes(load.ahead)
		if err := d.m.Ahead.Produce(r, done.ahead, load.ahead, dst[:ahead]); err != nil {
			return err
		}
		dst = dst[ahead:]
	}
	if load.rows == 0 {
		return nil
	}
	return d.m.Produce(r, done.rows, load.rows, dst)
}

// nextRound gives the turn to produce to the lowest round that waits for it.
func (d *sendScheduler) nextRound() {
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

// local runs Local, what is computed from own rows alone, once all links have been
// filled: what has left travels meanwhile. Parts wait for that as well.
func (d *sendScheduler) local() error {
	if d.m.Local == nil && d.m.Own.N == 0 {
		return nil
	}
	<-d.full
	if d.m.Local == nil {
		return nil
	}
	span := trace.Begin()
	defer span.End("own rows", trace.Computing, d.m.Op.Comm(), d.m.rank, 0, 0)
	return d.m.Local()
}
