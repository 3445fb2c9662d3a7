package exchange

import (
	"fmt"
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
// back, Return takes what comes back, both in the order of rounds. Consume runs after
// Local, on the same goroutine. Return and Part run beside Produce,
// Consume and each other, but not before Local has ended. Each takes rounds and
// rows, or parts, in order: where no two of them add to the same numbers, or a sum
// of two has the same bits in either order, results have the same bits every time.
type RoundTrip struct {
	Op *comm.Op
	// Flags are told to every worker; Move returns the union of everyone's.
	Flags uint16
	Way   comm.Way // how statistics count what goes out
	Most  int      // bytes of a frame at most; 0: tripBytes
	// RowBytes is the size of a row on the way out, BackBytes of what returns.
	RowBytes, BackBytes int
	// Send and Recv are the rows that go out and come in, indexed 1..P-1.
	Send, Recv []int
	// Produce writes rows [first, first+n) of what goes out in round r into dst.
	Produce func(r, first, n int, dst []byte) error
	// Local runs before any Consume, Return or Part. May be nil.
	Local func() error
	// Part is work for 0 ≤ part < Parts that waits for nobody, one after another.
	// Needs is how many of them must have ended before Return takes rows
	// [first, first+n) of what went out in round r.
	Parts int
	Part  func(part int)
	Needs func(r, first, n int) int
	// Consume takes rows [first, first+n) of what comes in in round r and writes
	// n rows of BackBytes to back, whose contents are undefined before.
	Consume func(r, first, n int, src, back []byte) error
	// Return takes what came back for rows [first, first+n) of what went out in
	// round r.
	Return func(r, first, n int, src []byte) error
	// Here has Local and Consume run on the goroutine that called Move, which costs
	// more switches where that one is bound to its thread.
	Here bool
}

// RowsPerFrame is how many rows travel at once, out and back.
func (t *RoundTrip) RowsPerFrame() int {
	most := t.Most
	if most == 0 {
		most = tripBytes
	}
	return rowsPerFrame(t.Op, max(t.RowBytes, t.BackBytes), most)
}

// tripBytes is the most that one frame of a round trip carries. What returns for the
// first frame leaves when that was computed with, and several are on their way: they
// are smaller than those that go one way.
var tripBytes = 256 << 10

// Move runs the round trip. A window that holds no row of either size must have
// been refused before.
//
// Steps: P-1 rounds. Bytes on the wire: RowBytes + BackBytes per row and two
// frame headers per chunk. Memory besides the links: one frame where P is even.
func (t *RoundTrip) Move(rank, world int) (uint16, error) {
	if world == 1 {
		if t.Local != nil {
			if err := t.Local(); err != nil {
				return t.Flags, err
			}
		}
		for part := range t.Parts {
			t.Part(part)
		}
		return t.Flags, nil
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
		op: t.Op, world: world, flags: t.Flags, way: t.Way, rowBytes: t.RowBytes, rows: s.rows, counts: t.Send,
		peer: func(r int) int { return (rank + r) % world }, produce: t.Produce,
		before: func(peer, k int, wait func()) error { return s.awaitOr(&s.sending[peer], false, k, wait) },
		after:  func(peer int) { s.passOn(&s.sending[peer]) },
	}
	d.init()
	parts := append(d.parts(), s.takeBack, s.runParts, func() error { return s.answer(d) })
	for i, f := range parts {
		parts[i] = s.part(f)
	}
	stop := s.watch()
	run := t.Op.Run
	if t.Here {
		run = t.Op.RunHere
	}
	err := run(parts...)
	stop()
	return t.Flags | s.seen[0] | s.seen[1], err
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
	err  error // the first of any goroutine, or of the group
	late bool  // the operation's deadline has passed
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
		s.sending[peer] = lane{peer: peer, out: max(1, mine), back: theirs, rule: mixed, lead: lead}
		s.taking[peer] = lane{peer: peer, out: max(1, theirs), back: mine, rule: mixed, lead: lead}
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

// backRound is the round in the tags of what returns.
func (s *trip) backRound(r int) int { return s.world + r }

// answer takes the peers' rows and sends back what is computed from them.
func (s *trip) answer(d *departures) (err error) {
	if err := d.local(s.rank, s.Local, s.Parts > 0); err != nil {
		return err
	}
	s.change(func() { s.done = 1 })
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

// needs is how many parts Return needs for rows that went out.
func (s *trip) needs(r, first, n int) int {
	if s.Parts == 0 {
		return 0
	}
	return s.Needs(r, first, n)
}

// runParts runs the parts, once Local has ended.
func (s *trip) runParts() error {
	if s.Parts == 0 {
		return nil
	}
	err := s.awaitParts(0)
	for part := 0; part < s.Parts && err == nil; part++ {
		span := trace.Begin()
		s.Part(part)
		span.End("own rows", trace.Computing, s.Op.Comm(), s.rank, 0, 0)
		s.change(func() { s.done++; err = s.err })
	}
	return err
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
// before it have run.
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
