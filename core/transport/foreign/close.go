package foreign

import (
	"time"

	"sar/core/transport"
)

// pump hears the end of the connection, which is that of the peer, and its acknowledgement
// that everything has arrived.
func (l *link) pump() {
	defer close(l.pumped)
	var b [1]byte
	for {
		n, err := l.conn.Read(b[:])
		if n == 1 && b[0] == ackByte {
			l.ackOnce.Do(func() { close(l.acked) })
		}
		if err != nil {
			if l.inEnds.Err() == nil {
				l.peerEnded(goneBy(l.peer, err))
			}
			l.ackOnce.Do(func() { close(l.acked) })
			return
		}
	}
}

// interrupt is what Fail and Close do before they wait for calls in progress. After Close
// what was committed still leaves.
func (l *link) interrupt(err error) {
	if err != transport.ErrClosed {
		l.failed.Store(true)
		l.disconnect()
	}
	l.endOnce.Do(func() { close(l.ended) })
}

// free runs when the link is closed and nobody uses it. A link that the peer does not keep
// is waited for, so that one in place of it takes its memory when this one's is free.
func (l *link) free() {
	go l.depart()
	late := time.NewTimer(departTime)
	defer late.Stop()
	select {
	case <-l.released:
	case <-late.C:
	}
}

// depart delivers what was committed, where the peer is there and nothing has failed, and ends
// the channel and the connection.
func (l *link) depart() {
	if !l.failed.Load() && l.outEnds.GoneErr() == nil && l.posting(func() { l.sendSlot(lastAt, slotLast, &l.last) }) == nil {
		late := time.NewTimer(lingerTime)
		select {
		case <-l.acked:
		case <-l.gone:
		case <-late.C:
		}
		late.Stop()
	}
	l.disconnect()
	_ = l.conn.Close()
	<-l.pumped
	<-l.reader
	l.unref()
}
