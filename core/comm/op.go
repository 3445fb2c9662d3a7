package comm

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"sar/core/internal/argument"
	"sar/core/trace"
	"sar/core/transport"
)

// Op is one operation on a communicator. Its methods may be called by a sender
// and a receiver at once; End comes after both.
type Op struct {
	c        *Communicator
	seq      uint64
	step     Step
	sends    string
	place    Place
	links    []transport.Link
	payload  int
	start    time.Time
	deadline time.Time
	before   transport.LinkStats
	waited   atomic.Int64
	ended    bool
	span     trace.Span
}

// Begin starts the next operation. Collective in order: every rank begins
// operations of the same kinds in the same order.
func (c *Communicator) Begin(kind Kind, dir Dir) (*Op, error) { return c.start(kind, dir, "", false) }

// BeginSending is Begin for operations of which there are several that send rows of
// one size: sends says in words what the rows are, such as "the gradient of the sum
// of relation 0, float32". Its hash travels in every frame, with what SetPlace said, so
// that ranks that send different things in the same operation end with a *ScheduleError
// instead of wrong numbers. It must be the same text on every rank.
func (c *Communicator) BeginSending(kind Kind, dir Dir, sends string) (*Op, error) {
	return c.start(kind, dir, sends, true)
}

func (c *Communicator) start(kind Kind, dir Dir, sends string, placed bool) (*Op, error) {
	if err := c.g.usable(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active != nil {
		return nil, argument.Errorf("communicator %q is in %s: use it from one thread at a time, or make another one", c.name,
			c.active)
	}
	if c.links == nil && c.g.cfg.World > 1 {
		return nil, ErrClosed
	}
	var place Place
	if placed {
		place = c.places.next
	}
	c.begin(Step{Comm: c.id, Kind: kind, Dir: dir, Content: content(sends, place)}, c.g.cfg.Caller())
	t := time.Now()
	op := &Op{c: c, seq: c.Seq, step: c.Step, sends: sends, place: place, links: c.links, payload: c.payload, start: t,
		deadline: t.Add(c.g.cfg.Operation), before: c.carriedNow(), span: trace.Begin()}
	c.active = op
	return op, nil
}

// String names the operation: `all-reduce (operation 3 of communicator "x")`.
func (op *Op) String() string { return op.step.describe(fmt.Sprintf("communicator %q", op.c.name)) }

// Comm is the name of the operation's communicator, and MaxPayload the same on every rank. The operation
// must have ended at Deadline; Failed is closed when the group ends before, with Failure.
func (op *Op) Comm() string            { return op.c.name }
func (op *Op) MaxPayload() int         { return op.payload }
func (op *Op) Deadline() time.Time     { return op.deadline }
func (op *Op) Failed() <-chan struct{} { return op.c.g.Failed() }
func (op *Op) Failure() error          { return op.c.g.Failure() }

// Tag is the tag of a frame of this operation.
func (op *Op) Tag(flags uint16, round, chunk int) transport.Tag {
	return transport.Tag{
		Comm: uint16(op.step.Comm), Seq: op.seq, Kind: uint8(op.step.Kind), Dir: uint8(op.step.Dir),
		Content: op.step.Content, Flags: flags, Round: uint16(round), Chunk: uint32(chunk),
	}
}

// Fit is how many frames of n bytes any link holds at once, wherever in its ring
// they lie: a ring has room for three of MaxPayload.
func (op *Op) Fit(n int) int {
	const slot = transport.Align
	frame := func(n int) int { return slot + (n+slot-1)&^(slot-1) }
	return 3*frame(op.payload)/frame(n) - 1
}

// Late is the error of an operation that waits for peer past its deadline. It ends
// the group.
func (op *Op) Late(peer int) error {
	return op.Wrap(&transport.TimeoutError{Op: "receive", Peer: peer}, peer)
}

// Waited adds to the time that statistics show as waiting for peer, for who uses
// links without the helpers below.
func (op *Op) Waited(peer int, d time.Duration) {
	op.waited.Add(int64(d))
	op.c.waited[peer].Add(int64(d))
}

// Reserve is Link.Reserve with the operation's deadline and errors.
func (op *Op) Reserve(peer, n int) ([]byte, error) {
	t, span := time.Now(), trace.Begin()
	b, err := op.links[peer].Reserve(n, op.deadline)
	op.Waited(peer, time.Since(t))
	span.End("wait for room", trace.Sending, op.c.name, peer, 0, int64(n))
	if err != nil {
		return nil, op.Wrap(err, peer)
	}
	return b, nil
}

// TryReserve is Reserve where there is room at once, and nil where there is none.
func (op *Op) TryReserve(peer, n int) ([]byte, error) {
	b, err := op.links[peer].Reserve(n, longAgo)
	var none *transport.TimeoutError
	if errors.As(err, &none) {
		return nil, nil
	}
	return b, op.Wrap(err, peer)
}

var longAgo = time.Unix(1, 0)

// Commit is Link.Commit with the operation's deadline, tag and errors.
func (op *Op) Commit(peer int, flags uint16, round, chunk int) error {
	return op.Wrap(op.links[peer].Commit(op.Tag(flags, round, chunk), op.deadline), peer)
}

// Send copies payload into one frame without flags, at most MaxPayload bytes.
func (op *Op) Send(peer, round, chunk int, payload []byte) error {
	b, err := op.Reserve(peer, len(payload))
	if err != nil {
		return err
	}
	copy(b, payload)
	return op.Commit(peer, 0, round, chunk)
}

// Next returns the next frame from peer, which must be the one of that round
// and chunk. Release it.
func (op *Op) Next(peer, round, chunk int) (transport.Frame, error) {
	t, span := time.Now(), trace.Begin()
	f, err := op.links[peer].Next(op.deadline)
	op.Waited(peer, time.Since(t))
	span.End("wait for rows", trace.Receiving, op.c.name, peer, round, int64(len(f.Payload)))
	if err != nil {
		return f, op.Wrap(err, peer)
	}
	if err := op.Expect(f, peer, round, chunk); err != nil {
		op.Release(peer)
		return transport.Frame{}, err
	}
	return f, nil
}

// Release is Link.Release.
func (op *Op) Release(peer int) { op.links[peer].Release() }

// Expect checks that a frame from peer belongs to this operation and is the one
// of that round and chunk. Otherwise the group ends with a *ScheduleError.
func (op *Op) Expect(f transport.Frame, peer, round, chunk int) error {
	theirs := stepOf(f.Tag)
	p := op.c.g.peers[peer]
	if old := p.seen.Load(); old == nil || old.Step != theirs {
		p.seen.Store(&sighting{Phase{theirs, true}, now()})
	}
	if theirs.meets(op.step) && int(f.Tag.Round) == round&0xffff && int(f.Tag.Chunk) == chunk {
		return nil
	}
	e := &ScheduleError{Rank: op.c.g.cfg.Rank, Peer: peer, Mine: op.String(),
		Theirs: theirs.describe(op.c.g.commName(theirs.Comm))}
	switch {
	case theirs.meets(op.step):
		e.Mine += fmt.Sprintf(", expecting round %d, chunk %d,", round, chunk)
		e.Theirs += fmt.Sprintf(", sending round %d, chunk %d", f.Tag.Round, f.Tag.Chunk)
	case theirs.sameButContent(op.step) && op.placesDiffer(theirs):
		e.Mine += op.place.belongs()
		e.Theirs += op.theirPlace(theirs)
	case theirs.sameButContent(op.step):
		e.Mine += fmt.Sprintf("%s, which sends %s,", op.place.belongs(), op.sends)
		e.Theirs += ", which sends something else"
	}
	return op.differ(e)
}

// Differ ends the group with a *ScheduleError: this rank and peer are in the same
// operation, and mine and theirs say what each does in it that does not go with
// the other.
func (op *Op) Differ(peer int, mine, theirs string) error {
	return op.differ(&ScheduleError{Rank: op.c.g.cfg.Rank, Peer: peer, Mine: op.String() + ", " + mine,
		Theirs: op.String() + ", " + theirs})
}

// differ ends the group, with the same text whoever notices.
func (op *Op) differ(e *ScheduleError) error {
	if e.Peer < e.Rank {
		e.Rank, e.Peer, e.Mine, e.Theirs = e.Peer, e.Rank, e.Theirs, e.Mine
	}
	return op.c.g.fail(e, true)
}

// Mismatch ends the group with a *SizeError: this rank and peer are in the same
// operation, but what they brought does not fit together.
func (op *Op) Mismatch(peer int, detail string) error {
	return op.c.g.fail(&SizeError{Rank: op.c.g.cfg.Rank, Peer: peer, Op: op.String(), Detail: detail}, true)
}

// byeTime is how long ended waits for control connections to say why a link has ended. They
// have said it already, or are about to.
const byeTime = time.Second

// Wrap turns what a link returned into the error that ends the operation, and
// with it the group: *PeerLost, *DeadlineError or what the group failed with.
func (op *Op) Wrap(err error, peer int) error {
	if err == nil {
		return nil
	}
	g := op.c.g
	if e := g.usable(); e != nil {
		return e
	}
	var timeout *transport.TimeoutError
	if errors.As(err, &timeout) {
		return g.fail(&DeadlineError{Peer: peer, Op: op.String(), Seconds: g.cfg.Operation.Seconds(), Phase: g.phaseOf(peer)},
			true)
	}
	var frame *transport.FrameError
	if errors.As(err, &frame) {
		return g.lost(peer, "%s", frame.Error())
	}
	return g.ended(peer, err)
}

// ended finds out why a connection to peer has ended, and ends the group.
func (g *Group) ended(peer int, err error) error {
	enough := now() + byeTime
	timer := time.NewTimer(byeTime)
	defer timer.Stop()
	for {
		select {
		case <-g.failed:
			return g.Failure()
		case <-g.done:
			return ErrClosed
		case <-g.peers[peer].bye:
			return g.lost(peer, shutDown)
		case <-timer.C:
		}
		if g.informed(peer, enough) {
			return g.lost(peer, "its data connection ended: %v", err)
		}
		timer.Reset(byeTime / 20)
	}
}

// informed says whether this rank has heard of what peer said, and of why it may have left,
// up to time t. Where rank 0 passes that on, a later sign of life of rank 0 shows it. If
// none comes, rank 0 is lost, which ends the group.
func (g *Group) informed(peer int, t time.Duration) bool {
	if g.peers[peer].control != nil {
		return true
	}
	root := g.peers[0]
	return root.gone() || time.Duration(root.heard.Load()) > t
}

// Run runs the parts of an operation side by side, none of them on this goroutine. A
// part that fails by an error of its own ends the group, so that no other, here
// and on every rank, waits. So does one that panics: the others may be reading
// memory of the caller, so Run returns only when all are done.
//
// A goroutine that was called from C is bound to its thread, and each time such a
// one sleeps and wakes it costs two threads' switches more: it sleeps here, once.
func (op *Op) Run(parts ...func() error) error {
	return op.runBeside(parts, func() error { return nil })
}

// RunOnCaller is Run with the last part on this goroutine, for what is bound to its thread.
func (op *Op) RunOnCaller(parts ...func() error) error {
	last := len(parts) - 1
	return op.runBeside(parts[:last], parts[last])
}

func (op *Op) runBeside(parts []func() error, here func() error) error {
	done := make(chan error, len(parts))
	for _, f := range parts {
		go func() { done <- op.broken(Caught(f)) }()
	}
	err := op.broken(Caught(here))
	for range parts {
		if e := <-done; err == nil {
			err = e
		}
	}
	return err
}

// Caught runs f and makes a panic of it an error.
func Caught(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("bug in the engine: %v\n%s", v, debug.Stack())
		}
	}()
	return f()
}

// broken makes sure that an error has ended the group.
func (op *Op) broken(err error) error {
	if err != nil {
		op.c.g.fail(err, true)
	}
	return err
}

// End ends the operation and returns the error to raise. An error of this rank
// alone ends the group too: the peers would wait for what never comes.
func (op *Op) End(err error) error {
	op.finish()
	return op.broken(err)
}

// finish records the operation's end. It may be called again.
func (op *Op) finish() {
	c := op.c
	c.mu.Lock()
	if op.ended {
		c.mu.Unlock()
		return
	}
	op.ended = true
	c.active = nil
	c.end()
	after := c.carriedNow()
	c.mu.Unlock()
	if op.span.On() {
		sent := int64(after.SentBytes - op.before.SentBytes)
		op.span.End(op.String(), trace.Operations, op.c.name, -1, 0, sent)
	}
	c.g.count(op.step.Kind, KindStats{
		Count: 1, Seconds: time.Since(op.start).Seconds(), WaitSeconds: time.Duration(op.waited.Load()).Seconds(),
		SentBytes: after.SentBytes - op.before.SentBytes, RecvBytes: after.RecvBytes - op.before.RecvBytes,
	})
}
