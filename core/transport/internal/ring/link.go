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
	about transport.Properties
	out   *Producer
	in    *Consumer
	free  func() // unmaps the rings and lets the peer know
	// wake, of links that block elsewhere than in their rings, is called with the error of each
	// Fail, and with ErrClosed by Close before it waits for calls in progress.
	wake func(error)
	// The locks are never waited for in normal use, as one goroutine sends and
	// one receives; they let Close wait until nobody is in the memory.
	sendMu, recvMu sync.Mutex
	once           sync.Once
}

// NewLink joins the two ends that lie on this side.
func NewLink(about transport.Properties, peer int, out *Producer, in *Consumer, free func()) *Link {
	return &Link{about: about, peer: peer, out: out, in: in, free: free}
}

func (l *Link) Peer() int                        { return l.peer }
func (l *Link) Properties() transport.Properties { return l.about }
func (l *Link) MaxPayload() int                  { return l.out.max }

// Sending runs f while Close waits, unless the link has ended.
func (l *Link) Sending(f func() error) error {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	if err := l.out.state.Err(); err != nil {
		return err
	}
	return f()
}

// SendingDirect is Sending for an f that sends payload as one direct frame, which is counted.
func (l *Link) SendingDirect(payload []byte, f func() error) error {
	return l.Sending(func() error {
		if len(payload) > transport.MaxFrame {
			return &transport.FrameError{Peer: l.peer, Detail: "payload over MaxFrame"}
		}
		err := f()
		if err == nil {
			l.Sent(len(payload))
		}
		return err
	})
}

// Receiving runs f while Close waits, unless the link has ended.
func (l *Link) Receiving(f func() error) error {
	l.recvMu.Lock()
	defer l.recvMu.Unlock()
	if err := l.in.state.Err(); err != nil {
		return err
	}
	return f()
}

// Reserve returns memory of the ring for the next frame.
func (l *Link) Reserve(n int, deadline time.Time) (b []byte, err error) {
	err = l.Sending(func() error {
		b, err = l.out.Reserve(n, deadline)
		return err
	})
	return b, err
}

// Commit publishes the reserved frame; it never blocks.
func (l *Link) Commit(tag transport.Tag, _ time.Time) error {
	return l.Sending(func() error {
		n, err := l.out.Commit(tag)
		if err == nil {
			l.Sent(n)
		}
		return err
	})
}

// Next returns the next frame where it lies in the ring.
func (l *Link) Next(deadline time.Time) (f transport.Frame, err error) {
	err = l.Receiving(func() error {
		if f, err = l.in.Next(deadline); err == nil {
			l.Received(len(f.Payload))
		}
		return err
	})
	return f, err
}

// Release gives the frame back.
func (l *Link) Release() {
	l.recvMu.Lock()
	defer l.recvMu.Unlock()
	if l.in.state.Err() != transport.ErrClosed { // the memory is gone after Close
		l.in.Release()
	}
}

// Fail makes every call return err.
func (l *Link) Fail(err error) {
	l.out.state.Fail(err)
	l.in.state.Fail(err)
	if l.wake != nil {
		l.wake(err)
	}
}

// Close wakes whoever is blocked and frees the rings.
func (l *Link) Close() error {
	l.once.Do(func() {
		l.Fail(transport.ErrClosed)
		l.sendMu.Lock()
		defer l.sendMu.Unlock()
		l.recvMu.Lock()
		defer l.recvMu.Unlock()
		l.free()
	})
	return nil
}
