// Package tcp carries frames over a stream connection. What is sent lies in a
// ring until a goroutine has written it, what arrives is read into another ring
// ahead of the receiver: the sender computes the next frame while one is on its
// way, the kernel's copying overlaps the receiver's work, and a peer that
// commits two frames without reading ours never blocks against us. A small frame
// that finds the ring empty is written by who commits it, as far as the kernel takes
// it at once.
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
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sar/core/transport"
	"sar/core/transport/internal/ring"
)

// lingerTime bounds how long a closed link's connection is kept to send what was
// committed and to take in what the peer still sends. Closing a socket with
// unread bytes makes the kernel reset it, and the peer would lose what we had
// committed.
const lingerTime = 5 * time.Second

// writerTime is how long Close waits for what was committed to leave.
const writerTime = 100 * time.Millisecond

// inlineBytes is the largest payload that Commit writes itself where it can: to
// hand a frame to the writer costs more than the kernel's taking it.
const inlineBytes = 32 << 10

var longAgo = time.Unix(1, 0)

type halfCloser interface{ CloseWrite() error }

type link struct {
	*ring.Staged
	conn net.Conn

	drained *ring.State   // of the writer: Gone means that nothing follows
	writer  chan struct{} // closed when the writer has left

	raw      syscall.RawConn // nil where conn has no descriptor
	written  atomic.Int64    // bytes of the next frame in the ring that are gone already
	writing  atomic.Bool     // by a caller, not by the writer
	deadline time.Time       // of writes
}

// NewLink makes conn a link to peer on another host and owns it from then on. linkBytes
// is all the memory that the link may use on this side: two rings of three frames.
func NewLink(conn net.Conn, peer, linkBytes int) (transport.Link, error) {
	return newLink(conn, peer, linkBytes, networkCost)
}

func newLink(conn net.Conn, peer, linkBytes int, byteCost float64) (transport.Link, error) {
	l := &link{conn: conn, drained: ring.NewState(0), writer: make(chan struct{})}
	about := transport.Properties{Kind: kindOf(conn), ByteCost: byteCost}
	var err error
	if l.Staged, err = ring.NewStaged(about, peer, linkBytes, l.drained, l.interrupt, l.free); err != nil {
		return nil, err
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetNoDelay(true) // small frames leave at once; another kind of connection works untuned
	}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			l.raw = raw
		}
	}
	go l.read()
	go l.write()
	return l, nil
}

// Commit sends the reserved frame: to the kernel where it is small and nothing is
// before it, and what the kernel does not take at once to the writer. So it does not
// wait: who sends may be who has to compute before anybody reads. If the deadline
// passes part of a frame may be on its way, so the link is of no more use.
func (l *link) Commit(tag transport.Tag, deadline time.Time) error {
	return l.Sending(func() error {
		if err := l.writeBy(deadline); err != nil {
			return err
		}
		n := l.Out.Reserved()
		gone, err := false, error(nil)
		if l.raw != nil && n <= inlineBytes && l.Out.Empty() {
			gone, err = l.writeOnce(tag)
		}
		if err == nil && !gone {
			_, err = l.Out.Commit(tag)
		}
		if err == nil {
			l.Sent(n)
		}
		return err
	})
}

// writeOnce gives the kernel as much of the reserved frame as it takes at once, and
// says whether that is all. The writer, which has nothing to do now, does the rest.
func (l *link) writeOnce(tag transport.Tag) (gone bool, err error) {
	frame, err := l.Out.Whole(tag)
	if err != nil {
		return false, err
	}
	var n int
	var refused error
	err = l.raw.Write(func(fd uintptr) bool {
		n, refused = unix.Write(int(fd), frame)
		return true
	})
	if err == nil && refused != nil && !errors.Is(refused, unix.EAGAIN) && !errors.Is(refused, unix.EINTR) {
		err = refused
	}
	if err != nil {
		return false, l.writeFailed(err)
	}
	l.written.Store(int64(max(0, n)))
	if gone = n == len(frame); gone {
		l.written.Store(0)
		l.Out.Passed()
	}
	return gone, nil
}

