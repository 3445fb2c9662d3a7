// Package conformance is the test suite that every implementation of
// transport.Link passes. An implementation's test calls Run with a way to make
// meshes.
package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"sar/core/mem"
	"sar/core/transport"
)

// Factory joins size ranks within this process: links[rank][peer], nil for the
// rank itself. linkBytes is the memory each link may use. The suite closes the
// links.
type Factory func(t testing.TB, size, linkBytes int) [][]transport.Link

// Pairs makes a Factory of a function that joins two ranks.
func Pairs(join func(t testing.TB, a, b, linkBytes int) (la, lb transport.Link)) Factory {
	return func(t testing.TB, size, linkBytes int) [][]transport.Link {
		links := make([][]transport.Link, size)
		for r := range links {
			links[r] = make([]transport.Link, size)
		}
		for a := range size {
			for b := a + 1; b < size; b++ {
				links[a][b], links[b][a] = join(t, a, b, linkBytes)
			}
		}
		return links
	}
}

const (
	smallLink = 64 << 10
	patience  = 20 * time.Second // a deadline that no passing test reaches
)

// Run runs the suite.
func Run(t *testing.T, kind string, make Factory) {
	t.Run("Frames", func(t *testing.T) {
		for _, ranks := range []int{2, 3, 5} {
			t.Run(fmt.Sprintf("ranks=%d", ranks), func(t *testing.T) { testFrames(t, kind, make, ranks) })
		}
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, Factory)
	}{
		{"TwoFramesFit", testTwoFramesFit},
		{"Wrap", testWrap},
		{"Backpressure", testBackpressure},
		{"Deadlines", testDeadlines},
		{"FailWakes", testFailWakes},
		{"CloseWakes", testCloseWakes},
		{"CloseDrains", testCloseDrains},
		{"CloseWithUnread", testCloseWithUnread},
		{"Misuse", testMisuse},
		{"NothingLeft", testNothingLeft},
		{"Window", testWindow},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, make) })
	}
}

func soon() time.Time { return time.Now().Add(patience) }

func tagOf(from, to, i int) transport.Tag {
	return transport.Tag{
		Comm: uint16(1000*from + to), Seq: 1<<40 + uint64(i), Kind: uint8(i), Dir: uint8(from),
		Content: 0xabcd0000 + uint32(i), Flags: uint16(0xff00 + i), Round: uint16(i), Chunk: 0xfffffff0 + uint32(i&7),
	}
}

func fill(p []byte, seed int) {
	x := uint32(seed)*2654435761 + 12345
	for i := range p {
		x = x*1664525 + 1013904223
		p[i] = byte(x >> 24)
	}
}

func checkFill(p []byte, seed int) error {
	x := uint32(seed)*2654435761 + 12345
	for i := range p {
		x = x*1664525 + 1013904223
		if p[i] != byte(x>>24) {
			return fmt.Errorf("byte %d of %d is %d, want %d", i, len(p), p[i], byte(x>>24))
		}
	}
	return nil
}

func aligned(p []byte) error {
	if len(p) > 0 && uintptr(unsafe.Pointer(&p[0]))%transport.Align != 0 {
		return fmt.Errorf("payload at %p is not aligned to %d bytes", &p[0], transport.Align)
	}
	return nil
}

// send sends frame i from a rank to its peer, n bytes.
func send(l transport.Link, from, i, n int) error {
	p, err := l.Reserve(n, soon())
	if err != nil {
		return fmt.Errorf("frame %d, Reserve(%d): %w", i, n, err)
	}
	if len(p) != n {
		return fmt.Errorf("Reserve(%d) gave %d bytes", n, len(p))
	}
	if err := aligned(p); err != nil {
		return err
	}
	fill(p, i+from)
	if err := l.Commit(tagOf(from, l.Peer(), i), soon()); err != nil {
		return fmt.Errorf("frame %d, Commit: %w", i, err)
	}
	return nil
}

