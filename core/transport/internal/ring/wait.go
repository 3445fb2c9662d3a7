package ring

import (
	"runtime"
	"sync/atomic"
	"time"

	"sar/core/transport"
)

// Expiry is a channel that says when a deadline has passed; never if it is zero.
func Expiry(deadline time.Time) (<-chan time.Time, func()) {
	if deadline.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(deadline))
	return timer.C, func() { timer.Stop() }
}

// Event wakes the one goroutine that waits for it. A signal that nobody waits
// for is kept, so a waiter that looks once more before it sleeps misses nothing.
type Event chan struct{}

// NewEvent makes an event.
func NewEvent() Event { return make(Event, 1) }

// Signal wakes the waiter, now or when it comes.
func (e Event) Signal() {
	select {
	case e <- struct{}{}:
	default:
	}
}

// State is what can end a link: its own side failed it, or the peer went.
type State struct {
	failed, gone atomic.Pointer[error]
	Space, Data  Event // the sender waits for Space, the receiver for Data
	spin         time.Duration
}

// NewState makes the state of a live link. spin is how long a waiter looks
// before it sleeps.
func NewState(spin time.Duration) *State {
	if runtime.NumCPU() == 1 {
		spin = 0
	}
	return &State{Space: NewEvent(), Data: NewEvent(), spin: spin}
}

// Wake makes both waiters look again.
func (s *State) Wake() {
	s.Space.Signal()
	s.Data.Signal()
}

// Fail makes every call return err. The first error stays, except that Close
// turns it into ErrClosed.
func (s *State) Fail(err error) {
	if err == transport.ErrClosed {
		s.failed.Store(&err)
	} else {
		s.failed.CompareAndSwap(nil, &err)
	}
	s.Wake()
}

// Gone notes that the peer sends nothing any more and why. The first reason stays.
func (s *State) Gone(err error) {
	s.gone.CompareAndSwap(nil, &err)
	s.Wake()
}

// Err is the error that this side failed with, GoneErr says why the peer sends nothing any more; or nil.
func (s *State) Err() error     { return load(&s.failed) }
func (s *State) GoneErr() error { return load(&s.gone) }

func load(p *atomic.Pointer[error]) error {
	if e := p.Load(); e != nil {
		return *e
	}
	return nil
}

// waiter is one side's way to block. ready must be cheap; it is asked again
// after every wake-up, and wake-ups may be spurious.
type waiter struct {
	state *State
	event Event
	armed *atomic.Uint32 // set while asleep, so that the other side knows to wake us
	ready func() (bool, error)
	drain bool // what is ready counts even when the peer is gone (receiving)
	// patient: what is waited for takes so long that spinning first is in vain
	patient bool
	op      string
	peer    int
	timer   *time.Timer
	spins   backoff
}

// backoff has a waiter spin less often where that is in vain, as it is where more
// threads compute than there are cores: after every miss in a row twice as many
// waits begin without it.
type backoff struct{ misses, skip int }

const mostSkips = 64

// due says whether to spin this time.
func (b *backoff) due() bool {
	if b.skip > 0 {
		b.skip--
		return false
	}
	return true
}

func (b *backoff) hit() { b.misses = 0 }

func (b *backoff) miss() {
	b.misses = min(max(1, 2*b.misses), mostSkips)
	b.skip = b.misses
}

// look returns done, or the error that ends the wait.
func (w *waiter) look() (bool, error) {
	if err := w.state.Err(); err != nil {
		return false, err
	}
	// Before ready: all that the peer committed before it went is seen then.
	gone := w.state.GoneErr()
	if gone != nil && !w.drain {
		return false, gone
	}
	ok, err := w.ready()
	if err != nil {
		w.state.Fail(err)
		return false, err
	}
	if !ok && gone != nil {
		return false, gone
	}
	return ok, nil
}

// wait blocks until ready, or the link ends, or the deadline passes.
func (w *waiter) wait(deadline time.Time) error {
	if ok, err := w.look(); ok || err != nil {
		return err
	}
	if !deadline.IsZero() && time.Until(deadline) <= 0 {
		return &transport.TimeoutError{Op: w.op, Peer: w.peer}
	}
	if w.state.spin > 0 && !w.patient && w.spins.due() {
		for end := time.Now().Add(w.state.spin); time.Now().Before(end); {
			for range 32 {
				if ok, err := w.look(); ok || err != nil {
					w.spins.hit()
					return err
				}
			}
			runtime.Gosched()
		}
		w.spins.miss()
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
		if w.timer == nil {
			w.timer = time.NewTimer(time.Until(deadline))
		} else {
			w.timer.Reset(time.Until(deadline))
		}
		defer w.timer.Stop()
		expired = w.timer.C
	}
	for {
		w.armed.Store(1)
		if ok, err := w.look(); ok || err != nil {
			w.armed.Store(0)
			return err
		}
		select {
		case <-w.event:
		case <-expired:
			w.armed.Store(0)
			if ok, err := w.look(); ok || err != nil {
				return err
			}
			return &transport.TimeoutError{Op: w.op, Peer: w.peer}
		}
	}
}
