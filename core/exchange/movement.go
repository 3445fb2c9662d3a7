// Package exchange moves boundary rows between workers and computes with them where they
// arrive. One routine, Move, carries out every schedule there is: an operation is a
// producer of outgoing rows, a consumer of incoming ones and, where it needs one, a reply.
//
// With P workers a movement takes P-1 rounds. In round r worker p receives the rows of p-r
// and sends its own to p+r; to owners, as gradients go, the directions are swapped.
// Receiving follows the order of rounds, in one pass or several. Sending runs beside it, to each peer by itself: a
// link that is full stops only its own sender, what a receiver waits for is never behind
// anything else, and the movement cannot lock up however small the window is.
package exchange

import (
	"fmt"
	"sync"

	"sar/core/comm"
	"sar/core/mem"
	"sar/core/trace"
)

// Movement is one exchange of rows between all pairs of workers.
//
// Produce, Part and what takes incoming rows run on goroutines of their own, beside each
// other. Each takes rounds and rows, or parts, in order. So results have the same bits
// every time where no two of them add to the same numbers, or a sum of two has the same
// bits in either order, and callers lock what several of them change.
type Movement struct {
	Op *comm.Op
	// ToOwner swaps the directions: in round r send to p-r, receive from p+r. Without Reply.
	ToOwner bool
	// Pushed says that rows of destinations go out. They are counted as such, and have
	// frames as large as those without a reply.
	Pushed bool
	// Flags are told to every worker; Move returns the union of everyone's.
	Flags    uint16
	RowBytes int
	// Send and Recv are the rows of each round, indexed 1..P-1.
	Send, Recv []int
	// Produce writes rows [first, first+n) of what goes out in round r into
	// dst, which is the link's own memory. Rounds may take turns.
	Produce func(r, first, n int, dst []byte) error
	// Local runs before Consume, Reply and Part, and once all links are full or all rows
	// have left, so that those travel meanwhile. May be nil.
	Local func() error
	// Part is work for 0 ≤ part < Parts that waits for nobody. Needs is how many parts must
	// have ended before Consume takes rows [first, first+n) of round r, or before
	// Reply.Take does; nil: none in round 1, and all in later ones.
	Parts int
	Part  func(part int)
	Needs func(r, first, n int) int
	// Consume takes rows [first, first+n) of what comes in in round r. src is
	// the receive buffer and is gone afterwards. Nil where there is a Reply.
	Consume func(r, first, n int, src []byte) error
	// Rows come in in so many passes over all rounds, 0 and 1 are the same; the first of
	// them take Until(r, passes) rows of round r together. So some rows of every peer can
	// be taken while the parts that others need have not ended. Without Reply.
	Passes int
	Until  func(r, passes int) int
	// Reply returns a row for each that came in; nil: nothing returns.
	Reply *Reply
	// OnCallerThread has Local and what takes incoming rows run on the goroutine that
	// called Move, which costs more switches where that one is bound to its thread.
	OnCallerThread bool
}

// Reply is what returns for rows that came in: in round r worker p computes something for
// each row of p-r and sends it back, and takes what p+r computed for its own rows. So
// gradients travel when boundary rows have to be read again to compute them.
type Reply struct {
	RowBytes int
	// Compute takes rows [first, first+n) of what comes in in round r and writes
	// n rows of RowBytes to reply, whose contents are undefined before.
	Compute func(r, first, n int, src, reply []byte) error
	// Take takes what returned for rows [first, first+n) of what went out in round r.
	Take func(r, first, n int, src []byte) error
}

// Move runs the movement. Each pair exchanges at least one frame, so that
// flags and the schedule are compared even where there are no rows. A window that
// holds no row must have been refused before.
//
// Steps: P-1 rounds. Bytes on the wire: RowBytes, and those of the reply, per row, and one
// frame header per frame. Memory besides the links: with a reply, one frame where P is even.
func (m *Movement) Move(rank, world int) (uint16, error) {
	if world == 1 {
		if m.Local != nil {
			if err := m.Local(); err != nil {
				return m.Flags, err
			}
		}
		for part := range m.Parts {
			m.Part(part)
		}
		return m.Flags, nil
	}
	if m.RowBytes == 0 && (m.Reply == nil || m.Reply.RowBytes == 0) { // rows of no columns: only flags travel
		m.Send, m.Recv = make([]int, world), make([]int, world)
	}
	s := newMoving(m, rank, world)
	if s.rows == 0 {
		return 0, fmt.Errorf("rows of %d bytes do not fit into frames of %d", m.widest(), m.Op.MaxPayload())
	}
	defer s.spare.Free()
	sender := newSendScheduler(s)
	tasks := sender.tasks()
	if m.Parts > 0 {
		tasks = append(tasks, s.runParts)
	}
	if m.Reply != nil {
		tasks = append(tasks, s.takeReplies)
		defer s.watch()()
	}
	tasks = append(tasks, func() error { return s.receive(sender) }) // last: it may run on this goroutine
	for i, f := range tasks {
		tasks[i] = s.task(f)
	}
	run := m.Op.Run
	if m.OnCallerThread {
		run = m.Op.RunOnCaller
	}
	err := run(tasks...)
	return m.Flags | s.seen[0] | s.seen[1], err
}

