package trust

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openGate(t *testing.T, id *Identity) (*Gate, <-chan Claim) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proven := make(chan Claim, 64)
	g := NewGate(id, links, func(c net.Conn, claim Claim) {
		proven <- claim
		_ = c.Close()
	}, l)
	t.Cleanup(func() { _ = g.Close() })
	return g, proven
}

func knock(t *testing.T, g *Gate) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", g.listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// prove knocks until it is let in, as workers do.
func prove(t *testing.T, g *Gate, id *Identity, proven <-chan Claim) {
	t.Helper()
	for range 100 {
		if _, err := id.Dial(knock(t, g), Target{Purpose: Control}); err == nil {
			if claim := <-proven; claim.Rank != id.Rank {
				t.Errorf("rank %d came as %+v", id.Rank, claim)
			}
			return
		}
	}
	t.Error("not let in")
}

// Silent connections are bounded, whoever opens them, and keep nobody out.
func TestGateUnderSiege(t *testing.T) {
	us, them := identity(t, token, 0, 2, false), identity(t, token, 1, 2, false)
	g, proven := openGate(t, us)
	before := runtime.NumGoroutine()
	var silent []net.Conn
	for i := range 500 {
		silent = append(silent, knock(t, g))
		if i%100 == 99 {
			prove(t, g, them, proven)
		}
	}
	g.mu.Lock()
	unproven := len(g.unproven)
	g.mu.Unlock()
	// Goroutines of connections that were closed for others are about to end.
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+g.limit+10 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if unproven > g.limit || runtime.NumGoroutine() > before+g.limit+10 {
		t.Errorf("%d unproven connections, %d goroutines", unproven, runtime.NumGoroutine()-before)
	}
	if _, err := silent[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest was answered")
	}
	// One that has begun to prove itself stays before those that say nothing.
	begun := knock(t, g)
	m := them.begin(helloMagic, uint8(Control), false)
	hello := m.encode()
	if _, err := begun.Write(hello); err != nil {
		t.Fatal(err)
	}
	challenge := make([]byte, helloSize)
	if _, err := io.ReadFull(begun, challenge); err != nil {
		t.Fatal(err)
	}
	for range 2 * g.limit {
		knock(t, g)
	}
	prove(t, g, them, proven) // so all before it have been accepted
	if _, err := begun.Write(them.dialerProof(hello, challenge)); err != nil {
		t.Fatal(err)
	}
	select {
	case claim := <-proven:
		if claim.Rank != 1 {
			t.Errorf("%+v", claim)
		}
	case <-time.After(5 * time.Second):
		t.Error("one that had begun to prove itself was dropped for those that say nothing")
	}
}

// Who is evicted: of those who say nothing, the oldest from where most come.
func TestEviction(t *testing.T) {
	g := &Gate{}
	for _, n := range []newcomer{
		{source: "friend", spoke: true}, {source: "one"}, {source: "flood"}, {source: "flood"},
		{source: "flood", spoke: true},
	} {
		a, b := net.Pipe()
		t.Cleanup(func() { _, _ = a.Close(), b.Close() })
		n.conn = a
		g.unproven = append(g.unproven, &n)
	}
	order := append([]*newcomer(nil), g.unproven...)
	for _, i := range []int{2, 1, 3, 0, 4} {
		g.evictLocked()
		for _, n := range g.unproven {
			if n == order[i] {
				t.Fatalf("number %d is still there", i)
			}
		}
		if _, err := order[i].conn.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("number %d is open: %v", i, err)
		}
	}
	g.evictLocked() // nobody left
}

// A process without descriptors says so, makes room, and goes on when there are some.
func TestGateWithoutDescriptors(t *testing.T) {
	us, them := identity(t, token, 0, 2, false), identity(t, token, 1, 2, false)
	g, proven := openGate(t, us)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	waiting := knock(t, g) // made before, accepted when there is no descriptor left
	_ = waiting
	var held []int
	release := func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
		held = nil
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	}
	defer release()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: old.Max}); err != nil {
		t.Skip(err)
	}
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		held = append(held, fd)
	}
	_ = unix.Close(held[len(held)-1])
	held = held[:len(held)-1]
	c, err := net.Dial("tcp", g.listeners[0].Addr().String()) // takes the last one
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	trouble := g.Trouble()
	for end := time.Now().Add(5 * time.Second); trouble == nil && time.Now().Before(end); trouble = g.Trouble() {
		// The gate makes room by dropping who waits; keep the place taken.
		if fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			held = append(held, fd)
		}
		time.Sleep(time.Millisecond)
	}
	release()
	if trouble == nil || !errors.Is(trouble, unix.EMFILE) {
		t.Fatalf("trouble: %v", trouble)
	}
	for _, words := range []string{"128", "ulimit -n"} {
		if !strings.Contains(trouble.Error(), words) {
			t.Errorf("%q is not in: %v", words, trouble)
		}
	}
	prove(t, g, them, proven)
	g.mu.Lock()
	g.troubled = g.troubled.Add(-recentTime)
	g.mu.Unlock()
	if err := g.Trouble(); err != nil {
		t.Errorf("still in trouble: %v", err)
	}
}
