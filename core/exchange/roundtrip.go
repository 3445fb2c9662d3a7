package exchange

import (
	"fmt"
	"runtime/debug"
	"sync"

	"sar/core/comm"
	"sar/core/mem"
	"sar/core/trace"
)

// RoundTrip pulls rows and returns something for each: in round r worker p
// receives rows of p-r chunk by chunk, computes, and sends one row back for
// every row that came, while its own rows go to p+r and what is computed from
// them there comes back. So gradients travel when boundary rows have to be read
// again to compute them.
//
// Produce fills outgoing rows; Consume takes incoming ones and fills what goes
// back, Return takes what comes back, both in the order of rounds. Consume runs on
// the goroutine that called Move, after Local. Return runs
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
	// Part runs after Local for 0 ≤ part < Parts, in turns with Consume: before rows
	// of which a share has come go that share of the parts and one more, and those
	// that Return needs for as many of the own rows. That depends on the counts of
	// rows and frames alone. Needs is how many parts must have run before Return
	// takes rows [first, first+n) of what went out in round r.
	Parts int
	Part  func(part int)
	Needs func(r, first, n int) int
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
		for part := range t.Parts {
			t.Part(part)
		}
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
	d := &departures{
		op: t.Op, world: world, flags: t.Flags, rowBytes: t.RowBytes, rows: s.rows, counts: t.Send,
		peer: func(r int) int { return (rank + r) % world }, produce: t.Produce,
		before: func(peer, k int, wait func()) error { return s.awaitOr(&s.sending[peer], false, k, wait) },
		after:  func(peer int) { s.passOn(&s.sending[peer]) },
	}
	d.init()
	parts := append(d.parts(), s.takeBack, func() error { return s.answer(d) })
	for i, f := range parts {
		parts[i] = s.part(f)
	}
	err := t.Op.Run(parts...)
	return t.Flags | s.seen[0] | s.seen[1], err
}

// lane is one direction of the link to a peer. Two goroutines use each end of
// it, for rows on their way out and for rows that return, so all its frames have
// one order, which both ends derive from the sizes that they know:
//
//   - Where the rows go out in an earlier round than the others return, or the
//     other way round, the earlier round comes first.
//   - Where both belong to one round, which is the round P/2 of an even P and the
//     only one of P = 2, chunk k of what returns follows chunk k+lead of what goes
//     out. So lead+1 chunks travel while the peer computes from its own rows.
//
// Nothing can lock up. Of all frames that have not been taken and given back,
// look at the earliest by round and place: what its sender needs first has come
// earlier, and a lane has room for two frames, of which one at most is not yet
// given back. Under the second rule an answer asks for room after the frame that
// it answers has been given back: it is computed beside the link and copied. Both
// ends of a link may then wait for their turn to answer chunk k, which comes when
// chunk k+lead has left. Between those two are lead chunks and lead-1 answers, and
// the link has room for them.
type lane struct {
	out, back int // frames of rows that go out, and that return
	rule      int
	lead      int
	next      int // place of the frame whose turn it is
}

// leadOf is the most chunks of size bytes that may be sent before the answer to
// the first is due.
func leadOf(op *comm.Op, size int) int { return max(1, (op.Fit(size)+1)/2) }

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

// trip is one run of a RoundTrip.
type trip struct {
	*RoundTrip
	rank, world, rows int
	sending, taking   []lane // by peer
	seen              [2]uint16
	spare             mem.Array[byte] // answers of the round P/2

	mu   sync.Mutex
	turn sync.Cond
	done int   // Local and so many parts have ended; 0: Local has not
	err  error // the first of any goroutine
}