// moving is one run of a Movement.
type moving struct {
	*Movement
	rank, world, rows int       // rows of a frame
	seen              [2]uint16 // flags, on rows and on replies
	// With a reply, the order of the frames to and from each peer; else nil.
	sending, taking []frameOrder
	spare           mem.Array[byte] // replies of the round P/2

	mu    sync.Mutex
	turn  sync.Cond
	ended int   // Local and so many parts; 0: Local has not
	err   error // the first of any goroutine, or of the group
	late  bool  // the operation's deadline has passed
}

func newMoving(m *Movement, rank, world int) *moving {
	s := &moving{Movement: m, rank: rank, world: world, rows: m.RowsPerFrame()}
	s.turn.L = &s.mu
	if m.Reply != nil {
		s.orderFrames()
	}
	return s
}

// peer is whom this rank sends to (or receives from) in round r.
func (s *moving) peer(r int, sending bool) int {
	if sending == s.ToOwner {
		return (s.rank - r + s.world) % s.world
	}
	return (s.rank + r) % s.world
}

// chunkBytes is the most that one frame carries where a link would hold more: the
// first frame has to arrive before anybody can work on it, and the last one is
// worked on when nothing travels any more. With a reply it is replyBytes: the reply to the
// first frame leaves when that was computed with, and several frames are on their way.
var chunkBytes, replyBytes = 1 << 20, 256 << 10

// widest is the size of the larger of a row and its reply.
func (m *Movement) widest() int {
	if m.Reply == nil {
		return m.RowBytes
	}
	return max(m.RowBytes, m.Reply.RowBytes)
}

// RowsPerFrame is how many rows travel at once, out and back; 0: a frame holds none.
func (m *Movement) RowsPerFrame() int {
	if m.Reply == nil || m.Pushed {
		return rowsPerFrame(m.Op, m.widest(), chunkBytes)
	}
	return rowsPerFrame(m.Op, m.widest(), replyBytes)
}

func rowsPerFrame(op *comm.Op, rowBytes, most int) int {
	rowBytes = max(1, rowBytes)
	return max(min(op.MaxPayload(), most)/rowBytes, min(1, op.MaxPayload()/rowBytes))
}

// receive takes the peers' rows, and replies to them.
func (s *moving) receive(sender *sendScheduler) (err error) {
	if err := sender.local(); err != nil {
		return err
	}
	s.change(func() { s.ended = 1 })
	if half := s.world / 2; s.Reply != nil && s.world%2 == 0 && s.Recv[half] > 0 {
		if s.spare, err = mem.Make[byte](mem.Scratch, min(s.rows, s.Recv[half])*s.Reply.RowBytes); err != nil {
			return err
		}
	}
	if s.Reply == nil {
		return s.takeRows()
	}
	for r := 1; r < s.world; r++ {
		peer := s.peer(r, false)
		for first, k := 0, 0; first < s.Recv[r] || k == 0; k++ {
			n := min(s.rows, s.Recv[r]-first)
			a := arrival{peer: peer, round: r, tag: r, chunk: k, n: n, rowBytes: s.RowBytes, all: n == s.Recv[r], what: "consume"}
			if err := s.reply(a, first); err != nil {
				return err
			}
			first += n
		}
	}
	return nil
}

// runParts runs the parts, once Local has ended.
func (s *moving) runParts() error {
	err := s.awaitEnded(1)
	for part := 0; part < s.Parts && err == nil; part++ {
		span := trace.Begin()
		s.Part(part)
		span.End("own rows", trace.Computing, s.Op.Comm(), s.rank, 0, 0)
		s.change(func() { s.ended++; err = s.err })
	}
	return err
}