// receive takes frame i from the peer and checks everything about it.
func receive(l transport.Link, self, i, n int) error {
	f, err := l.Next(soon())
	if err != nil {
		return fmt.Errorf("frame %d, Next: %w", i, err)
	}
	defer l.Release()
	if want := tagOf(l.Peer(), self, i); f.Tag != want {
		return fmt.Errorf("frame %d has tag %+v, want %+v", i, f.Tag, want)
	}
	if len(f.Payload) != n {
		return fmt.Errorf("frame %d has %d bytes, want %d", i, len(f.Payload), n)
	}
	if err := aligned(f.Payload); err != nil {
		return err
	}
	if err := checkFill(f.Payload, i+l.Peer()); err != nil {
		return fmt.Errorf("frame %d: %w", i, err)
	}
	return nil
}

// sendAll sends frames of these sizes, the first of which is number first, and receiveAll takes them.
func sendAll(l transport.Link, from, first int, sizes ...int) error {
	return each(send, l, from, first, sizes)
}

func receiveAll(l transport.Link, self, first int, sizes ...int) error {
	return each(receive, l, self, first, sizes)
}

func each(do func(l transport.Link, self, i, n int) error, l transport.Link, self, first int, sizes []int) error {
	for i, n := range sizes {
		if err := do(l, self, first+i, n); err != nil {
			return err
		}
	}
	return nil
}

// must fails a test with the first of its errors.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := cmp.Or(errs...); err != nil {
		t.Fatal(err)
	}
}

// wantStats holds statistics against frames, payload bytes together, each way.
func wantStats(t testing.TB, l transport.Link, frames, payload int) {
	t.Helper()
	n, bytes := uint64(frames), uint64(payload)
	want := transport.LinkStats{
		SentFrames: n, SentPayload: bytes, SentBytes: bytes + n*transport.HeaderSize,
		RecvFrames: n, RecvPayload: bytes, RecvBytes: bytes + n*transport.HeaderSize,
	}
	if l.Stats() != want {
		t.Errorf("stats %+v, want %+v", l.Stats(), want)
	}
}

// all runs the functions at once and reports every error.
func all(t testing.TB, fs ...func() error) {
	t.Helper()
	errs := make(chan error, len(fs))
	for _, f := range fs {
		go func() { errs <- f() }()
	}
	for range fs {
		select {
		case err := <-errs:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * patience):
			buf := make([]byte, 1<<16)
			t.Fatalf("stuck:\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func closeAll(t testing.TB, links [][]transport.Link) {
	t.Helper()
	for _, row := range links {
		for _, l := range row {
			if l == nil {
				continue
			}
			if err := l.Close(); err != nil {
				t.Errorf("closing the link to rank %d: %v", l.Peer(), err)
			}
		}
	}
}

// pair makes two ranks and closes them when the test ends.
func pair(t *testing.T, make Factory, linkBytes int) (a, b transport.Link) {
	t.Helper()
	links := make(t, 2, linkBytes)
	t.Cleanup(func() { closeAll(t, links) })
	return links[0][1], links[1][0]
}

func wantPeerGone(t *testing.T, err error, peer int) {
	t.Helper()
	var gone *transport.PeerGone
	if !errors.As(err, &gone) || gone.Peer != peer {
		t.Fatalf("got %v, want PeerGone of rank %d", err, peer)
	}
}

func wantTimeout(t *testing.T, err error, peer int) {
	t.Helper()
	var late *transport.TimeoutError
	if !errors.As(err, &late) || late.Peer != peer || !late.Timeout() {
		t.Fatalf("got %v, want TimeoutError of rank %d", err, peer)
	}
}

// usage is what a process must have back after links are closed.
type usage struct {
	window          int64
	goroutines, fds int
}

func measure(t testing.TB) usage {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return usage{mem.Stats()[mem.Window].Live, runtime.NumGoroutine(), len(entries)}
}

// settle waits until usage is no more than before, and fails if it stays.
func settle(t testing.TB, before usage) {
	t.Helper()
	var now usage
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		now = measure(t)
		if now.window == before.window && now.goroutines <= before.goroutines && now.fds <= before.fds {
			return
		}
	}
	t.Errorf("after Close %+v, before %+v", now, before)
}
