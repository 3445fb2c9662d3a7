package tcp_test

import (
	"net"
	"testing"

	"sar/core/transport"
	"sar/core/transport/conformance"
	"sar/core/transport/tcp"
)

// loopback joins two TCP connections.
func loopback(t testing.TB) (a, b net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if a, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func newPair(t testing.TB, a, b, linkBytes int) (la, lb transport.Link) {
	t.Helper()
	ca, cb := loopback(t)
	la, err := tcp.NewLink(ca, b, linkBytes)
	if err != nil {
		t.Fatal(err)
	}
	if lb, err = tcp.NewLink(cb, a, linkBytes); err != nil {
		t.Fatal(err)
	}
	return la, lb
}

func TestConformance(t *testing.T) { conformance.Run(t, "tcp", conformance.Pairs(newPair)) }
