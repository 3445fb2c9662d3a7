package foreign

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"sar/core/transport"
)

// goneBy makes a PeerGone of how its connection ended.
func goneBy(peer int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		err = nil // a peer that closed with something unread resets the connection
	}
	return &transport.PeerGone{Peer: peer, Err: err}
}

// read takes what arrives until either side ends.
func (l *link) read() {
	defer l.unref()
	defer close(l.Reader)
	slot := l.page.Data[arrivingAt : arrivingAt+slotBytes]
	next := func() error {
		return l.posting(func() { l.receiveNow(slot, l.pageMemory, &l.header.Request) })
	}
	err := next()
	for err == nil {
		if err = l.await(l.header); err == nil {
			err = l.take(slot, next)
		}
	}
	var bad *transport.FrameError
	if errors.As(err, &bad) {
		l.peerEnded(err)
	}
}

// await waits for a message that is received. It passes room on meanwhile. When the peer has
// gone nothing more is waited for, unless this side has closed too: then the peer's last
// message may have come about behind the end of its connection, and depart ends the wait.
func (l *link) await(a *awaited) error {
	gone := l.gone
	for {
		select {
		case err := <-a.done:
			if err != nil {
				l.peerEnded(&transport.PeerGone{Peer: l.Peer(), Err: l.opened.explain(err)})
			}
			return err
		case <-l.again:
			l.tellRoom()
		case <-gone:
			if !l.closed() {
				return l.InEnds.GoneErr()
			}
			gone = nil
		case <-l.dead:
			return transport.ErrClosed
		}
	}
}

// take does what the slot that has arrived says; next posts the receive of the next one.
func (l *link) take(slot []byte, next func() error) error {
	l.mu.Lock()
	l.room = binary.LittleEndian.Uint64(slot)
	l.giveBack()
	l.mu.Unlock()
	switch kind := slot[slotKindAt]; kind {
	case slotRoom:
		return next()
	case slotLast:
		l.peerEnded(&transport.PeerGone{Peer: l.Peer()})
		l.sendLast()
		return io.EOF
	case slotFrame:
	default:
		return &transport.FrameError{Peer: l.Peer(), Detail: fmt.Sprintf("message of unknown kind %d", kind)}
	}
	tag, n, direct, err := transport.ParseHeader(slot[headerAt:], l.Peer(), l.MaxPayload())
	if err != nil {
		return err
	}
	if direct {
		return l.land(tag, n, next)
	}
	payload, err := l.Fill.Reserve(n, longAgo)
	if err != nil && l.closed() {
		payload, err = l.spill[:n], nil // nobody reads it, but it is before the peer's last message
	}
	if err != nil {
		return l.tooMuch(n, err)
	}
	if n > 0 {
		err = l.posting(func() { l.receiveNow(payload, l.ringsMemory, &l.payload.Request) })
	}
	if err == nil {
		err = next()
	}
	if n > 0 && err == nil {
		err = l.await(l.payload)
	}
	if err == nil {
		if _, err = l.Fill.Commit(tag); l.closed() {
			return nil
		}
	}
	return err
}

// closed says whether this side has closed; then frames that come are not for anybody.
func (l *link) closed() bool { return l.InEnds.Err() == transport.ErrClosed }

// tooMuch is the error of a frame for which the ring has no room, or of a link that has ended.
func (l *link) tooMuch(n int, err error) error {
	var full *transport.TimeoutError
	if errors.As(err, &full) {
		return &transport.FrameError{Peer: l.Peer(),
			Detail: fmt.Sprintf("a frame of %d bytes that the window has no room for", n)}
	}
	return err
}

// land has a direct payload go to the memory that the receiver names.
func (l *link) land(tag transport.Tag, n int, next func() error) error {
	if err := l.Announce(tag, n, longAgo); err != nil {
		return l.tooMuch(0, err)
	}
	at, err := wait(l, l.Landings, nil)
	if err != nil {
		return err
	}
	if n > 0 {
		err = l.posting(func() { l.receiveNow(at.Dst, nil, &l.direct.Request) })
	}
	if err == nil {
		if n > 0 {
			err = l.revocable(l.direct, time.Time{})
		}
		if err == nil {
			err = next()
		}
	}
	at.Done <- err
	return err
}
