package tcp

import (
	"io"
	"net"
	"time"

	"sar/core/transport"
)

// Payloads that the caller holds in memory of its own go from there to the
// kernel and from the kernel to the receiver's memory, without the copies into
// and out of staging that frames in the ring need.

// SendFrom sends payload as one direct frame, once all before it is written.
func (l *link) SendFrom(tag transport.Tag, payload []byte, deadline time.Time) error {
	return l.SendingDirect(payload, func() error {
		if err := l.writeBy(deadline); err != nil {
			return err
		}
		if err := l.Out.Flush(deadline); err != nil {
			return err
		}
		var header [transport.HeaderSize]byte
		transport.PutDirectHeader(header[:], tag, len(payload))
		parts := net.Buffers{header[:], payload}
		return l.writeNow(func() error { _, err := parts.WriteTo(l.conn); return err })
	})
}

// land reads the payload of a direct frame into the memory that the receiver
// names. It returns false when the reader has to leave.
func (l *link) land(tag transport.Tag, n int) bool {
	if l.Announce(tag, n, time.Time{}) != nil {
		return false
	}
	select {
	case at := <-l.Landings:
		_, err := io.ReadFull(l.conn, at.Dst)
		if err != nil {
			l.readFailed(err, false)
		}
		at.Done <- err
		return err == nil
	case <-l.Ended:
		return false
	}
}
