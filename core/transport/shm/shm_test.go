package shm

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sar/core/mem"
	"sar/core/transport"
	"sar/core/transport/conformance"
)

func sockets(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "pair")
		defer func() { _ = f.Close() }()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

func segments(t testing.TB, linkBytes int) (a, b *Segment) {
	t.Helper()
	a, fd, err := Create(linkBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if b, err = Open(fd, linkBytes); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func newPair(t testing.TB, a, b, linkBytes int) (la, lb transport.Link) {
	t.Helper()
	ca, cb := sockets(t)
	sa, sb := segments(t, linkBytes)
	la, err := NewLink(ca, sa, b, true)
	if err != nil {
		t.Fatal(err)
	}
	if lb, err = NewLink(cb, sb, a, false); err != nil {
		t.Fatal(err)
	}
	return la, lb
}

func TestConformance(t *testing.T) { conformance.Run(t, "shm", conformance.Pairs(newPair)) }

// TestOpenRefuses feeds Open what a peer must not send.
func TestOpenRefuses(t *testing.T) {
	before := mem.Stats()[mem.Window].Live
	try := func(what string, fd, linkBytes int) {
		t.Helper()
		defer func() { _ = unix.Close(fd) }()
		if _, err := Open(fd, linkBytes); err == nil {
			t.Errorf("%s was mapped", what)
		}
	}
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 8192); err != nil {
		t.Fatal(err)
	}
	try("a segment that can shrink", fd, 8192)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	dup, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	try("a file", dup, 8192)
	seg, fd, err := Create(16384)
	if err != nil {
		t.Fatal(err)
	}
	try("a segment of another size", fd, 8192)
	seg.Close()
	seg.Close()
	if now := mem.Stats()[mem.Window].Live; now != before {
		t.Errorf("%d bytes of window left", now-before)
	}
}

// TestDamage writes what a hostile peer could into the segment.
func TestDamage(t *testing.T) {
	damage := map[string]func(out, in []byte){
		"tail beyond the ring":  func(out, _ []byte) { put(out, 0, 1<<40) },
		"tail not aligned":      func(out, _ []byte) { put(out, 0, 100) },
		"tail backwards":        func(out, _ []byte) { put(out, 0, ^uint64(63)) },
		"no magic":              func(out, _ []byte) { put(out, 0, 64) },
		"wrap mark at start":    func(out, _ []byte) { put(out, 256+32, 'S'|'A'<<8|'R'<<16|'W'<<24); put(out, 0, 128) },
		"frame beyond the tail": func(out, _ []byte) { header(out, 1000); put(out, 0, 64) },
		"payload too large":     func(out, _ []byte) { header(out, 1<<20); put(out, 0, 128) },
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			ca, cb := sockets(t)
			sa, sb := segments(t, 8192)
			l, err := NewLink(cb, sb, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			f(sa.rings())
			_, err = l.Next(time.Now().Add(time.Second))
			var damaged *transport.FrameError
			if !errors.As(err, &damaged) || damaged.Peer != 0 {
				t.Errorf("got %v, want FrameError", err)
			}
			if _, err := l.Reserve(1, time.Now()); !errors.As(err, &damaged) {
				t.Errorf("Reserve after damage: %v", err)
			}
			_ = l.Close()
			_ = ca.Close()
			sa.Close()
		})
	}
	t.Run("head beyond the tail", func(t *testing.T) {
		ca, cb := sockets(t)
		sa, sb := segments(t, 8192)
		l, err := NewLink(cb, sb, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		_, in := sa.rings() // what l sends into
		put(in, 64, 1<<30)
		for range 10 {
			if _, err = l.Reserve(l.MaxPayload(), time.Now().Add(time.Second)); err == nil {
				err = l.Commit(transport.Tag{}, time.Time{})
			}
			if err != nil {
				break
			}
		}
		var damaged *transport.FrameError
		if !errors.As(err, &damaged) {
			t.Errorf("got %v, want FrameError", err)
		}
		_ = l.Close()
		_ = ca.Close()
		sa.Close()
	})
}

func put(b []byte, at int, v uint64) {
	for i := range 8 {
		b[at+i] = byte(v >> (8 * i))
	}
}

func header(ring []byte, n int) { transport.PutHeader(ring[256+32:], transport.Tag{}, n) }