// reply takes the rows of a frame, from first on, and sends back what is computed from them.
func (s *moving) reply(a arrival, first int) error {
	peer, r, k, n := a.peer, a.round, a.chunk, a.n
	order := &s.sending[peer]
	// Where both ends reply in one round, the room comes last, and what was computed is
	// copied. Else the room comes first: what is computed straight into the link must
	// not hold up the peer's rows while there is none.
	copied := order.rule == mixed
	to := s.spare.Data
	var err error
	if n > 0 && !copied {
		if to, err = s.room(order, k, n); err != nil {
			return err
		}
	}
	err = s.take(a, func(src []byte) error { return s.Reply.Compute(r, first, n, src, to[:n*s.Reply.RowBytes]) })
	if err != nil || n == 0 {
		return err
	}
	if copied {
		dst, err := s.room(order, k, n)
		if err != nil {
			return err
		}
		copy(dst, to[:n*s.Reply.RowBytes])
	}
	if err := s.Op.Commit(peer, s.Flags, s.replyRound(r), k); err != nil {
		return err
	}
	s.Op.Moved(peer, comm.ToOwner, n*s.Reply.RowBytes)
	s.passOn(order)
	return nil
}

// replyRound is the round in the tags of replies.
func (s *moving) replyRound(r int) int { return s.world + r }

// room is the link's memory for reply k, n rows, once it is its turn.
func (s *moving) room(order *frameOrder, k, n int) ([]byte, error) {
	if err := s.await(order, true, k, nil); err != nil {
		return nil, err
	}
	return s.Op.Reserve(order.peer, n*s.Reply.RowBytes)
}

// takeReplies takes what the peers computed from own rows, once the parts that come
// before it have run.
func (s *moving) takeReplies() error {
	for r := 1; r < s.world; r++ {
		peer := s.peer(r, true)
		for first, k := 0, 0; first < s.Send[r]; k++ {
			n := min(s.rows, s.Send[r]-first)
			if err := s.awaitParts(r, first, n); err != nil {
				return err
			}
			a := arrival{peer: peer, reply: true, round: r, tag: s.replyRound(r), chunk: k, n: n, rowBytes: s.Reply.RowBytes, all: n == s.Send[r], what: "take back"}
			if err := s.take(a, func(src []byte) error { return s.Reply.Take(r, first, n, src) }); err != nil {
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
	reply       bool
	round, tag  int // and what its tag says
	chunk       int
	n, rowBytes int
	all         bool   // n rows are all of the round
	what        string // is done with it, for traces
}

// take hands the rows of a frame to f when its turn comes.
func (s *moving) take(a arrival, f func(src []byte) error) error {
	var order *frameOrder
	seen := &s.seen[0]
	if s.Reply != nil {
		order = &s.taking[a.peer]
		if err := s.await(order, a.reply, a.chunk, nil); err != nil {
			return err
		}
		if a.reply {
			seen = &s.seen[1]
		}
	}
	payload, err := s.next(a, seen)
	if err != nil {
		return err
	}
	if a.n > 0 {
		span := trace.Begin()
		err = f(payload)
		span.End(a.what, trace.Receiving, s.Op.Comm(), a.peer, a.round, int64(len(payload)))
	}
	s.Op.Release(a.peer)
	if err == nil {
		s.passOn(order)
	}
	return err
}

// next returns the contents of a frame, which has to be released, and adds its flags to
// seen.
func (s *moving) next(a arrival, seen *uint16) ([]byte, error) {
	frame, err := s.Op.Next(a.peer, a.tag, a.chunk)
	if err != nil {
		return nil, err
	}
	*seen |= frame.Tag.Flags
	if len(frame.Payload) != a.n*a.rowBytes {
		s.Op.Release(a.peer)
		return nil, s.differ(a, len(frame.Payload))
	}
	return frame.Payload, nil
}

// differ is the error where a frame of size bytes came.
func (s *moving) differ(a arrival, size int) error {
	theirs := fmt.Sprintf("%d bytes for them", size)
	// A frame far from full holds all the rows there are.
	if a.all && a.n > 0 && size%a.n == 0 && 2*size <= min(chunkBytes, s.Op.MaxPayload()) {
		theirs = fmt.Sprintf("rows of %d bytes", size/a.n)
	}
	return s.Op.Differ(a.peer, fmt.Sprintf("expecting %d rows of %d bytes", a.n, a.rowBytes),
		"sending "+theirs+" (the ranks use different feature widths, dtypes or graphs)")
}