func newTrip(t *RoundTrip, rank, world int) *trip {
	s := &trip{RoundTrip: t, rank: rank, world: world, rows: t.RowsPerFrame(), sending: make([]lane, world), taking: make([]lane, world)}
	s.turn.L = &s.mu
	lead := leadOf(t.Op, s.rows*max(t.RowBytes, t.BackBytes))
	for r := 1; r < world; r++ {
		// To the peer my rows go out in round r and its rows' answers in round
		// P-r; what comes from it is the other way round.
		peer := (rank + r) % world
		mine, theirs := s.chunks(t.Send[r]), s.chunks(t.Recv[world-r])
		s.sending[peer] = lane{out: max(1, mine), back: theirs, rule: mixed, lead: lead}
		s.taking[peer] = lane{out: max(1, theirs), back: mine, rule: mixed, lead: lead}
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
func (s *trip) await(l *lane, back bool, k int) error { return s.awaitOr(l, back, k, func() {}) }

// awaitOr is await that calls late where it has to wait.
func (s *trip) awaitOr(l *lane, back bool, k int, late func()) error {
	place := l.place(back, k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.next != place && s.err == nil {
		late()
	}
	for l.next != place && s.err == nil {
		s.turn.Wait()
	}
	return s.err
}

func (s *trip) passOn(l *lane) { s.change(func() { l.next++ }) }

// backRound is the round in the tags of what returns.
func (s *trip) backRound(r int) int { return s.world + r }

// answer takes the peers' rows and sends back what is computed from them.
func (s *trip) answer(d *departures) (err error) {
	if err := d.local(s.rank, s.Local, s.Parts > 0); err != nil {
		return err
	}
	s.change(func() { s.done = 1 })
	total, before := 0, 0
	for _, n := range s.Recv[1:] {
		total += n
	}
	if half := s.world / 2; s.world%2 == 0 && s.Recv[half] > 0 {
		if s.spare, err = mem.Make[byte](mem.Scratch, min(s.rows, s.Recv[half])*s.BackBytes); err != nil {
			return err
		}
	}
	for r := 1; r < s.world; r++ {
		peer := (s.rank - r + s.world) % s.world
		for first, k := 0, 0; first < s.Recv[r] || k == 0; k++ {
			n := min(s.rows, s.Recv[r]-first)
			if total > 0 {
				s.runParts(1 + s.Parts*(before+first)/total)
			}
			if own := min(s.rows, s.Send[r]-first); own > 0 {
				s.runParts(s.needs(r, first, own))
			}
			if err := s.answerChunk(peer, r, k, first, n); err != nil {
				return err
			}
			first += n
		}
		if first := s.Recv[r] / s.rows * s.rows; first < s.Send[r] { // more go out than come in
			s.runParts(s.needs(r, first, s.Send[r]-first))
		}
		before += s.Recv[r]
	}
	s.runParts(s.Parts)
	return nil
}

// needs is how many parts Return needs for rows that went out.
func (s *trip) needs(r, first, n int) int {
	if s.Parts == 0 {
		return 0
	}
	return s.Needs(r, first, n)
}

// runParts runs parts until so many have been run. The goroutine that does is
// the only one that changes s.done.
func (s *trip) runParts(upTo int) {
	for s.done-1 < min(upTo, s.Parts) {
		span := trace.Begin()
		s.Part(s.done - 1)
		span.End("own rows", trace.Computing, s.Op.Comm(), s.rank, 0, 0)
		s.change(func() { s.done++ })
	}
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
	err = s.take(arrival{peer: peer, round: r, tag: r, chunk: k, n: n, rowBytes: s.RowBytes, all: n == s.Recv[r], what: "consume"}, &s.seen[0], func(src []byte) error {
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
	s.Op.Moved(peer, comm.Home, n*s.BackBytes)
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

// takeBack takes what the peers computed from own rows, once the parts that come
// before it have run. Where both ends of a link wait for room to answer, each has
// run what the other's answers up to its own place need: one of them is taken.
func (s *trip) takeBack() error {
	for r := 1; r < s.world; r++ {
		peer := (s.rank + r) % s.world
		for first, k := 0, 0; first < s.Send[r]; k++ {
			n := min(s.rows, s.Send[r]-first)
			if err := s.awaitParts(s.needs(r, first, n)); err != nil {
				return err
			}
			of := arrival{peer: peer, back: true, round: r, tag: s.backRound(r), chunk: k, n: n, rowBytes: s.BackBytes, all: n == s.Send[r], what: "take back"}
			err := s.take(of, &s.seen[1], func(src []byte) error { return s.Return(r, first, n, src) })
			if err != nil {
				return err
			}
			first += n
		}
	}
	return nil
}

func (s *trip) awaitParts(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done < 1+n && s.err == nil {
		s.turn.Wait()
	}
	return s.err
}

// arrival is a frame that has to come.
type arrival struct {
	peer        int
	back        bool // rows that return
	round, tag  int  // and what its tag says
	chunk       int
	n, rowBytes int
	all         bool   // n rows are all of the round
	what        string // is done with it, for traces
}

// take hands the payload of a frame to f when its turn comes.
func (s *trip) take(a arrival, seen *uint16, f func(src []byte) error) error {
	l := &s.taking[a.peer]
	if err := s.await(l, a.back, a.chunk); err != nil {
		return err
	}
	frame, err := s.Op.Next(a.peer, a.tag, a.chunk)
	if err != nil {
		return err
	}
	if len(frame.Payload) != a.n*a.rowBytes {
		err = differ(s.Op, a.peer, a.n, a.rowBytes, len(frame.Payload), a.all)
	} else {
		span := trace.Begin()
		err = f(frame.Payload)
		span.End(a.what, trace.Receiving, s.Op.Comm(), a.peer, a.round, int64(len(frame.Payload)))
	}
	*seen |= frame.Tag.Flags
	s.Op.Release(a.peer)
	if err == nil {
		s.passOn(l)
	}
	return err
}
