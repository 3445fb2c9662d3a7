package foreign

import (
	"runtime"
	"time"
	"unsafe"

	"sar/core/transport"
	"sar/core/transport/internal/ring"
)

// direct is a link over a library that gives the callers' memory back whenever it is asked to.
type direct struct{ *link }

// wait waits for c until the link fails or closes, the peer goes, or the time of a send is up. It
// passes room on meanwhile.
func wait[T any](l *link, c <-chan T, expired <-chan time.Time) (got T, err error) {
	for {
		select {
		case got = <-c:
			return got, nil
		case <-l.again:
			l.tellRoom()
		case <-l.Ended:
			return got, l.endErr()
		case <-l.gone: // of which a link that has ended itself may not have taken note
			return got, l.endErr()
		case <-expired:
			return got, &transport.TimeoutError{Op: "send", Peer: l.Peer()}
		}
	}
}

// revocable waits until the library no longer touches memory of a caller's. The deadline, and
// whatever ends the link, have it disconnected first.
func (l *link) revocable(a *awaited, deadline time.Time) error {
	expired, stop := ring.Expiry(deadline)
	defer stop()
	told, err := wait(l, a.done, expired)
	if err == nil {
		return l.carried(told)
	}
	if _, late := err.(*transport.TimeoutError); late {
		l.Fail(err)
	}
	l.disconnect()
	late := time.NewTimer(revokeTime)
	defer late.Stop()
	select {
	case <-a.done:
	case <-late.C: // the library has broken its word
	}
	return err
}

// carried makes the link's error of what the library says.
func (l *link) carried(err error) error {
	if err == nil {
		return nil
	}
	if own := l.OutEnds.Err(); own != nil {
		return own
	}
	l.peerEnded(&transport.PeerGone{Peer: l.Peer(), Err: l.opened.explain(err)})
	return l.OutEnds.GoneErr()
}

// pinned runs f while memory of the Go heap stays where it is and in use; other memory is its
// owner's.
func pinned(b []byte, f func() error) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(b))
	return f()
}

// SendFrom sends payload as one direct frame.
func (l direct) SendFrom(tag transport.Tag, payload []byte, deadline time.Time) error {
	return l.SendingDirect(payload, func() error {
		if err := l.postable(deadline); err != nil {
			return err
		}
		if _, err := l.Out.Reserve(0, deadline); err != nil {
			return err
		}
		frame, end, err := l.Out.Forward(tag)
		if err != nil {
			return err
		}
		transport.PutDirectHeader(frame[headerAt:], tag, len(payload))
		if len(payload) == 0 {
			return l.sendFrame(frame, end, func() {})
		}
		return pinned(payload, func() error { return l.sendBoth(frame, end, payload, deadline) })
	})
}

// sendBoth posts the header of a direct frame and its payload, and waits for the payload.
func (l direct) sendBoth(header []byte, end uint64, payload []byte, deadline time.Time) error {
	a := newAwaited(l.link)
	if err := l.sendFrame(header, end, func() { l.sendNow(payload, nil, &a.Request) }); err != nil {
		return err
	}
	return l.revocable(a, deadline)
}

// ReceiveInto receives the next frame, which must be a direct one of len(dst) bytes.
func (l direct) ReceiveInto(dst []byte, deadline time.Time) (tag transport.Tag, err error) {
	err = pinned(dst, func() error {
		tag, err = l.link.ReceiveInto(dst, deadline)
		return err
	})
	return tag, err
}
