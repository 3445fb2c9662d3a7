package node

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sar/core/internal/freeport"
)

func listenIn(t *testing.T, p Ports) *Node {
	t.Helper()
	n, err := Listen(Config{World: 1, BindAddr: "127.0.0.1", Identity: identity(0, 1), Ports: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func freePair(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := freeport.Find()
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no two ports beside each other are free")
	return 0
}

// A range is used up from its first port on, and its end is an error.
func TestPortsOfARange(t *testing.T) {
	first := freePair(t)
	p := Ports{First: first, Last: first + 1}
	for k := range 2 {
		if got, want := listenIn(t, p).Endpoint().TCP, fmt.Sprintf("127.0.0.1:%d", first+k); got != want {
			t.Errorf("worker %d listens at %s, not at %s", k, got, want)
		}
	}
	_, err := Listen(Config{World: 1, BindAddr: "127.0.0.1", Identity: identity(0, 1), Ports: p})
	if err == nil || !strings.Contains(err.Error(), "SAR_PORT_RANGE") {
		t.Errorf("the third of two: %v", err)
	}
}

// Another worker's port is never taken, and one that somebody has claimed only
// where there is no other.
func TestPortsOfOthers(t *testing.T) {
	first := freePair(t)
	claim, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(claim) }()
	if err := errors.Join(unix.SetsockoptInt(claim, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(claim, &unix.SockaddrInet4{Port: first})); err != nil {
		t.Fatal(err)
	}
	p := Ports{First: first, Last: first + 1}
	for _, want := range []int{first + 1, first} {
		if got := listenIn(t, p).Endpoint().TCP; got != fmt.Sprintf("127.0.0.1:%d", want) {
			t.Errorf("listens at %s, not at port %d", got, want)
		}
	}
	if _, err := (Ports{First: first, Last: first, Avoid: first}).listen("127.0.0.1"); err == nil {
		t.Error("took the port to avoid")
	}
}

func TestRangesThatAreNone(t *testing.T) {
	for _, p := range []Ports{{First: 5}, {Last: 5}, {First: 6, Last: 5}, {First: -1, Last: 5}, {First: 1, Last: 65536}} {
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), "SAR_PORT_RANGE") {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if err := (Ports{}).Check(); err != nil {
		t.Error(err)
	}
}
