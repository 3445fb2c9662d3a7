package foreign

import (
	"fmt"
	"net"
	"time"

	"sar/core/transport"
	"sar/core/trust"
)

// proofTime is how long a library may take to connect and to carry the proof.
const proofTime = 30 * time.Second

// prove has both sides show over the channel that they know the job's token, for this link:
// that it is theirs who proved themselves over the connection.
func (l *link) prove(dials bool, sendTag, receiveTag uint32) error {
	late := time.NewTimer(proofTime)
	defer late.Stop()
	s := &stream{link: l, late: late.C, out: newAwaited(l), in: newAwaited(l)}
	id := l.opened.identity
	if dials {
		_, err := id.Dial(s, trust.Target{Purpose: Purpose, Peer: l.Peer(), Mesh: sendTag})
		return err
	}
	_, claim, err := id.Admit(s, trust.Policy{Purposes: []trust.Purpose{Purpose}})
	if err == nil && (claim.Rank != l.Peer() || claim.Mesh != receiveTag) {
		err = fmt.Errorf("rank %d was expected and rank %d has come", l.Peer(), claim.Rank)
	}
	return err
}

// stream has a channel look like a connection, for as long as the proof takes. Its messages
// are blocks of one size, the first byte of which says how many follow that count.
type stream struct {
	*link
	late    <-chan time.Time
	out, in *awaited
	unread  []byte
}

func (s *stream) Write(b []byte) (int, error) {
	block := s.page.Data[proofOutAt : proofOutAt+blockBytes]
	for at := 0; at < len(b); {
		n := copy(block[1:], b[at:])
		block[0] = byte(n)
		err := s.posting(func() { s.sendNow(block, s.pageMemory, &s.out.Request) })
		if err == nil {
			err = s.wait(s.out)
		}
		if err != nil {
			return at, err
		}
		at += n
	}
	return len(b), nil
}

func (s *stream) Read(b []byte) (int, error) {
	if len(s.unread) == 0 {
		block := s.page.Data[proofInAt : proofInAt+blockBytes]
		err := s.posting(func() { s.receiveNow(block, s.pageMemory, &s.in.Request) })
		if err == nil {
			err = s.wait(s.in)
		}
		if err != nil {
			return 0, err
		}
		if block[0] == 0 || int(block[0]) >= blockBytes {
			return 0, &transport.FrameError{Peer: s.Peer(), Detail: fmt.Sprintf("block of %d bytes", block[0])}
		}
		s.unread = block[1 : 1+block[0]]
	}
	n := copy(b, s.unread)
	s.unread = s.unread[n:]
	return n, nil
}

func (s *stream) wait(a *awaited) error {
	select {
	case err := <-a.done:
		if err != nil {
			return s.opened.explain(err)
		}
		return nil
	case <-s.gone:
		return s.InEnds.GoneErr()
	case <-s.late:
		return &transport.TimeoutError{Op: "connect", Peer: s.Peer()}
	}
}

// The caller's connection has its deadlines.
func (s *stream) Close() error                     { return nil }
func (s *stream) LocalAddr() net.Addr              { return s.conn.LocalAddr() }
func (s *stream) RemoteAddr() net.Addr             { return s.conn.RemoteAddr() }
func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
