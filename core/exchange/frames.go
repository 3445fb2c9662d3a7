package exchange

import (
	"fmt"
	"sync"

	"sar/core/comm"
	"sar/core/mem"
	"sar/core/trace"
)

// frames is one run of a Movement, or of a RoundTrip, of which Movement has what both have.
type frames struct {
	Movement
	way comm.Way // of what goes out, for counting

	// Of a RoundTrip.
	replies, pushed bool
	replyBytes      int
	compute         func(r, first, n int, src, reply []byte) error
	take            func(r, first, n int, src []byte) error

	rank, world, rows int       // rows of a frame
	seen              [2]uint16 // flags, on rows and on replies
	// With replies, the order of the frames to and from each peer; else nil.
	sending, taking []frameOrder
	spare           mem.Array[byte] // replies of the round P/2

	mu    sync.Mutex
	turn  sync.Cond
	ended int   // Local and so many parts; 0: Local has not
	err   error // the first of any goroutine, or of the group
	late  bool  // the operation's deadline has passed
}

func (s *frames) move(rank, world int) (uint16, error) {
	if world == 1 {
		if s.Local != nil {
			if err := s.Local(); err != nil {
				return s.Flags, err
			}
		}
		for part := range s.Own.N {
			s.Own.Run(part)
		}
		return s.Flags, nil
	}
	if s.RowBytes == 0 && s.replyBytes == 0 { // rows of no columns: only flags travel
		s.Send, s.Recv, s.Ahead = make([]int, world), make([]int, world), nil
	}
	s.begin(rank, world)
	if s.rows == 0 {
		return 0, fmt.Errorf("rows of %d bytes do not fit into frames of %d", s.widest(), s.Op.MaxPayload())
	}
	defer s.spare.Free()
	sender := newSendScheduler(s)
	tasks := sender.tasks()
	if s.Own.N > 0 {
		tasks = append(tasks, s.runParts)
	}
	if s.replies {
		tasks = append(tasks, s.takeReplies)
		defer s.watch()()
	}
	tasks = append(tasks, func() error { return s.receive(sender) }) // last: it may run on this goroutine
	for i, f := range tasks {
		tasks[i] = s.task(f)
	}
	run := s.Op.Run
	if s.OnCallerThread {
		run = s.Op.RunOnCaller
	}
	err := run(tasks...)
	return s.Flags | s.seen[0] | s.seen[1], err
}

func (s *frames) begin(rank, world int) {
	s.rank, s.world, s.turn.L = rank, world, &s.mu
	most := chunkBytes
	if s.replies && !s.pushed {
		most = replyBytes
	}
	s.rows = rowsPerFrame(s.Op, s.widest(), most)
	if s.replies {
		s.orderFrames()
	}
}

// widest is the size of the largest row or reply.
func (s *frames) widest() int { return max(s.Movement.widest(), s.replyBytes) }

// peer is whom this rank sends to (or receives from) in round r.
func (s *frames) peer(r int, sending bool) int {
	if sending == s.ToOwner {
		return (s.rank - r + s.world) % s.world
	}
	return (s.rank + r) % s.world
}

// receive takes the peers' rows, and replies to them.
func (s *frames) receive(sender *sendScheduler) (err error) {
	if err := sender.local(); err != nil {
		return err
	}
	s.change(func() { s.ended = 1 })
	if half := s.world / 2; s.replies && s.world%2 == 0 && s.Recv[half] > 0 {
		if s.spare, err = mem.Make[byte](mem.Scratch, min(s.rows, s.Recv[half])*s.replyBytes); err != nil {
			return err
		}
	}
	if !s.replies {
		return s.takeRows()
	}
	for r := 1; r < s.world; r++ {
		peer := s.peer(r, false)
		for first, k := 0, 0; first < s.Recv[r] || k == 0; k++ {
			n := min(s.rows, s.Recv[r]-first)
			if err := s.reply(arrival{peer: peer, round: r, chunk: k, n: n}, first); err != nil {
				return err
			}
			first += n
		}
	}
	return nil
}

// runParts runs the parts, once Local has ended.
func (s *frames) runParts() error {
	err := s.awaitEnded(1)
	for part := 0; part < s.Own.N && err == nil; part++ {
		span := trace.Begin()
		s.Own.Run(part)
		span.End("own rows", trace.Computing, s.Op.Comm(), s.rank, 0, 0)
		s.change(func() { s.ended++; err = s.err })
	}
	return err
}