// writeBy sets the deadline of writes from now on.
func (l *link) writeBy(deadline time.Time) error {
	if deadline != l.deadline {
		_ = l.conn.SetWriteDeadline(deadline) // fails only on a closed connection, as writes will
		l.deadline = deadline
	}
	if err := l.OutEnds.Err(); err != nil { // Fail may have been before SetWriteDeadline
		_ = l.conn.SetWriteDeadline(longAgo)
		return err
	}
	return l.OutEnds.GoneErr()
}

// writeNow runs a write on the caller's goroutine. The ring is empty.
func (l *link) writeNow(f func() error) error {
	l.writing.Store(true)
	defer l.writing.Store(false)
	if err := l.OutEnds.Err(); err != nil { // interrupt may have looked before
		return err
	}
	if err := f(); err != nil {
		return l.writeFailed(err)
	}
	return nil
}

// write moves frames from the ring to the connection.
func (l *link) write() {
	defer close(l.writer)
	for {
		if _, err := l.Drain.Next(time.Time{}); err != nil {
			return // failed, or closed and all is written
		}
		if _, err := l.conn.Write(l.Drain.Whole()[l.written.Swap(0):]); err != nil {
			_ = l.writeFailed(err)
			return
		}
		l.Drain.Release()
	}
}

func (l *link) writeFailed(err error) error {
	if failed := l.OutEnds.Err(); failed != nil {
		return failed
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		late := &transport.TimeoutError{Op: "send", Peer: l.Peer()}
		l.Fail(late)
		return late
	}
	// Only sending has failed: what the peer sent before it went is still read,
	// and the reader finds out by itself that no more comes.
	l.OutEnds.Gone(&transport.PeerGone{Peer: l.Peer(), Err: err})
	return l.OutEnds.GoneErr()
}

// read moves frames from the connection into the ring until either ends.
func (l *link) read() {
	defer close(l.Reader)
	var header [transport.HeaderSize]byte
	for {
		if _, err := io.ReadFull(l.conn, header[:]); err != nil {
			l.readFailed(err, err == io.EOF)
			return
		}
		tag, n, direct, err := transport.ParseHeader(header[:], l.Peer(), l.MaxPayload())
		if err != nil {
			l.PeerEnded(err)
			return
		}
		if direct {
			if !l.land(tag, n) {
				return
			}
			continue
		}
		payload, err := l.Fill.Reserve(n, time.Time{})
		if err != nil {
			return // failed or closed on this side
		}
		if _, err := io.ReadFull(l.conn, payload); err != nil {
			l.readFailed(err, false)
			return
		}
		if _, err := l.Fill.Commit(tag); err != nil {
			return
		}
	}
}

func (l *link) readFailed(err error, clean bool) {
	if l.InEnds.Err() != nil {
		return
	}
	if clean {
		err = nil
	}
	l.PeerEnded(&transport.PeerGone{Peer: l.Peer(), Err: err})
}

// interrupt wakes the reader and who is blocked in the connection. After Close
// the writer goes on with what was committed.
func (l *link) interrupt(err error) {
	_ = l.conn.SetReadDeadline(longAgo)
	if err != transport.ErrClosed {
		l.drained.Fail(err)
	} else {
		l.drained.Gone(err)
	}
	if err != transport.ErrClosed || l.writing.Load() {
		_ = l.conn.SetWriteDeadline(longAgo)
	}
}

// free runs when the link is closed and nobody uses it. Memory and connection
// stay while the writer has something to write and then, the connection alone,
// until the peer has closed its end too; lingerTime at most for both. A writer
// that the peer does not keep is waited for, so that a link in place of this one
// takes its memory when this one's is free.
func (l *link) free() {
	<-l.Reader
	if l.drained.Err() == nil {
		_ = l.conn.SetWriteDeadline(time.Now().Add(lingerTime))
	}
	late := time.NewTimer(writerTime)
	defer late.Stop()
	select {
	case <-l.writer:
		l.finish()
	case <-late.C:
		go func() {
			<-l.writer
			l.finish()
		}()
	}
}

func (l *link) finish() {
	l.Memory.Free()
	half, ok := l.conn.(halfCloser)
	if !ok || l.OutEnds.GoneErr() != nil || half.CloseWrite() != nil {
		_ = l.conn.Close()
		return
	}
	go func() {
		_ = l.conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.Copy(io.Discard, l.conn)
		_ = l.conn.Close()
	}()
}
