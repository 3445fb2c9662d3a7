package exchange

import (
	"time"

	"sar/core/comm"
)

// frameOrder is the order of frames in one direction of the link to a peer, where rows get
// a reply. Two goroutines use each end of it, for rows that go out and for replies, so all
// frames have one order, which both ends derive from the sizes that they know:
//
//   - Where the rows go out in an earlier round than the replies, or the other way round,
//     the earlier round comes first.
//   - Where both belong to one round, which is the round P/2 of an even P and the
//     only one of P = 2, reply k follows chunk k+lead of what goes out. So
//     lead+1 chunks are on their way before the reply to the first.
//
// Nothing can lock up. Of all frames that have not been taken and given back,
// look at the earliest by round and place: what its sender needs first has come
// earlier, and a link has room for two frames, of which one at most is not yet
// given back. Under the second rule a reply asks for room after the frame that
// it replies to has been given back: it is computed outside the link and copied. Both
// ends of a link may then wait for room to reply to chunk k. What each has sent that
// the other does not take before are chunks k+1 to k+lead and the lead-1 replies
// between them, and there is room for the reply besides: lead is chosen so.
type frameOrder struct {
	peer          int
	rows, replies int // frames
	rule          int
	lead          int
	next          int // place of the frame whose turn it is
}

// leadOf is the most chunks of size bytes that may be sent before the reply to
// the first is due, where the link has room for as many replies besides.
func leadOf(op *comm.Op, size int) int { return max(1, op.Fit(size)/2) }

const (
	rowsFirst = iota
	repliesFirst
	mixed
)

// place is where chunk k of the rows, or the reply to it, comes in the order.
func (o *frameOrder) place(reply bool, k int) int {
	switch {
	case o.rule == mixed && reply:
		return k + min(o.rows, k+1+o.lead)
	case o.rule == mixed:
		return k + min(o.replies, max(0, k-o.lead))
	case reply == (o.rule == repliesFirst):
		return k
	case reply:
		return o.rows + k
	}
	return o.replies + k
}

// orderFrames derives the order of the frames to and from each peer. To the peer own rows go
// out in round r and the replies to its rows in round P-r; what comes from it is the
// other way round.
func (s *frames) orderFrames() {
	s.sending, s.taking = make([]frameOrder, s.world), make([]frameOrder, s.world)
	lead := leadOf(s.Op, s.rows*s.widest())
	frames := func(n int) int { return (n + max(1, s.rows) - 1) / max(1, s.rows) }
	for r := 1; r < s.world; r++ {
		peer := s.peer(r, true)
		mine, theirs := frames(s.Send[r]), frames(s.Recv[s.world-r])
		sending, taking := mixed, mixed
		if 2*r < s.world {
			sending, taking = rowsFirst, repliesFirst
		} else if 2*r > s.world {
			sending, taking = repliesFirst, rowsFirst
		}
		s.sending[peer] = frameOrder{peer: peer, rows: max(1, mine), replies: theirs, rule: sending, lead: lead}
		s.taking[peer] = frameOrder{peer: peer, rows: max(1, theirs), replies: mine, rule: taking, lead: lead}
	}
}

// task makes f one of the goroutines: its error, or its panic, ends the waiting
// of the others.
func (s *frames) task(f func() error) func() error {
	return func() error {
		err := comm.Caught(f)
		if err != nil {
			s.fail(err)
		}
		return err
	}
}

func (s *frames) fail(err error) {
	s.change(func() {
		if s.err == nil {
			s.err = err
		}
	})
}

func (s *frames) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.turn.Broadcast()
}

// watch ends the waiting of all goroutines where the group fails or the deadline
// passes while none of them is in a link, which would say so. Call what it returns.
func (s *frames) watch() (stop func()) {
	ended := make(chan struct{})
	timer := time.NewTimer(time.Until(s.Op.Deadline()))
	go func() {
		defer timer.Stop()
		select {
		case <-ended:
		case <-s.Op.Failed():
			s.fail(s.Op.Failure())
		case <-timer.C:
			s.change(func() { s.late = true })
		}
	}()
	return func() { close(ended) }
}

// await returns once it is the turn of chunk k, or of the reply to it, or with the error of
// another goroutine. It calls late where it has to wait. Without an order it returns at once.
func (s *frames) await(o *frameOrder, reply bool, k int, late func()) error {
	if o == nil {
		return nil
	}
	place := o.place(reply, k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.next != place && s.err == nil && late != nil {
		late()
	}
	for o.next != place && s.err == nil {
		if s.late {
			return s.Op.Late(o.peer)
		}
		s.turn.Wait()
	}
	return s.err
}

// passOn gives the turn to the next frame.
func (s *frames) passOn(o *frameOrder) {
	if o != nil {
		s.change(func() { o.next++ })
	}
}

// awaitParts returns once Local and the parts that rows [first, first+n) of round r need
// have ended.
func (s *frames) awaitParts(r, first, n int) error {
	switch {
	case s.Own.N == 0:
		return s.awaitEnded(1)
	case s.Own.Needs != nil:
		return s.awaitEnded(1 + s.Own.Needs(r, first, n))
	case r == 1:
		return s.awaitEnded(1)
	}
	return s.awaitEnded(1 + s.Own.N)
}

// awaitEnded returns once Local and parts, n together, have ended, or with the error of
// another goroutine.
func (s *frames) awaitEnded(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ended < n && s.err == nil {
		s.turn.Wait()
	}
	return s.err
}
