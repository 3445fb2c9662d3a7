package shm

import (
	"errors"
	"io"
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
	ra, rb := meet(t, ca, cb)
	la, err := NewLink(ca, sa, ra, b, true)
	if err != nil {
		t.Fatal(err)
	}
	if lb, err = NewLink(cb, sb, rb, a, false); err != nil {
		t.Fatal(err)
	}
	return la, lb
}

// meet lets both ends of a connection meet.
func meet(t testing.TB, ca, cb *net.UnixConn) (ra, rb *Remote) {
	t.Helper()
	other := make(chan error, 1)
	go func() {
		var err error
		rb, err = Meet(cb)
		other <- err
	}()
	ra, err := Meet(ca)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-other; err != nil {
		t.Fatal(err)
	}
	return ra, rb
}

func TestConformance(t *testing.T) {
	for _, cma := range []string{"1", "0"} {
		t.Run("cma="+cma, func(t *testing.T) {
			t.Setenv(EnvCMA, cma)
			conformance.Run(t, "shm", conformance.Pairs(newPair))
		})
	}
	t.Run("direct", func(t *testing.T) { conformance.RunDirect(t, conformance.Pairs(newPair)) })
}

// One side that may not read or be read is enough for both to use the ring.
func TestMeet(t *testing.T) {
	meetAs := func(edit func(greeting []byte)) (*Remote, byte) {
		ca, cb := sockets(t)
		defer func() { _ = ca.Close(); _ = cb.Close() }()
		theirs := make(chan byte, 1)
		go func() {
			var greeting [greetingBytes]byte
			answer := [1]byte{1}
			_, _ = io.ReadFull(cb, greeting[:])
			edit(greeting[:])
			_, _ = cb.Write(greeting[:])
			_, _ = cb.Write(answer[:])
			_, _ = io.ReadFull(cb, answer[:])
			theirs <- answer[0]
		}()
		r, err := Meet(ca)
		if err != nil {
			t.Fatal(err)
		}
		return r, <-theirs
	}
	if r, said := meetAs(func([]byte) {}); r == nil || said != 1 {
		t.Errorf("own memory cannot be read: %v, %d", r, said)
	}
	for name, edit := range map[string]func([]byte){
		"a peer that does not take part": func(b []byte) { put(b, 0, 0) },
		"nothing at the address":         func(b []byte) { put(b, 0, 8) },
		"another nonce there":            func(b []byte) { b[greetingBytes-1]++ },
	} {
		if r, said := meetAs(edit); r != nil || said != 0 {
			t.Errorf("%s: %v, %d", name, r, said)
		}
	}
}

// What a peer offers is read only where it is, and never taken for more.
func TestBadOffer(t *testing.T) {
	for name, at := range map[string]uint64{"nowhere": 64, "not user memory": 1 << 63} {
		t.Run(name, func(t *testing.T) {
			ca, cb := sockets(t)
			sa, sb := segments(t, 8192)
			_, remote := meet(t, ca, cb)
			l, err := NewLink(cb, sb, remote, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			out, _ := sa.rings()
			transport.PutDirectHeader(out[256+32:], transport.Tag{}, 16)
			put(out, 256+64, at)
			put(out, 256+64+8, 100)
			put(out, 0, 128)
			_, err = l.(transport.Direct).ReceiveInto(make([]byte, 100), time.Now().Add(time.Second))
			var gone *transport.PeerGone
			if !errors.As(err, &gone) {
				t.Errorf("got %v, want PeerGone", err)
			}
			_ = l.Close()
			_ = ca.Close()
			sa.Close()
		})
	}
}

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
			l, err := NewLink(cb, sb, nil, 0, false)
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
		l, err := NewLink(cb, sb, nil, 0, false)
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
