package tcp

import (
	"io"
	"net"
	"time"

	"sar/core/transport"
	"sar/core/transport/internal/ring"
)

// Payloads that the caller holds in memory of its own go from there to the
// kernel and from the kernel to the receiver's memory, without the copies into
// and out of staging that frames in the ring need. In the ring a direct frame
// leaves an empty one that keeps its place in the order.

// landing is where a direct payload goes, and how it got there.
type landing struct {
	dst  []byte
	done chan error
}

// SendFrom sends payload as one direct frame, once all before it is written.
func (l *link) SendFrom(tag transport.Tag, payload []byte, deadline time.Time) error {
	return l.Sending(func() error {
		if len(payload) > transport.MaxFrame {
			return &transport.FrameError{Peer: l.peer, Detail: "payload over MaxFrame"}
		}
		if err := l.writeBy(deadline); err != nil {
			return err
		}
		if err := l.out.Flush(deadline); err != nil {
			return err
		}
		var header [transport.HeaderSize]byte
		transport.PutDirectHeader(header[:], tag, len(payload))
		parts := net.Buffers{header[:], payload}
		err := l.writeNow(func() error { _, err := parts.WriteTo(l.conn); return err })
		if err == nil {
			l.Sent(len(payload))
		}
		return err
	})
}

// ReceiveInto receives the next frame, which must be a direct one of len(dst)
// bytes. It does not return before the reader has left dst alone.
func (l *link) ReceiveInto(dst []byte, deadline time.Time) (tag transport.Tag, err error) {
	err = l.Receiving(func() error {
		tag, err = l.receiveInto(dst, deadline)
		return err
	})
	return tag, err
}

func (l *link) receiveInto(dst []byte, deadline time.Time) (transport.Tag, error) {
	f, err := l.in.Next(deadline)
	if err != nil {
		return f.Tag, err
	}
	n := l.direct.Load()
	l.in.Release()
	if n != int64(len(dst)) || len(f.Payload) != 0 {
		return f.Tag, &transport.FrameError{Peer: l.peer, Detail: "another frame than the direct one that is due"}
	}
	at := landing{dst, make(chan error, 1)}
	select {
	case l.landings <- at:
	case <-l.reader: // it has left: failed, closed, or the connection ended
		if err := l.inEnds.Err(); err != nil {
			return f.Tag, err
		}
		return f.Tag, &transport.PeerGone{Peer: l.peer}
	}
	expired, stop := ring.Expiry(deadline)
	defer stop()
	select {
	case err = <-at.done:
	case <-expired:
		l.Fail(&transport.TimeoutError{Op: "receive", Peer: l.peer})
		err = <-at.done // Fail wakes the reader
	}
	if failed := l.inEnds.Err(); failed != nil {
		return f.Tag, failed
	}
	if err != nil {
		return f.Tag, &transport.PeerGone{Peer: l.peer, Err: err}
	}
	l.Received(len(dst))
	return f.Tag, nil
}

// land reads the payload of a direct frame into the memory that the receiver
// names. It returns false when the reader has to leave.
func (l *link) land(tag transport.Tag, n int) bool {
	if _, err := l.fill.Reserve(0, time.Time{}); err != nil {
		return false
	}
	l.direct.Store(int64(n))
	if _, err := l.fill.Commit(tag); err != nil {
		return false
	}
	select {
	case at := <-l.landings:
		_, err := io.ReadFull(l.conn, at.dst)
		if err != nil {
			l.readFailed(err, false)
		}
		at.done <- err
		return err == nil
	case <-l.ended:
		return false
	}
}
