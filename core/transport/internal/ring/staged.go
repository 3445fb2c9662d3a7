package ring

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"sar/core/mem"
	"sar/core/transport"
)

// Staged is what a link has whose frames travel otherwise than through memory that both ends share:
// a ring each way in memory of its own. One goroutine, the reader, puts what arrives into the ring of the
// receiver.
//
// The payload of a direct frame goes past the rings, to memory that the receiver names. In the ring the
// frame leaves an empty one that keeps its place in the order.
type Staged struct {
	*Link
	Memory  mem.Array[byte] // of both rings, what comes in first; the link's to free
	Out     *Producer
	Drain   *Consumer // the writer's end of the same ring, nil where there is no writer
	OutEnds *State    // of the sender
	In      *Consumer
	Fill    *Producer     // the reader's end of the same ring
	InEnds  *State        // of the receiver and the reader
	Reader  chan struct{} // closed when the reader has left
	Ended   chan struct{} // closed when this side failed or closed
	Passed  func()        // is told when a direct frame has left the ring

	Landings chan Landing // from the receiver to the reader
	size     atomic.Int64 // payload bytes of the direct frame that waits for its landing, -1: none
}

// Landing is where a direct payload goes, and how it got there.
type Landing struct {
	Dst  []byte
	Done chan error
}

// NewStaged makes a link that may use linkBytes. writer is the state of who takes frames out of the ring of what is
// sent, nil where nobody waits for them. interrupt wakes whoever is blocked outside of the rings, as Link.wake does.
func NewStaged(about transport.Properties, peer, linkBytes int, writer *State, interrupt func(error),
	free func()) (*Staged, error) {
	memory, max, err := Memory(linkBytes)
	if err != nil {
		return nil, err
	}
	in, out := memory.Data[:Bytes(max)], memory.Data[Bytes(max):]
	s := &Staged{Memory: memory, OutEnds: NewState(0), InEnds: NewState(0), Reader: make(chan struct{}),
		Ended: make(chan struct{}), Passed: func() {}, Landings: make(chan Landing)}
	s.size.Store(-1)
	wake := func() {}
	if writer != nil {
		s.Drain, wake = NewConsumer(out, max, peer, writer, s.OutEnds.Space.Signal), writer.Data.Signal
	}
	s.Out = NewProducer(out, max, peer, s.OutEnds, wake)
	s.In = NewConsumer(in, max, peer, s.InEnds, s.InEnds.Space.Signal)
	s.Fill = NewProducer(in, max, peer, s.InEnds, s.InEnds.Data.Signal)
	s.Link = NewLink(about, peer, s.Out, s.In, free)
	end := sync.OnceFunc(func() { close(s.Ended) })
	s.wake = func(err error) {
		end()
		interrupt(err)
	}
	return s, nil
}

// PeerEnded notes that the peer has gone: what has come is still received.
func (s *Staged) PeerEnded(err error) {
	s.InEnds.Gone(err)
	s.OutEnds.Gone(err)
}

// InErr is why nothing is received any more.
func (s *Staged) InErr() error {
	return cmp.Or[error](s.InEnds.Err(), s.InEnds.GoneErr(), &transport.PeerGone{Peer: s.peer})
}

// Announce puts the place of a direct frame of n bytes into the ring, when there is room by the deadline.
func (s *Staged) Announce(tag transport.Tag, n int, deadline time.Time) error {
	_, err := s.Fill.Reserve(0, deadline)
	if err == nil {
		s.size.Store(int64(n))
		_, err = s.Fill.Commit(tag)
	}
	return err
}

// ReceiveInto receives the next frame, which must be a direct one of len(dst) bytes. It does not return before
// the reader has left dst alone.
func (s *Staged) ReceiveInto(dst []byte, deadline time.Time) (tag transport.Tag, err error) {
	err = s.Receiving(func() error {
		tag, err = s.receive(dst, deadline)
		return err
	})
	return tag, err
}

func (s *Staged) receive(dst []byte, deadline time.Time) (tag transport.Tag, err error) {
	f, err := s.In.Next(deadline)
	if err != nil {
		return f.Tag, err
	}
	n := s.size.Swap(-1)
	s.In.Release()
	s.Passed()
	if n != int64(len(dst)) || len(f.Payload) != 0 {
		return f.Tag, &transport.FrameError{Peer: s.peer, Detail: "another frame than the direct one that is due"}
	}
	at := Landing{dst, make(chan error, 1)}
	select {
	case s.Landings <- at:
	case <-s.Reader: // it has left: failed, closed, or the connection ended
		return f.Tag, s.InErr()
	}
	expired, stop := Expiry(deadline)
	defer stop()
	select {
	case err = <-at.Done:
	case <-expired:
		s.Fail(&transport.TimeoutError{Op: "receive", Peer: s.peer})
		err = <-at.Done // Fail has the reader take the memory back
	}
	if err != nil {
		return f.Tag, s.InErr()
	}
	s.Received(len(dst))
	return f.Tag, nil
}
