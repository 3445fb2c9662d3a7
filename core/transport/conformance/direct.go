package conformance

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"sar/core/transport"
)

// RunDirect runs the suite of transport.Direct, whose SendFrom may or may not
// wait for the receiver.
func RunDirect(t *testing.T, make Factory) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, transport.Direct, transport.Direct)
	}{
		{"Frames", testDirectFrames},
		{"Mismatch", testDirectMismatch},
		{"NotDirect", testNotDirect},
		{"SenderGivesUp", testDirectSenderGivesUp},
		{"PeerCloses", testDirectPeerCloses},
		{"Wakes", testDirectWakes},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := pair(t, make, smallLink)
			test.run(t, a.(transport.Direct), b.(transport.Direct))
		})
	}
}

// testDirectFrames: direct frames keep their place among the others, are larger
// than the link, go both ways at once, and carry their tags.
func testDirectFrames(t *testing.T, a, b transport.Direct) {
	sizes := []int{1 << 20, 0, 1, 20 << 20, 4097}
	total := 0
	for _, n := range sizes {
		total += n + 1
	}
	sends := func(l transport.Direct, self int) func() error {
		return func() error {
			for i, n := range sizes {
				if err := send(l, self, 2*i, 1); err != nil {
					return err
				}
				payload := make([]byte, n)
				fill(payload, 2*i+1+self)
				if err := l.SendFrom(tagOf(self, l.Peer(), 2*i+1), payload, soon()); err != nil {
					return err
				}
				clear(payload) // it may be changed as soon as SendFrom returns
			}
			return nil
		}
	}
	receives := func(l transport.Direct, self int) func() error {
		return func() error {
			for i, n := range sizes {
				if err := receive(l, self, 2*i, 1); err != nil {
					return err
				}
				dst := make([]byte, n)
				tag, err := l.ReceiveInto(dst, soon())
				if err != nil {
					return err
				}
				if want := tagOf(l.Peer(), self, 2*i+1); tag != want {
					t.Errorf("direct frame %d has tag %+v, want %+v", i, tag, want)
				}
				if err := checkFill(dst, 2*i+1+l.Peer()); err != nil {
					return err
				}
			}
			return nil
		}
	}
	all(t, sends(a, 0), receives(a, 0), sends(b, 1), receives(b, 1))
	wantStats(t, a, 2*len(sizes), total)
	wantStats(t, b, 2*len(sizes), total)
}

// testDirectMismatch: where the two sides disagree nothing is written.
func testDirectMismatch(t *testing.T, a, b transport.Direct) {
	go func() { _ = a.SendFrom(transport.Tag{}, make([]byte, 100), soon()) }()
	dst := bytes.Repeat([]byte{7}, 99)
	var bad *transport.FrameError
	if _, err := b.ReceiveInto(dst, soon()); !errors.As(err, &bad) || bytes.Count(dst, []byte{7}) != 99 {
		t.Errorf("100 bytes into 99: %v", err)
	}
}

// testNotDirect: an ordinary frame where a direct one is due, and the reverse,
// which shows as a frame without payload.
func testNotDirect(t *testing.T, a, b transport.Direct) {
	go func() { _ = a.SendFrom(tagOf(0, 1, 3), make([]byte, 100), soon()) }()
	f, err := b.Next(soon())
	if err != nil || f.Tag != tagOf(0, 1, 3) || len(f.Payload) != 0 {
		t.Errorf("Next gave %+v with %d bytes, %v", f.Tag, len(f.Payload), err)
	}
	must(t, send(b, 1, 0, 16))
	var bad *transport.FrameError
	if _, err := a.ReceiveInto(make([]byte, 16), soon()); !errors.As(err, &bad) {
		t.Errorf("an ordinary frame as a direct one: %v", err)
	}
}

// testDirectSenderGivesUp: a deadline in SendFrom is the end of the link, and
// bytes that the sender may change from then on are not received.
func testDirectSenderGivesUp(t *testing.T, a, b transport.Direct) {
	payload := bytes.Repeat([]byte{5}, 200<<20) // more than sockets take in
	err := a.SendFrom(transport.Tag{}, payload, time.Now().Add(50*time.Millisecond))
	wantTimeout(t, err, 1)
	for i := range payload {
		payload[i] = 6
	}
	if err := a.SendFrom(transport.Tag{}, payload[:1], soon()); err == nil {
		t.Error("SendFrom went through after one that did not")
	}
	go func() {
		time.Sleep(300 * time.Millisecond)
		_ = a.Close()
	}()
	if _, err := b.ReceiveInto(make([]byte, len(payload)), soon()); err == nil {
		t.Error("what was taken back was received")
	}
}

// testDirectPeerCloses: both halves learn that the peer has gone.
func testDirectPeerCloses(t *testing.T, a, b transport.Direct) {
	all(t, func() error {
		time.Sleep(50 * time.Millisecond)
		return b.Close()
	}, func() error {
		for { // what sockets take in is no sign that anybody is there
			if err := a.SendFrom(transport.Tag{}, make([]byte, 1<<20), soon()); err != nil {
				wantPeerGone(t, err, 1)
				return nil
			}
		}
	}, func() error {
		_, err := a.ReceiveInto(make([]byte, 1<<20), soon())
		wantPeerGone(t, err, 1)
		return nil
	})
}

// testDirectWakes: Fail ends a blocked sender and a blocked receiver.
func testDirectWakes(t *testing.T, a, b transport.Direct) {
	why := errors.New("another link has failed")
	check := func(err error) error {
		if err != why {
			t.Errorf("ended with %v", err)
		}
		return nil
	}
	all(t, func() error {
		time.Sleep(50 * time.Millisecond)
		a.Fail(why)
		return nil
	}, func() error {
		return check(a.SendFrom(transport.Tag{}, make([]byte, 200<<20), soon()))
	}, func() error {
		_, err := a.ReceiveInto(make([]byte, 1<<20), soon())
		return check(err)
	})
}
