package foreign

import (
	"time"

	"sar/core/transport"
)

// pump hears the end of the connection, which is that of the peer. Nothing else comes over it.
func (l *link) pump() {
	defer close(l.pumped)
	var b [1]byte
	_, err := l.conn.Read(b[:])
	if l.InEnds.Err() == nil {
		l.peerEnded(goneBy(l.Peer(), err))
	}
	l.goneOnce.Do(func() { close(l.gone) })
}

// interrupt is what Fail and Close do before they wait for calls in progress. After Close
// what was committed still leaves.
func (l *link) interrupt(err error) {
	if err != transport.ErrClosed {
		l.failed.Store(true)
		l.disconnect()
	}
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
// the channel and the connection. Each side says when nothing follows, and a side that hears
// so says it too, for then all of the other's messages have come. So nothing is posted in
// the end, which not every library can take back. The end of the connection may overtake the
// library's messages, so they still have a second then.
func (l *link) depart() {
	late := time.NewTimer(lingerTime)
	defer late.Stop()
	if !l.failed.Load() && l.sendLast() {
		pumped := l.pumped
		for reader, lastSent := l.Reader, l.lastSent; reader != nil || lastSent != nil; {
			select {
			case <-reader:
				reader = nil
			case <-lastSent:
				lastSent = nil
			case <-pumped:
				pumped = nil
				late.Reset(overtakeTime)
			case <-late.C:
				reader, lastSent = nil, nil
			}
		}
	}
	l.disconnect()
	_ = l.conn.Close()
	<-l.pumped
	<-l.Reader
	l.unref()
}

// sendLast tells the peer, once, that nothing follows. It says whether that is on its way.
func (l *link) sendLast() bool {
	l.lastOnce.Do(func() {
		if l.posting(func() { l.sendSlot(lastAt, slotLast, &l.last) }) != nil {
			close(l.lastSent)
		}
	})
	select {
	case <-l.dead:
		return false
	default:
		return true
	}
}
