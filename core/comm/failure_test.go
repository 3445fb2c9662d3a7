package comm

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sar/core/internal/dtypes"
	"sar/core/mem"
	"sar/core/transport"
)

// both names the two operations of a divergence whoever it names first.
func both(err error, a, b string) bool {
	var e *ScheduleError
	if !errors.As(err, &e) {
		return false
	}
	return strings.Contains(e.Mine, a) && strings.Contains(e.Theirs, b) ||
		strings.Contains(e.Mine, b) && strings.Contains(e.Theirs, a)
}

// One rank calls another operation than the others: frames tell.
func TestDivergenceByTag(t *testing.T) {
	for r, err := range onRanks(t, Config{World: 3}, 1<<20, func(c *Communicator) error {
		if c.Rank() == 1 {
			op, err := c.Begin(KindAggregate, Forward)
			if err != nil {
				return err
			}
			return op.End(op.Run(func() error { return op.Send(c.up(1), 1, 0, nil) },
				func() error { _, err := op.Next(c.down(1), 1, 0); return err }))
		}
		return c.AllReduce(make([]byte, 8), dtypes.Float64, Sum)
	}) {
		if !both(err, `forward aggregation (operation 1 of communicator "test")`,
			`all-reduce (operation 1 of communicator "test")`) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Ranks wait for each other in two communicators: no frame ever comes.
func TestDivergenceWithoutFrames(t *testing.T) {
	t.Parallel()
	groups, err := Local(Config{World: 3, Caller: func() uint64 { return 7 }})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	errs := runRanks(t, groups, func(g *Group) error {
		var c [2]*Communicator
		for i := range c {
			var err error
			if c[i], err = g.NewCommunicator([]string{"train", "reduce"}[i], 1<<20); err != nil {
				return err
			}
			if err = c[i].Barrier(); err != nil {
				return err
			}
		}
		if g.Rank() == 0 {
			return c[1].Barrier()
		}
		return c[0].AllReduce(make([]byte, 8), dtypes.Float64, Sum)
	})
	for r, err := range errs {
		if !both(err, `all-reduce (operation 2 of communicator "train")`, `barrier (operation 2 of communicator "reduce")`) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if d := time.Since(begin); d < stillTime || d > 10*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestDivergenceInSetUp(t *testing.T) {
	t.Parallel()
	for r, err := range onRanks(t, Config{World: 2}, 1<<20, func(c *Communicator) error {
		_, err := c.Group().NewCommunicator([]string{"a", "b"}[c.Rank()], 1<<20)
		return err
	}) {
		if !both(err, `creation of communicator "a"`, `creation of communicator "b"`) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for r, err := range onRanks(t, Config{World: 2}, 1<<20, func(c *Communicator) error {
		if c.Rank() == 0 {
			return c.Resize(1 << 19)
		}
		return c.Barrier()
	}) {
		if !both(err, "set-up", "barrier") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A rank that stays away for longer than every limit but the operation's is
// slow and no more, also where two threads use two communicators.
func TestSlowIsNotLost(t *testing.T) {
	t.Parallel()
	groups, err := Local(Config{World: 2, Liveness: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	noErrors(t, runRanks(t, groups, func(g *Group) error {
		var errs = make(chan error, 2)
		for i := range 2 {
			c, err := g.NewCommunicator(fmt.Sprint(i), 1<<20)
			if err != nil {
				return err
			}
			go func() {
				err := c.Barrier()
				if g.Rank() == i { // rank 0 is late on one, rank 1 on the other
					time.Sleep(stillTime + 1500*time.Millisecond)
				}
				if err == nil {
					err = c.Barrier()
				}
				errs <- err
			}()
		}
		if err := <-errs; err != nil {
			return err
		}
		return <-errs
	}))
}

func TestAbort(t *testing.T) {
	// As long as may be, and of bytes that grow most on the way.
	message := "ValueError: bad label in line 7\n" + strings.Repeat("\x1b", 60_000)
	for _, world := range meshAndStar {
		for r, err := range onRanks(t, Config{World: world}, 1<<20, func(c *Communicator) error {
			if c.Rank() == 2 {
				time.Sleep(50 * time.Millisecond)
				c.Group().Abort(message)
			}
			err := c.Barrier()
			if again := c.Barrier(); err == nil || again == nil || again.Error() != err.Error() {
				return fmt.Errorf("not sticky: %v, then %v", err, again)
			}
			return err
		}) {
			var e *RemoteError
			if !errors.As(err, &e) || e.Rank != 2 || e.Host != "local-2" || e.Message != message {
				t.Errorf("%d workers: rank %d: %.300v", world, r, err)
			}
		}
	}
}

// The links of a rank that has ended because of a failure may end before rank 0 has told
// of the failure. Who waits for that rank waits for rank 0's word.
func TestCauseBeforeConsequence(t *testing.T) {
	var broken sync.WaitGroup
	broken.Add(1)
	for r, err := range onRanks(t, Config{World: mostMeshed + 2}, 1<<20, func(c *Communicator) error {
		switch c.Rank() {
		case 0:
			c.g.telling.Lock() // rank 0 knows the cause, and is slow to tell
			broken.Done()
			time.Sleep(byeTime + byeTime/2)
			err := c.g.failLocked(&RemoteError{Rank: 0, Message: "the cause"}, true)
			c.g.telling.Unlock()
			return err
		case 5:
			broken.Wait()
			c.closeLinks()
			<-c.g.Failed()
			return c.g.Failure()
		}
		return c.Barrier()
	}) {
		var e *RemoteError
		if !errors.As(err, &e) || e.Rank != 0 || e.Message != "the cause" {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// An error of one rank within an operation reaches the others as its own.
func TestLocalErrorEndsTheOperationEverywhere(t *testing.T) {
	mine := errors.New("no memory for this")
	for r, err := range onRanks(t, Config{World: 3}, 1<<20, func(c *Communicator) error {
		if c.Rank() != 1 {
			return c.Barrier()
		}
		op, err := c.Begin(KindBarrier, None)
		if err != nil {
			return err
		}
		return op.End(mine)
	}) {
		var e *RemoteError
		if r == 1 {
			if err != mine {
				t.Errorf("rank 1: %v", err)
			}
		} else if !errors.As(err, &e) || e.Rank != 1 || e.Message != mine.Error() {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A panic in either half is an error of every rank, not the end of the process.
func TestPanicInAHalfEndsTheOperationEverywhere(t *testing.T) {
	for _, half := range []string{"send", "receive"} {
		for r, err := range onRanks(t, Config{World: 3}, 1<<20, func(c *Communicator) error {
			op, err := c.Begin(KindAggregate, Forward)
			if err != nil {
				return err
			}
			broken := func(name string) {
				if c.Rank() == 1 && name == half {
					panic("index out of range, in " + name)
				}
			}
			return op.End(op.Run(
				func() error {
					broken("send")
					return op.Send(c.up(1), 1, 0, nil)
				},
				func() error {
					broken("receive")
					_, err := op.Next(c.down(1), 1, 0)
					if err == nil {
						op.Release(c.down(1))
						_, err = op.Next(c.down(1), 1, 1) // until the failure comes
					}
					return err
				}))
		}) {
			var remote *RemoteError
			if err == nil || !strings.Contains(err.Error(), "bug in the engine: index out of range, in "+half) {
				t.Errorf("%s, rank %d: %v", half, r, err)
			} else if errors.As(err, &remote) == (r == 1) || (r != 1 && remote.Rank != 1) {
				t.Errorf("%s, rank %d: %T of rank 1", half, r, err)
			}
		}
	}
}

func TestCloseIsNoLossUntilSomeoneWaits(t *testing.T) {
	n := 200_000
	for r, err := range onRanks(t, Config{World: 3}, 4<<20, func(c *Communicator) error {
		buf := make([]byte, n)
		if c.Rank() == 0 {
			copy(buf, pattern(0, n))
		}
		if c.Rank() != 0 {
			time.Sleep(300 * time.Millisecond)
		}
		// Fits into the links: the root is done and gone before anyone reads.
		if err := c.Broadcast(buf, 0); err != nil {
			return err
		}
		if string(buf) != string(pattern(0, n)) {
			return errors.New("wrong bytes")
		}
		if c.Rank() == 0 {
			return c.Group().Close()
		}
		if err := c.Group().Failure(); err != nil {
			return fmt.Errorf("a goodbye was taken for a failure: %w", err)
		}
		begin := time.Now()
		err := c.Barrier()
		if d := time.Since(begin); d > 500*time.Millisecond {
			return fmt.Errorf("took %v: %w", d, err)
		}
		return err
	}) {
		var lost *PeerLost
		switch {
		case r == 0 && err != nil:
			t.Errorf("rank 0: %v", err)
		case r != 0 && (!errors.As(err, &lost) || lost.Rank != 0 || lost.Reason != shutDown):
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestOperationDeadline(t *testing.T) {
	errs := onRanks(t, Config{World: 2, Operation: 300 * time.Millisecond}, 1<<20, func(c *Communicator) error {
		if c.Rank() == 1 {
			<-c.Group().Failed() // what rank 0 tells
			return c.Barrier()
		}
		return c.Barrier()
	})
	var late *DeadlineError
	if !errors.As(errs[0], &late) || late.Peer != 1 || !strings.Contains(late.Op, "barrier") {
		t.Errorf("rank 0: %v", errs[0])
	}
	var remote *RemoteError
	if !errors.As(errs[1], &remote) || remote.Rank != 0 {
		t.Errorf("rank 1: %v", errs[1])
	}
}

func TestResize(t *testing.T) {
	noErrors(t, onRanks(t, Config{World: 3}, 1<<20, func(c *Communicator) error {
		before := c.MaxPayload()
		if err := checkAllReduce(c, dtypes.Float32, Sum, 100); err != nil {
			return err
		}
		if err := c.Resize(1 << 18); err != nil {
			return err
		}
		if got := c.MaxPayload(); got >= before {
			return fmt.Errorf("frames of %d bytes, before %d", got, before)
		}
		var budget *mem.BudgetError
		if err := c.Resize(10); !errors.As(err, &budget) || budget.Minimum != 2*minLinkBytes {
			return fmt.Errorf("a window of 10 bytes: %v", err)
		}
		if err := c.Resize(int(budget.Minimum)); err != nil {
			return err
		}
		if err := checkAllReduce(c, dtypes.Float32, Sum, 3000); err != nil {
			return err
		}
		for range 2 {
			if _, err := c.Group().NewCommunicator("tiny", 10); !errors.As(err, &budget) {
				return fmt.Errorf("a communicator with a window of 10 bytes: %v", err)
			}
		}
		if _, err := c.Group().NewCommunicator("more", 1<<18); err != nil {
			return err
		}
		return checkAllReduce(c, dtypes.Float32, Sum, 30_000)
	}))
}

func TestUseAfterClose(t *testing.T) {
	groups, err := Local(Config{World: 2})
	if err != nil {
		t.Fatal(err)
	}
	noErrors(t, runRanks(t, groups, func(g *Group) error {
		c, err := g.NewCommunicator("c", 1<<20)
		if err != nil {
			return err
		}
		if err := c.Barrier(); err != nil {
			return err
		}
		if err := g.Close(); err != nil {
			return err
		}
		if err := c.Barrier(); !errors.Is(err, ErrClosed) {
			return fmt.Errorf("barrier after close: %v", err)
		}
		if _, err := g.NewCommunicator("d", 1<<20); !errors.Is(err, ErrClosed) {
			return fmt.Errorf("communicator after close: %v", err)
		}
		return g.Close()
	}))
	nothingLeft(t)
}

// A rank whose links cannot be made says so: the others do not wait.
func TestMeshThatFails(t *testing.T) {
	groups, err := Local(Config{World: 3})
	if err != nil {
		t.Fatal(err)
	}
	groups[1].fabric = &brokenFabric{groups[1].fabric}
	for r, err := range runRanks(t, groups, func(g *Group) error {
		c, err := g.NewCommunicator("c", 1<<20)
		if err != nil {
			return err
		}
		return c.Barrier()
	}) {
		var e *RemoteError
		if r == 1 {
			if !errors.Is(err, errBroken) {
				t.Errorf("rank 1: %v", err)
			}
		} else if !errors.As(err, &e) || e.Rank != 1 || !strings.Contains(e.Message, errBroken.Error()) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

var errBroken = errors.New("no shared memory left")

type brokenFabric struct{ fabric }

func (brokenFabric) Mesh(uint32, int, time.Time) ([]transport.Link, error) { return nil, errBroken }
