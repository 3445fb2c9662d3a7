package ring

import (
	"sync"
	"sync/atomic"
	"time"

	"sar/core/transport"
)

// Counters keeps a link's statistics.
type Counters struct {
	sentFrames, sentPayload, recvFrames, recvPayload atomic.Uint64
}

// Sent counts a frame of n payload bytes.
func (c *Counters) Sent(n int) {
	c.sentFrames.Add(1)
	c.sentPayload.Add(uint64(n))
}

// Received counts a frame of n payload bytes.
func (c *Counters) Received(n int) {
	c.recvFrames.Add(1)
	c.recvPayload.Add(uint64(n))
}

// Stats returns the counts.
func (c *Counters) Stats() transport.LinkStats {
	s := transport.LinkStats{
		SentFrames: c.sentFrames.Load(), SentPayload: c.sentPayload.Load(),
		RecvFrames: c.recvFrames.Load(), RecvPayload: c.recvPayload.Load(),
	}
	s.SentBytes = s.SentPayload + s.SentFrames*transport.HeaderSize
	s.RecvBytes = s.RecvPayload + s.RecvFrames*transport.HeaderSize
	return s
}

// Link is a link over two rings, one each way. Its memory must not be touched
// once it is closed: Close waits for calls in progress, and then free runs.
type Link struct {
	Counters
	peer  int
	kind  string
	state *State
	out   *Producer
	in    *Consumer
	free  func() // unmaps the rings and lets the peer know
	// The locks are never waited for in normal use, as one goroutine sends and
	// one receives; they let Close wait until nobody is in the memory.
	sendMu, recvMu sync.Mutex
	once           sync.Once
}

// NewLink joins the two ends that lie on this side, made with state.
func NewLink(kind string, peer int, state *State, out *Producer, in *Consumer, free func()) *Link {
	return &Link{kind: kind, peer: peer, state: state, out: out, in: in, free: free}
}

// Peer is the rank at the other end.
func (l *Link) Peer() int { return l.peer }

// Kind names the transport.
func (l *Link) Kind() string { return l.kind }

// MaxPayload is the largest payload of a frame.
func (l *Link) MaxPayload() int { return l.out.max }

// Reserve returns memory of the ring for the next frame.
func (l *Link) Reserve(n int, deadline time.Time) ([]byte, error) {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	return l.out.Reserve(n, deadline)
}

// Commit publishes the reserved frame; it never blocks.
func (l *Link) Commit(tag transport.Tag, _ time.Time) error {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	n, err := l.out.Commit(tag)
	if err == nil {
		l.Sent(n)
	}
	return err
}

// Next returns the next frame where it lies in the ring.
func (l *Link) Next(deadline time.Time) (transport.Frame, error) {
	l.recvMu.Lock()
	defer l.recvMu.Unlock()
	f, err := l.in.Next(deadline)
	if err == nil {
		l.Received(len(f.Payload))
	}
	return f, err
}

// Release gives the frame back.
func (l *Link) Release() {
	l.recvMu.Lock()
	defer l.recvMu.Unlock()
	if l.state.Err() != transport.ErrClosed { // the memory is gone after Close
		l.in.Release()
	}
}

// Fail makes every call return err.
func (l *Link) Fail(err error) { l.state.Fail(err) }

// Close wakes whoever is blocked and frees the rings.
func (l *Link) Close() error {
	l.once.Do(func() {
		l.state.Fail(transport.ErrClosed)
		l.sendMu.Lock()
		defer l.sendMu.Unlock()
		l.recvMu.Lock()
		defer l.recvMu.Unlock()
		l.free()
	})
	return nil
}