// reply takes the rows of a frame, from first on, and sends back what is computed from them.
func (s *frames) reply(a arrival, first int) error {
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
	err = s.takeFrame(a, func(src []byte) error { return s.compute(r, first, n, src, to[:n*s.replyBytes]) })
	if err != nil || n == 0 {
		return err
	}
	if copied {
		dst, err := s.room(order, k, n)
		if err != nil {
			return err
		}
		copy(dst, to[:n*s.replyBytes])
	}
	if err := s.Op.Commit(peer, s.Flags, s.replyRound(r), k); err != nil {
		return err
	}
	s.Op.Moved(peer, comm.ToOwner, n*s.replyBytes)
	s.passOn(order)
	return nil
}

// replyRound is the round in the tags of replies.
func (s *frames) replyRound(r int) int { return s.world + r }

// room is the link's memory for reply k, n rows, once it is its turn.
func (s *frames) room(order *frameOrder, k, n int) ([]byte, error) {
	if err := s.await(order, true, k, nil); err != nil {
		return nil, err
	}
	return s.Op.Reserve(order.peer, n*s.replyBytes)
}

// takeReplies takes what the peers computed from own rows, once the parts that come
// before it have run.
func (s *frames) takeReplies() error {
	for r := 1; r < s.world; r++ {
		peer := s.peer(r, true)
		for first, k := 0, 0; first < s.Send[r]; k++ {
			n := min(s.rows, s.Send[r]-first)
			if err := s.awaitParts(r, first, n); err != nil {
				return err
			}
			take := func(src []byte) error { return s.take(r, first, n, src) }
			if err := s.takeFrame(arrival{peer: peer, round: r, chunk: k, n: n, reply: true}, take); err != nil {
				return err
			}
			first += n
		}
	}
	return nil
}

// arrival is a frame of n rows, or replies to them, that has to come. ahead rows travel ahead of them in it.
type arrival struct {
	peer, round, chunk, n int
	reply                 bool
	ahead                 int
}

// takeFrame hands the rows of a frame to f when its turn comes.
func (s *frames) takeFrame(a arrival, f func(src []byte) error) error {
	order, use := &s.taking[a.peer], "consume"
	if a.reply {
		use = "take back"
	}
	if err := s.await(order, a.reply, a.chunk, nil); err != nil {
		return err
	}
	payload, err := s.next(a)
	if err != nil {
		return err
	}
	if a.n > 0 {
		span := trace.Begin()
		err = f(payload)
		span.End(use, trace.Receiving, s.Op.Comm(), a.peer, a.round, int64(len(payload)))
	}
	s.Op.Release(a.peer)
	if err == nil {
		s.passOn(order)
	}
	return err
}

// next returns the contents of a frame, which has to be released, and notes its flags.
func (s *frames) next(a arrival) ([]byte, error) {
	tag, rowBytes, seen, of := a.round, s.RowBytes, &s.seen[0], s.Recv
	if a.reply {
		tag, rowBytes, seen, of = s.replyRound(a.round), s.replyBytes, &s.seen[1], s.Send
	}
	frame, err := s.Op.Next(a.peer, tag, a.chunk)
	if err != nil {
		return nil, err
	}
	*seen |= frame.Tag.Flags
	if size := len(frame.Payload); size != s.aheadBytes(a.ahead)+a.n*rowBytes {
		s.Op.Release(a.peer)
		return nil, s.differ(a, rowBytes, size, a.n == of[a.round])
	}
	return frame.Payload, nil
}

// differ is the error where a frame of size bytes came. all: its rows are all of the round.
func (s *frames) differ(a arrival, rowBytes, size int, all bool) error {
	theirs := fmt.Sprintf("%d bytes for them", size)
	mine := fmt.Sprintf("%d rows of %d bytes", a.n, rowBytes)
	if a.ahead > 0 {
		mine = fmt.Sprintf("%d rows of %d bytes and %s", a.ahead, s.Ahead.RowBytes, mine)
	}
	// A frame far from full holds all the rows there are.
	if all && a.ahead == 0 && a.n > 0 && size%a.n == 0 && 2*size <= min(chunkBytes, s.Op.MaxPayload()) {
		theirs = fmt.Sprintf("rows of %d bytes", size/a.n)
	}
	return s.Op.Differ(a.peer, "expecting "+mine,
		"sending "+theirs+" (the ranks use different feature widths, dtypes or graphs)")
}
