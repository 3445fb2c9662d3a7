package exchange

import (
	"fmt"
	"runtime/debug"
	"time"

	"sar/core/comm"
)

// lane is one direction of the link to a peer. Two goroutines use each end of
// it, for rows on their way out and for rows that return, so all its frames have
// one order, which both ends derive from the sizes that they know:
//
//   - Where the rows go out in an earlier round than the others return, or the
//     other way round, the earlier round comes first.
//   - Where both belong to one round, which is the round P/2 of an even P and the
//     only one of P = 2, chunk k of what returns follows chunk k+lead of what goes
//     out. So lead+1 chunks are on their way before the first is answered.
//
// Nothing can lock up. Of all frames that have not been taken and given back,
// look at the earliest by round and place: what its sender needs first has come
// earlier, and a lane has room for two frames, of which one at most is not yet
// given back. Under the second rule an answer asks for room after the frame that
// it answers has been given back: it is computed beside the link and copied. Both
// ends of a link may then wait for room to answer chunk k. What each has sent that
// the other does not take before are chunks k+1 to k+lead and the lead-1 answers
// between them, and there is room for the answer besides: lead is chosen so.
type lane struct {
	peer      int
	out, back int // frames of rows that go out, and that return
	rule      int
	lead      int
	next      int // place of the frame whose turn it is
}

// leadOf is the most chunks of size bytes that may be sent before the answer to
// the first is due, where the link has room for as many answers besides.
func leadOf(op *comm.Op, size int) int { return max(1, op.Fit(size)/2) }

const (
	outFirst = iota
	backFirst
	mixed
)

// place is where chunk k comes in the order of the lane.
func (l *lane) place(back bool, k int) int {
	switch {
	case l.rule == mixed && back:
		return k + min(l.out, k+1+l.lead)
	case l.rule == mixed:
		return k + min(l.back, max(0, k-l.lead))
	case back == (l.rule == backFirst):
		return k
	case back:
		return l.out + k
	}
	return l.back + k
}

// part makes f one of the goroutines: its error, or its panic, ends the waiting
// of the others.
func (s *trip) part(f func() error) func() error {
	return func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("bug in the engine: %v\n%s", v, debug.Stack())
			}
			if err != nil {
				s.fail(err)
			}
		}()
		return f()
	}
}

func (s *trip) fail(err error) {
	s.change(func() {
		if s.err == nil {
			s.err = err
		}
	})
}

func (s *trip) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.turn.Broadcast()
}

// watch ends the waiting of all goroutines where the group fails or the deadline
// passes while none of them is in a link, which would say so. Call what it returns.
func (s *trip) watch() (stop func()) {
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

// await returns once it is the turn of chunk k, or with the error of another
// goroutine.
func (s *trip) await(l *lane, back bool, k int) error { return s.awaitOr(l, back, k, func() {}) }

// awaitOr is await that calls wait where it has to wait.
func (s *trip) awaitOr(l *lane, back bool, k int, wait func()) error {
	place := l.place(back, k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.next != place && s.err == nil {
		wait()
	}
	for l.next != place && s.err == nil {
		if s.late {
			return s.Op.Late(l.peer)
		}
		s.turn.Wait()
	}
	return s.err
}

func (s *trip) passOn(l *lane) { s.change(func() { l.next++ }) }

// awaitParts returns once Local and n parts have ended, or with the error of
// another goroutine.
func (s *trip) awaitParts(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done < 1+n && s.err == nil {
		s.turn.Wait()
	}
	return s.err
}
