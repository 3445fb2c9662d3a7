package conformance

import (
	"errors"
	"testing"
	"time"

	"sar/core/transport"
)

// blockBoth starts a receiver with nothing to read and a sender with no room,
// and returns their errors once release has been called.
func blockBoth(t *testing.T, a transport.Link, release func()) (recv, sent error) {
	t.Helper()
	type result struct {
		side string
		err  error
		at   time.Time
	}
	results := make(chan result, 2)
	go func() {
		_, err := a.Next(soon())
		results <- result{"Next", err, time.Now()}
	}()
	go func() {
		for {
			_, err := a.Reserve(a.MaxPayload(), soon())
			if err == nil {
				err = a.Commit(transport.Tag{}, soon())
			}
			if err != nil {
				results <- result{"Reserve or Commit", err, time.Now()}
				return
			}
		}
	}()
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	release()
	for range 2 {
		r := <-results
		if d := r.at.Sub(start); d < 0 || d > 100*time.Millisecond {
			t.Errorf("%s returned after %v with %v", r.side, d, r.err)
		}
		if r.side == "Next" {
			recv = r.err
		} else {
			sent = r.err
		}
	}
	return recv, sent
}

func testFailWakes(t *testing.T, make Factory) {
	a, _ := pair(t, make, smallLink)
	why := errors.New("another link has failed")
	recv, sent := blockBoth(t, a, func() { a.Fail(why) })
	if recv != why || sent != why {
		t.Errorf("Next returned %v, Reserve or Commit %v", recv, sent)
	}
	if _, err := a.Reserve(1, soon()); err != why {
		t.Errorf("Reserve after Fail: %v", err)
	}
	if err := a.Commit(transport.Tag{}, soon()); err != why {
		t.Errorf("Commit after Fail: %v", err)
	}
	if _, err := a.Next(soon()); err != why {
		t.Errorf("Next after Fail: %v", err)
	}
	a.Fail(errors.New("a later failure"))
	if _, err := a.Next(soon()); err != why {
		t.Errorf("Next after a second Fail: %v", err)
	}
}

func testCloseWakes(t *testing.T, make Factory) {
	a, b := pair(t, make, smallLink)
	recv, sent := blockBoth(t, a, func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	if recv != transport.ErrClosed || sent != transport.ErrClosed {
		t.Errorf("Next returned %v, Reserve or Commit %v", recv, sent)
	}
	a.Release()
	if _, err := a.Reserve(1, soon()); err != transport.ErrClosed {
		t.Errorf("Reserve after Close: %v", err)
	}
	if err := a.Commit(transport.Tag{}, soon()); err != transport.ErrClosed {
		t.Errorf("Commit after Close: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	// A peer that is blocked learns of it too.
	for {
		if _, err := b.Next(soon()); err != nil {
			wantPeerGone(t, err, 0)
			break
		}
		b.Release()
	}
}

func testCloseDrains(t *testing.T, make Factory) {
	a, b := pair(t, make, smallLink)
	max := a.MaxPayload()
	must(t, sendAll(a, 0, 0, max, 0, max), a.Close())
	time.Sleep(20 * time.Millisecond)
	must(t, receiveAll(b, 1, 0, max, 0, max))
	for range 2 {
		_, err := b.Next(soon())
		wantPeerGone(t, err, 0)
	}
	// The sender learns of it as well, at the latest when it finds no room.
	for {
		_, err := b.Reserve(max, soon())
		if err == nil {
			err = b.Commit(transport.Tag{}, soon())
		}
		if err != nil {
			wantPeerGone(t, err, 0)
			return
		}
	}
}

// testCloseWithUnread closes a side that has not read what the other sent: what
// it had sent itself must arrive all the same.
func testCloseWithUnread(t *testing.T, make Factory) {
	a, b := pair(t, make, 1<<20)
	max := a.MaxPayload()
	must(t, sendAll(a, 0, 0, max, max), sendAll(b, 1, 0, max, max), a.Close())
	time.Sleep(20 * time.Millisecond)
	must(t, receiveAll(b, 1, 0, max, max))
	_, err := b.Next(soon())
	wantPeerGone(t, err, 0)
}

// testNothingLeft opens and closes meshes, some with frames in flight.
func testNothingLeft(t *testing.T, make Factory) {
	before := measure(t)
	for i := range 5 {
		links := make(t, 3, smallLink)
		if i%2 == 0 {
			_, err := links[2][1].Reserve(10, soon())
			must(t, send(links[0][1], 0, 0, 100), err)
		}
		closeAll(t, links)
	}
	settle(t, before)
}
