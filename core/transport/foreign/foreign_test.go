package foreign_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sar/core/transport/conformance"
	"sar/core/transport/foreign"
)

// queues is a library whose messages are copied within this process, once both sides have posted
// them, by a goroutine of its own.
type queues struct {
	name    string
	revokes bool
}

func (q *queues) Name() string           { return q.name }
func (q *queues) ByteCost() float64      { return 0.1 }
func (q *queues) Revokes() bool          { return q.revokes }
func (q *queues) Automatic() bool        { return false }
func (q *queues) Probe() (string, error) { return "memory of this process", nil }

func (q *queues) Open(rank, _ int) (foreign.Worker, error) {
	return &queueWorker{rank: rank}, nil
}

type queueWorker struct{ rank int }

func (w *queueWorker) Address() []byte                         { return fmt.Append(nil, w.rank) }
func (w *queueWorker) Register([]byte) (foreign.Memory, error) { return nil, nil }
func (w *queueWorker) Unregister(foreign.Memory)               {}
func (w *queueWorker) Close()                                  {}
func (w *queueWorker) Connect(p foreign.Peer) (foreign.Channel, error) {
	return &queueChannel{out: pipeOf(p.SendTag), in: pipeOf(p.ReceiveTag)}, nil
}

// pipe is one direction of a channel.
type pipe struct {
	sync.Mutex
	sends, receives []posted
}

type posted struct {
	b []byte
	r *foreign.Request
}

var pipes sync.Map

func pipeOf(tag uint32) *pipe {
	p, _ := pipes.LoadOrStore(tag, new(pipe))
	return p.(*pipe)
}

// match completes what both sides have posted.
func (p *pipe) match() {
	p.Lock()
	defer p.Unlock()
	for len(p.sends) > 0 && len(p.receives) > 0 {
		s, r := p.sends[0], p.receives[0]
		p.sends, p.receives = p.sends[1:], p.receives[1:]
		if len(s.b) != len(r.b) {
			panic(fmt.Sprintf("%d bytes are received as %d", len(s.b), len(r.b)))
		}
		copy(r.b, s.b)
		if s.r != nil {
			s.r.Done(nil)
		}
		r.r.Done(nil)
	}
}

var errEnded = errors.New("disconnected")

func drop(list *[]posted) {
	for _, p := range *list {
		p.r.Done(errEnded)
	}
	*list = nil
}

// late is a library that buffers what is sent, and brings it to rank 1 after a while only.
type late struct {
	queues
	left      sync.WaitGroup // channels that are not disconnected
	cancelled atomic.Int64   // receives that were in progress then
}

func (l *late) Open(rank, _ int) (foreign.Worker, error) {
	l.left.Add(1)
	return &lateWorker{queueWorker{rank}, l}, nil
}

type lateWorker struct {
	queueWorker
	library *late
}

func (w *lateWorker) Connect(p foreign.Peer) (foreign.Channel, error) {
	return &lateChannel{queueChannel{pipeOf(p.SendTag), pipeOf(p.ReceiveTag)}, w.library, w.rank}, nil
}

type lateChannel struct {
	queueChannel
	library *late
	rank    int
}

func (c *lateChannel) Send(b []byte, _ foreign.Memory, r *foreign.Request) {
	go r.Done(nil)
	c.out.Lock()
	c.out.sends = append(c.out.sends, posted{slices.Clone(b), nil})
	c.out.Unlock()
	time.AfterFunc(time.Duration(1-c.rank)*50*time.Millisecond, c.out.match)
}

func (c *lateChannel) Receive(b []byte, _ foreign.Memory, r *foreign.Request) {
	c.in.Lock()
	c.in.receives = append(c.in.receives, posted{b, r})
	c.in.Unlock()
	time.AfterFunc(time.Duration(c.rank)*50*time.Millisecond, c.in.match)
}

func (c *lateChannel) Disconnect() {
	go func() {
		c.in.Lock()
		c.library.cancelled.Add(int64(len(c.in.receives)))
		drop(&c.in.receives)
		c.in.Unlock()
		c.library.left.Done()
	}()
}

type queueChannel struct{ out, in *pipe }

func (c *queueChannel) Send(b []byte, _ foreign.Memory, r *foreign.Request) {
	c.out.Lock()
	c.out.sends = append(c.out.sends, posted{b, r})
	c.out.Unlock()
	go c.out.match()
}

func (c *queueChannel) Receive(b []byte, _ foreign.Memory, r *foreign.Request) {
	c.in.Lock()
	c.in.receives = append(c.in.receives, posted{b, r})
	c.in.Unlock()
	go c.in.match()
}

func (c *queueChannel) Disconnect() {
	go func() {
		c.out.Lock()
		drop(&c.out.sends)
		c.out.Unlock()
		c.in.Lock()
		drop(&c.in.receives)
		c.in.Unlock()
	}()
}

func TestConformance(t *testing.T) {
	for _, revokes := range []bool{false, true} {
		t.Run(fmt.Sprintf("revokes=%v", revokes), func(t *testing.T) {
			conformance.Run(t, "queues", conformance.Over(&queues{"queues", revokes}))
		})
	}
	t.Run("direct", func(t *testing.T) { conformance.RunDirect(t, conformance.Over(&queues{"queues", true})) })
}

// TestCloseBoth has both sides close while what one of them sends comes about later than the end
// of its connection. Not every library can take a receive back, so none may be in progress then.
func TestCloseBoth(t *testing.T) {
	library := &late{queues: queues{name: "late"}}
	token := "the token of the job"
	links, errs := conformance.Join(t, library, 0, 1, 1<<16, [2]string{token, token})
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	var closing sync.WaitGroup
	for _, l := range links {
		closing.Go(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	closing.Wait()
	library.left.Wait()
	if n := library.cancelled.Load(); n != 0 {
		t.Errorf("%d receives were in progress when the channels were disconnected", n)
	}
}

// TestProof has the other end of a channel not know the job's token.
func TestProof(t *testing.T) {
	links, errs := conformance.Join(t, &queues{"queues", true}, 0, 1, 1<<16,
		[2]string{"the token of the job", "another token than that of the job"})
	for i, err := range errs {
		if err == nil || links[i] != nil {
			t.Errorf("end %d: a link to a stranger (%v)", i, err)
		}
	}
}

func TestRegister(t *testing.T) {
	for _, name := range []string{"", "tcp", "auto", "Upper", "a_name_of_16_byt", "1st"} {
		if err := foreign.Register(&queues{name: name}); err == nil {
			t.Errorf("%q was registered", name)
		}
	}
	name := fmt.Sprintf("once%d", len(foreign.Registered()))
	if err := foreign.Register(&queues{name: name}); err != nil {
		t.Fatal(err)
	}
	if err := foreign.Register(&queues{name: name}); err == nil {
		t.Error("one name was registered twice")
	}
	if foreign.Find(name) == nil || foreign.Find("never") != nil {
		t.Error("Find does not find what was registered, or more")
	}
}
