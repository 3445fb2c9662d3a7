// Package tcp carries frames over a stream connection. The sender fills a
// staging frame, header and payload are one run of bytes there, and Commit
// writes it in one call. A goroutine reads incoming frames into a ring ahead of
// the receiver, so the kernel's copying overlaps the receiver's work, and a
// peer that commits two frames without reading ours never blocks against us.
//
// On the wire is nothing but frames as transport.HeaderSize describes them:
// 32 bytes and the payload. The end of the stream between two frames is the
// peer's Close.
//
// A link is one connection. Over a loopback nearly all the time goes into
// copying, the kernel's two copies of every byte above all, which more
// connections would not lessen; over a fast network they might pay. Socket
// buffers are left to the kernel, which grows them as the connection needs.
package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sar/core/mem"
	"sar/core/transport"
	"sar/core/transport/internal/ring"
)

// lingerTime bounds how long a closed link's connection is kept to take in what
// the peer still sends. Closing a socket with unread bytes makes the kernel
// reset it, and the peer would lose what we had committed.
const lingerTime = 5 * time.Second

var longAgo = time.Unix(1, 0)

type halfCloser interface{ CloseWrite() error }

type link struct {
	ring.Counters
	peer   int
	conn   net.Conn
	state  *ring.State
	memory mem.Array[byte]
	max    int
	in     *ring.Consumer
	fill   *ring.Producer // the reader's end of the same ring
	reader chan struct{}  // closed when the reader has left

	direct   atomic.Int64  // payload bytes of the direct frame that waits for its landing
	landings chan landing  // from ReceiveInto to the reader
	ended    chan struct{} // closed by Fail
	end      sync.Once

	staging  []byte // one frame: 64 bytes with the header at their end, payload
	reserved int    // payload bytes of the staged frame, -1 if none is
	deadline time.Time

	sendMu, recvMu sync.Mutex // as in ring.Link: for Close to wait
	once           sync.Once
}

// NewLink makes conn a link to peer and owns it from then on. linkBytes is all
// the memory that the link may use on this side: a ring of three frames for
// receiving and one frame for sending.
func NewLink(conn net.Conn, peer, linkBytes int) (transport.Link, error) {
	max, err := ring.MaxPayload(linkBytes, 1, 1)
	if err != nil {
		return nil, err
	}
	ringBytes := ring.Bytes(max)
	memory, err := mem.Make[byte](mem.Window, ringBytes+ring.FrameBytes(max))
	if err != nil {
		return nil, err
	}
	tune(conn)
	s := ring.NewState(0)
	l := &link{
		peer: peer, conn: conn, state: s, memory: memory, max: max,
		in:     ring.NewConsumer(memory.Data[:ringBytes], max, peer, s, s.Space.Signal),
		fill:   ring.NewProducer(memory.Data[:ringBytes], max, peer, s, s.Data.Signal),
		reader: make(chan struct{}), landings: make(chan landing), ended: make(chan struct{}), staging: memory.Data[ringBytes:], reserved: -1,
	}
	go l.read()
	return l, nil
}

// tune has small frames leave at once. A link over another kind of connection
// works untuned.
func tune(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetNoDelay(true)
	}
}

func (l *link) Peer() int       { return l.peer }
func (l *link) Kind() string    { return "tcp" }
func (l *link) MaxPayload() int { return l.max }

// Reserve returns the staging frame, which is always free: Commit returns when
// the kernel has the bytes.
func (l *link) Reserve(n int, _ time.Time) ([]byte, error) {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	if err := l.sendErr(); err != nil {
		return nil, err
	}
	if n < 0 || n > l.max {
		return nil, fmt.Errorf("transport: frame of %d bytes to rank %d, at most %d are allowed", n, l.peer, l.max)
	}
	l.reserved = n
	return l.staging[transport.Align : transport.Align+n : transport.Align+n], nil
}

