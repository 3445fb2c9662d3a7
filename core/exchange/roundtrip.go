package exchange

import (
	"fmt"
	"runtime/debug"
	"sync"

	"sar/core/comm"
	"sar/core/mem"
)

// RoundTrip pulls rows and returns something for each: in round r worker p
// receives rows of p-r chunk by chunk, computes, and sends one row back for
// every row that came, while its own rows go to p+r and what is computed from
// them there comes back. So gradients travel when boundary rows have to be read
// again to compute them.
//
// Three goroutines keep to the order of rounds: Produce fills outgoing rows,
// Consume takes incoming ones and fills what goes back, Return takes what comes
// back. Consume runs on the goroutine that called Move, after Local. Return runs
// beside Produce and Consume, but not before Local has ended, and takes rounds
// and rows in order, so what it adds up has the same bits every time.
type RoundTrip struct {
	Op *comm.Op
	// Flags are told to every worker; Move returns the union of everyone's.
	Flags uint16
	// RowBytes is the size of a row on the way out, BackBytes of what returns.
	RowBytes, BackBytes int
	// Send and Recv are the rows that go out and come in, indexed 1..P-1.
	Send, Recv []int
	// Produce writes rows [first, first+n) of what goes out in round r into dst.
	Produce func(r, first, n int, dst []byte) error
	// Local runs before any Consume or Return. May be nil.
	Local func() error
	// Consume takes rows [first, first+n) of what comes in in round r and writes
	// n rows of BackBytes to back, whose contents are undefined before.
	Consume func(r, first, n int, src, back []byte) error
	// Return takes what came back for rows [first, first+n) of what went out in
	// round r.
	Return func(r, first, n int, src []byte) error
}

// RowsPerFrame is how many rows travel at once, out and back.
func (t *RoundTrip) RowsPerFrame() int { return RowsPerFrame(t.Op, max(t.RowBytes, t.BackBytes)) }

// Move runs the round trip. A window that holds no row of either size must have
// been refused before.
//
// Steps: P-1 rounds. Bytes on the wire: RowBytes + BackBytes per row and two
// frame headers per chunk. Memory besides the links: one frame where P is even.
func (t *RoundTrip) Move(rank, world int) (uint16, error) {
	if world == 1 {
		if t.Local == nil {
			return t.Flags, nil
		}
		return t.Flags, t.Local()
	}
	if t.RowBytes == 0 && t.BackBytes == 0 { // rows of no columns: only flags travel
		t.Send, t.Recv = make([]int, world), make([]int, world)
	}
	if t.RowsPerFrame() == 0 {
		return 0, fmt.Errorf("rows of %d and %d bytes do not fit into frames of %d", t.RowBytes, t.BackBytes, t.Op.MaxPayload())
	}
	s := newTrip(t, rank, world)
	defer s.spare.Free()
	err := t.Op.Run(s.part(s.sendOut), func() error {
		return t.Op.Run(s.part(s.takeBack), s.part(s.answer))
	})
	return t.Flags | s.seen[0] | s.seen[1], err
}

// lane is one direction of the link to a peer. Two goroutines use each end of
// it, for rows on their way out and for rows that return, so all its frames have
// one order, which both ends derive from the sizes that they know:
//
//   - Where the rows go out in an earlier round than the others return, or the
//     other way round, the earlier round comes first.
//   - Where both belong to one round, which is the round P/2 of an even P and the
//     only one of P = 2, chunk k of what returns follows chunk k+1 of what goes out.
//
// Nothing can lock up. Of all frames that have not been taken and given back,
// look at the earliest by round and place: what its sender needs first has come
// earlier, and a lane has room for two frames, of which one at most is not yet
// given back. Under the second rule that holds only if an answer asks for room
// after the frame that it answers has been given back, so it is computed beside
// the link and copied.
type lane struct {
	out, back int // frames of rows that go out, and that return
	rule      int
	next      int // place of the frame whose turn it is
}

const (
	outFirst = iota
	backFirst
	mixed
)

// place is where chunk k comes in the order of the lane.
func (l *lane) place(back bool, k int) int {
	switch {
	case l.rule == mixed && back:
		return k + min(l.out, k+2)
	case l.rule == mixed:
		return k + min(l.back, max(0, k-1))
	case back == (l.rule == backFirst):
		return k
	case back:
		return l.out + k
	}
	return l.back + k
}

// trip is one run of a RoundTrip.
type trip struct {
	*RoundTrip
	rank, world, rows int
	sending, taking   []lane // by peer
	seen              [2]uint16
	spare             mem.Array[byte] // answers of the round P/2

	mu    sync.Mutex
	turn  sync.Cond
	ready bool  // Local has ended
	err   error // the first of any goroutine
}

func newTrip(t *RoundTrip, rank, world int) *trip {
	s := &trip{RoundTrip: t, rank: rank, world: world, rows: t.RowsPerFrame(), sending: make([]lane, world), taking: make([]lane, world)}
	s.turn.L = &s.mu
	for r := 1; r < world; r++ {
		// To the peer my rows go out in round r and its rows' answers in round
		// P-r; what comes from it is the other way round.
		peer := (rank + r) % world
		mine, theirs := s.chunks(t.Send[r]), s.chunks(t.Recv[world-r])
		s.sending[peer] = lane{out: max(1, mine), back: theirs, rule: mixed}
		s.taking[peer] = lane{out: max(1, theirs), back: mine, rule: mixed}
		if 2*r < world {
			s.sending[peer].rule, s.taking[peer].rule = outFirst, backFirst
		} else if 2*r > world {
			s.sending[peer].rule, s.taking[peer].rule = backFirst, outFirst
		}
	}
	return s
}

