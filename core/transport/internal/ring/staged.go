package ring

import (
	"sync"
	"sync/atomic"
	"time"

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
	Out     *Producer
	OutEnds *State // of the sender
	In      *Consumer
	Fill    *Producer     // the reader's end of the same ring
	InEnds  *State        // of the receiver and the reader
	Reader  chan struct{} // closed when the reader has left
	Ended   chan struct{} // closed when this side failed or closed

	Landings chan Landing // from the receiver to the reader
	size     atomic.Int64 // payload bytes of the direct frame that waits for its landing, -1: none
	end      sync.Once
}

// Landing is where a direct payload goes, and how it got there.
type Landing struct {
	Dst  []byte
	Done chan error
}

// NewStaged makes a link with frames of up to max bytes. memory is Bytes(max) for what comes in and as much, behind
// that, for what goes out. writer is the state of who takes frames out of the latter, nil where nobody waits for
// them. Call Leave when the link ends.
func NewStaged(about transport.Properties, peer, max int, memory []byte, writer *State, free func()) *Staged {
	in, out := memory[:Bytes(max)], memory[Bytes(max):]
	s := &Staged{OutEnds: NewState(0), InEnds: NewState(0), Reader: make(chan struct{}), Ended: make(chan struct{}),
		Landings: make(chan Landing)}
	s.size.Store(-1)
	if writer == nil {
		writer = s.OutEnds
	}
	s.Out = NewProducer(out, max, peer, s.OutEnds, writer.Data.Signal)
	s.In = NewConsumer(in, max, peer, s.InEnds, s.InEnds.Space.Signal)
	s.Fill = NewProducer(in, max, peer, s.InEnds, s.InEnds.Data.Signal)
	s.Link = NewLink(about, peer, s.Out, s.In, free)
	return s
}

// Leave closes Ended.
func (s *Staged) Leave() { s.end.Do(func() { close(s.Ended) }) }

// PeerEnded notes that the peer has gone: what has come is still received.
func (s *Staged) PeerEnded(err error) {
	s.InEnds.Gone(err)
	s.OutEnds.Gone(err)
}

// InErr is why nothing is received any more.
func (s *Staged) InErr() error {
	if err := s.InEnds.Err(); err != nil {
		return err
	}
	if err := s.InEnds.GoneErr(); err != nil {
		return err
	}
	return &transport.PeerGone{Peer: s.peer}
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

// Receive receives the next frame, which must be a direct one of len(dst) bytes. It does not return before
// the reader has left dst alone. passed is called when the frame has left the ring.
func (s *Staged) Receive(dst []byte, deadline time.Time, passed func()) (tag transport.Tag, err error) {
	f, err := s.In.Next(deadline)
	if err != nil {
		return f.Tag, err
	}
	n := s.size.Swap(-1)
	s.In.Release()
	passed()
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