// Commit writes the frame. If the deadline passes part of it may be on its way,
// so the link is of no more use.
func (l *link) Commit(tag transport.Tag, deadline time.Time) error {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	if err := l.sendErr(); err != nil {
		return err
	}
	if l.reserved < 0 {
		return fmt.Errorf("transport: Commit to rank %d without Reserve", l.peer)
	}
	n := l.reserved
	l.reserved = -1
	if err := l.writeBy(deadline); err != nil {
		return err
	}
	const start = transport.Align - transport.HeaderSize
	transport.PutHeader(l.staging[start:], tag, n)
	if _, err := l.conn.Write(l.staging[start : transport.Align+n]); err != nil {
		return l.writeFailed(err)
	}
	l.Sent(n)
	return nil
}

// writeBy sets the deadline of the next write.
func (l *link) writeBy(deadline time.Time) error {
	if deadline != l.deadline {
		_ = l.conn.SetWriteDeadline(deadline) // fails only on a closed connection, as Write will
		l.deadline = deadline
	}
	return l.state.Err() // Fail may have been before SetWriteDeadline
}

func (l *link) sendErr() error {
	if err := l.state.Err(); err != nil {
		return err
	}
	return l.state.GoneErr()
}

func (l *link) writeFailed(err error) error {
	if failed := l.state.Err(); failed != nil {
		return failed
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		late := &transport.TimeoutError{Op: "send", Peer: l.peer}
		l.Fail(late)
		return late
	}
	// Only sending has failed: what the peer sent before it went is still read,
	// and the reader finds out by itself that no more comes.
	return &transport.PeerGone{Peer: l.peer, Err: err}
}

// read moves frames from the connection into the ring until either ends.
func (l *link) read() {
	defer close(l.reader)
	var header [transport.HeaderSize]byte
	for {
		if _, err := io.ReadFull(l.conn, header[:]); err != nil {
			l.readFailed(err, err == io.EOF)
			return
		}
		tag, n, direct, err := transport.ParseStreamHeader(header[:], l.peer, l.max)
		if err != nil {
			l.state.Gone(err)
			return
		}
		if direct {
			if !l.land(tag, n) {
				return
			}
			continue
		}
		payload, err := l.fill.Reserve(n, time.Time{})
		if err != nil {
			return // failed or closed on this side
		}
		if _, err := io.ReadFull(l.conn, payload); err != nil {
			l.readFailed(err, false)
			return
		}
		if _, err := l.fill.Commit(tag); err != nil {
			return
		}
	}
}

func (l *link) readFailed(err error, clean bool) {
	if l.state.Err() != nil {
		return
	}
	if clean {
		err = nil
	}
	l.state.Gone(&transport.PeerGone{Peer: l.peer, Err: err})
}

func (l *link) Next(deadline time.Time) (transport.Frame, error) {
	l.recvMu.Lock()
	defer l.recvMu.Unlock()
	f, err := l.in.Next(deadline)
	if err == nil {
		l.Received(len(f.Payload))
	}
	return f, err
}

func (l *link) Release() {
	l.recvMu.Lock()
	defer l.recvMu.Unlock()
	if l.state.Err() != transport.ErrClosed { // the memory is gone after Close
		l.in.Release()
	}
}

func (l *link) Fail(err error) {
	l.state.Fail(err)
	l.end.Do(func() { close(l.ended) })
	_ = l.conn.SetDeadline(longAgo) // wakes the reader and a blocked Commit
}

// Close frees the memory at once. The connection ends when the peer has closed
// its end too, or after lingerTime.
func (l *link) Close() error {
	l.once.Do(func() {
		l.Fail(transport.ErrClosed)
		l.sendMu.Lock()
		defer l.sendMu.Unlock()
		l.recvMu.Lock()
		defer l.recvMu.Unlock()
		<-l.reader
		l.memory.Free()
		half, ok := l.conn.(halfCloser)
		if !ok || l.state.GoneErr() != nil || half.CloseWrite() != nil {
			_ = l.conn.Close()
			return
		}
		go func() {
			_ = l.conn.SetReadDeadline(time.Now().Add(lingerTime))
			_, _ = io.Copy(io.Discard, l.conn)
			_ = l.conn.Close()
		}()
	})
	return nil
}