func (s *trip) chunks(n int) int {
	if n == 0 {
		return 0
	}
	return (n + s.rows - 1) / s.rows
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
				s.change(func() {
					if s.err == nil {
						s.err = err
					}
				})
			}
		}()
		return f()
	}
}

func (s *trip) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.turn.Broadcast()
}

// await returns once it is the turn of chunk k, or with the error of another
// goroutine.
func (s *trip) await(l *lane, back bool, k int) error {
	place := l.place(back, k)
	s.mu.Lock()
	defer s.mu.Unlock()
	for l.next != place && s.err == nil {
		s.turn.Wait()
	}
	return s.err
}

func (s *trip) passOn(l *lane) { s.change(func() { l.next++ }) }

// backRound is the round in the tags of what returns.
func (s *trip) backRound(r int) int { return s.world + r }

// sendOut sends own rows.
func (s *trip) sendOut() error {
	for r := 1; r < s.world; r++ {
		peer := (s.rank + r) % s.world
		l := &s.sending[peer]
		for first, k := 0, 0; first < s.Send[r] || k == 0; k++ {
			n := min(s.rows, s.Send[r]-first)
			if err := s.await(l, false, k); err != nil {
				return err
			}
			dst, err := s.Op.Reserve(peer, n*s.RowBytes)
			if err != nil {
				return err
			}
			if n > 0 {
				if err := s.Produce(r, first, n, dst); err != nil {
					return err
				}
			}
			if err := s.Op.Commit(peer, s.Flags, r, k); err != nil {
				return err
			}
			s.passOn(l)
			first += n
		}
	}
	return nil
}

// answer takes the peers' rows and sends back what is computed from them.
func (s *trip) answer() (err error) {
	if s.Local != nil {
		if err := s.Local(); err != nil {
			return err
		}
	}
	s.change(func() { s.ready = true })
	if half := s.world / 2; s.world%2 == 0 && s.Recv[half] > 0 {
		if s.spare, err = mem.Make[byte](mem.Scratch, min(s.rows, s.Recv[half])*s.BackBytes); err != nil {
			return err
		}
	}
	for r := 1; r < s.world; r++ {
		peer := (s.rank - r + s.world) % s.world
		for first, k := 0, 0; first < s.Recv[r] || k == 0; k++ {
			n := min(s.rows, s.Recv[r]-first)
			if err := s.answerChunk(peer, r, k, first, n); err != nil {
				return err
			}
			first += n
		}
	}
	return nil
}

func (s *trip) answerChunk(peer, r, k, first, n int) error {
	to := &s.sending[peer]
	beside := to.rule == mixed
	back := s.spare.Data
	var err error
	if n > 0 && !beside {
		// The room first: what is computed straight into the link must not hold
		// up the peer's rows while there is none.
		if back, err = s.room(to, peer, k, n); err != nil {
			return err
		}
	}
	err = s.take(peer, false, r, k, n*s.RowBytes, &s.seen[0], func(src []byte) error {
		if n == 0 {
			return nil
		}
		return s.Consume(r, first, n, src, back[:n*s.BackBytes])
	})
	if err != nil || n == 0 {
		return err
	}
	if beside {
		dst, err := s.room(to, peer, k, n)
		if err != nil {
			return err
		}
		copy(dst, back[:n*s.BackBytes])
	}
	if err := s.Op.Commit(peer, s.Flags, s.backRound(r), k); err != nil {
		return err
	}
	s.passOn(to)
	return nil
}

// room is the link's memory for answer k, n rows, once it is its turn.
func (s *trip) room(to *lane, peer, k, n int) ([]byte, error) {
	if err := s.await(to, true, k); err != nil {
		return nil, err
	}
	return s.Op.Reserve(peer, n*s.BackBytes)
}

// takeBack takes what the peers computed from own rows.
func (s *trip) takeBack() error {
	s.mu.Lock()
	for !s.ready && s.err == nil {
		s.turn.Wait()
	}
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for r := 1; r < s.world; r++ {
		peer := (s.rank + r) % s.world
		for first, k := 0, 0; first < s.Send[r]; k++ {
			n := min(s.rows, s.Send[r]-first)
			err := s.take(peer, true, r, k, n*s.BackBytes, &s.seen[1], func(src []byte) error { return s.Return(r, first, n, src) })
			if err != nil {
				return err
			}
			first += n
		}
	}
	return nil
}

// take hands chunk k from peer, which must have size bytes, to f.
func (s *trip) take(peer int, back bool, r, k, size int, seen *uint16, f func(src []byte) error) error {
	l := &s.taking[peer]
	if err := s.await(l, back, k); err != nil {
		return err
	}
	round := r
	if back {
		round = s.backRound(r)
	}
	frame, err := s.Op.Next(peer, round, k)
	if err != nil {
		return err
	}
	if len(frame.Payload) != size {
		err = s.Op.Mismatch(peer, fmt.Sprintf("rank %d expects %d bytes in chunk %d of round %d and got %d: "+
			"the ranks use different feature widths, dtypes or graphs", s.rank, size, k, round, len(frame.Payload)))
	} else {
		err = f(frame.Payload)
	}
	*seen |= frame.Tag.Flags
	s.Op.Release(peer)
	if err == nil {
		s.passOn(l)
	}
	return err
}
