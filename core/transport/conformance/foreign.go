package conformance

import (
	"errors"
	"net"
	"sync"
	"testing"

	"sar/core/transport"
	"sar/core/transport/foreign"
	"sar/core/trust"
)

func identity(t testing.TB, rank, world int, token string) *trust.Identity {
	t.Helper()
	job, err := trust.NewJob(token)
	if err != nil {
		t.Fatal(err)
	}
	id, err := trust.NewIdentity(job, rank, world, false)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// connections are the two ends of one over the loopback.
func connections(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if a, err = net.Dial("tcp", l.Addr().String()); err == nil {
		b, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

// Join joins two ranks over a library; tokens are what each has for the job's.
func Join(t testing.TB, p foreign.Provider, a, b, linkBytes int, tokens [2]string) (links [2]transport.Link,
	errs [2]error) {
	t.Helper()
	ca, cb := connections(t)
	var wg sync.WaitGroup
	make := func(i, rank, peer int, conn net.Conn) {
		o, err := foreign.Open(p, identity(t, rank, 16, tokens[i]))
		if err != nil {
			t.Error(err)
			return
		}
		defer o.Close()
		prepare := o.Transport().Offer
		if i == 1 {
			prepare = func(n int) (transport.End, error) { return o.Transport().Accept(-1, n) }
		}
		end, err := prepare(linkBytes)
		if err != nil {
			t.Error(err)
			return
		}
		if links[i], errs[i] = end.Link(conn, transport.Endpoint{Rank: rank},
			transport.Endpoint{Rank: peer}); errs[i] != nil {
			_ = conn.Close()
		}
	}
	wg.Go(func() { make(0, a, b, ca) })
	wg.Go(func() { make(1, b, a, cb) })
	wg.Wait()
	return links, errs
}

// Over is a Factory of links over a library.
func Over(p foreign.Provider) Factory {
	const token = "the token of the jobs of these tests"
	return Pairs(func(t testing.TB, a, b, linkBytes int) (la, lb transport.Link) {
		links, errs := Join(t, p, a, b, linkBytes, [2]string{token, token})
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		return links[0], links[1]
	})
}
