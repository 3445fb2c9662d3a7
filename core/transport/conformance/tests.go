package conformance

import (
	"testing"
	"time"

	"sar/core/mem"
	"sar/core/transport"
)

// testFrames sends frames of every size between every pair, both ways at once.
func testFrames(t *testing.T, kind string, make Factory, ranks int) {
	links := make(t, ranks, smallLink)
	defer closeAll(t, links)
	max := links[0][1].MaxPayload()
	var sizes []int
	for range 3 {
		sizes = append(sizes, 0, 1, 63, 64, 65, min(4096, max), max, 0, max-1, 200)
	}
	var work []func() error
	payload := 0
	for _, n := range sizes {
		payload += n
	}
	for r, row := range links {
		for p, l := range row {
			if l == nil {
				continue
			}
			if l.Peer() != p || l.Properties().Kind != kind || l.MaxPayload() != max {
				t.Fatalf("link of rank %d to %d says peer %d, kind %q, max %d", r, p, l.Peer(), l.Properties().Kind, l.MaxPayload())
			}
			work = append(work, func() error { return sendAll(l, r, 0, sizes...) },
				func() error { return receiveAll(l, r, 0, sizes...) })
		}
	}
	all(t, work...)
	for _, row := range links {
		for _, l := range row {
			if l != nil {
				wantStats(t, l, len(sizes), payload)
			}
		}
	}
}

// testTwoFramesFit has both sides send two of the largest frames before either
// reads, whatever lay in the link before.
func testTwoFramesFit(t *testing.T, make Factory) {
	a, b := pair(t, make, smallLink)
	max := a.MaxPayload()
	i := 0
	for _, before := range []int{0, 1, 64, max / 2, max - 64, max} {
		must(t, send(a, 0, i, before), send(b, 1, i, before))
		must(t, receive(a, 0, i, before), receive(b, 1, i, before))
		must(t, sendAll(a, 0, i+1, max, max), sendAll(b, 1, i+1, max, max))
		must(t, receiveAll(a, 0, i+1, max, max), receiveAll(b, 1, i+1, max, max))
		i += 3
	}
}

// testWrap sends sizes that leave every kind of remainder at a ring's end.
func testWrap(t *testing.T, make Factory) {
	a, b := pair(t, make, 8<<10)
	max := a.MaxPayload()
	var sizes []int
	for i := range 5000 {
		sizes = append(sizes, i*37%(max+1))
	}
	all(t, func() error { return sendAll(a, 0, 0, sizes...) }, func() error { return receiveAll(b, 1, 0, sizes...) })
}

// testBackpressure sends far more than fits while nobody reads.
func testBackpressure(t *testing.T, make Factory) {
	a, b := pair(t, make, 4<<20)
	n := a.MaxPayload()
	frames := 128<<20/n + 1 // more than socket buffers grow to
	sent := func() uint64 { return a.Stats().SentFrames }
	var blocked, resumed uint64
	all(t, func() error {
		for i := range frames {
			if _, err := a.Reserve(n, soon()); err != nil {
				return err
			}
			if err := a.Commit(tagOf(0, 1, i), soon()); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		for last := uint64(0); ; last = blocked {
			time.Sleep(100 * time.Millisecond)
			if blocked = sent(); blocked == last {
				break
			}
		}
		for i := range frames {
			f, err := b.Next(soon())
			if err != nil {
				return err
			}
			if f.Tag != tagOf(0, 1, i) || len(f.Payload) != n {
				t.Errorf("frame %d has tag %+v and %d bytes", i, f.Tag, len(f.Payload))
			}
			b.Release()
		}
		resumed = sent()
		return nil
	})
	if blocked < 2 || blocked >= uint64(frames) || resumed < blocked {
		t.Errorf("%d of %d frames were sent before anyone read, %d after", blocked, frames, resumed)
	}
}

func testDeadlines(t *testing.T, make Factory) {
	a, b := pair(t, make, smallLink)
	// A link that writes in the background may end with the deadline of the
	// commit before, which is as much earlier as the loop below is fast.
	const wait, early = 60 * time.Millisecond, 20 * time.Millisecond
	check := func(start time.Time) {
		t.Helper()
		if d := time.Since(start); d < wait-early || d > wait+200*time.Millisecond {
			t.Errorf("a deadline of %v took %v", wait, d)
		}
	}
	for range 2 {
		start := time.Now()
		_, err := b.Next(start.Add(wait))
		wantTimeout(t, err, 0)
		check(start)
	}
	// The link is whole after a receive that was too late, and a deadline that
	// has passed takes what is there.
	must(t, send(a, 0, 7, 100), receive(b, 1, 7, 100))
	for {
		deadline := time.Now().Add(wait)
		_, err := a.Reserve(a.MaxPayload(), deadline)
		if err == nil {
			err = a.Commit(transport.Tag{}, deadline)
		}
		if err != nil {
			wantTimeout(t, err, 1)
			check(deadline.Add(-wait))
			return
		}
	}
}

func testMisuse(t *testing.T, make Factory) {
	a, b := pair(t, make, smallLink)
	if err := a.Commit(transport.Tag{}, soon()); err == nil {
		t.Error("Commit without Reserve went through")
	}
	for _, n := range []int{-1, a.MaxPayload() + 1} {
		if _, err := a.Reserve(n, soon()); err == nil {
			t.Errorf("Reserve(%d) went through, MaxPayload is %d", n, a.MaxPayload())
		}
	}
	b.Release() // nothing is held: no effect
	// A reservation that is not committed is forgotten by the next one.
	if _, err := a.Reserve(500, soon()); err != nil {
		t.Fatal(err)
	}
	must(t, sendAll(a, 0, 0, 10, 10))
	if _, err := b.Next(soon()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Next(soon()); err == nil {
		t.Error("Next went through with a frame not released")
	}
	b.Release()
	must(t, receive(b, 1, 1, 10))
}

// testWindow holds a link to the memory it was given.
func testWindow(t *testing.T, make Factory) {
	for _, linkBytes := range []int{4096, 10_000, 64 << 10, 1<<20 + 5} {
		before := mem.Stats()[mem.Window].Live
		links := make(t, 2, linkBytes)
		got := mem.Stats()[mem.Window].Live - before
		// Both ends live in this process, so twice a link's bytes at most.
		if got <= 0 || got > 2*int64(linkBytes) {
			t.Errorf("two links of %d bytes use %d", linkBytes, got)
		}
		if least := linkBytes/8 - 1200; links[0][1].MaxPayload() < least {
			t.Errorf("a link of %d bytes has frames of %d bytes only", linkBytes, links[0][1].MaxPayload())
		}
		closeAll(t, links)
	}
}
