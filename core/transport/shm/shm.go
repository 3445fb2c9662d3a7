// Package shm joins two processes of one host through shared memory. The
// sender fills the ring itself and the receiver reads the frame where it lies:
// what is sent is written once and read once.
//
// The segment is a sealed memfd that travelled over a Unix socket, so it has no
// name and vanishes with the last process that maps it, however that ends. The
// socket stays open for two things. A side that found nothing to do after a
// short spin sleeps on it, and the other side sends one byte to wake it (only
// if it sleeps: a busy link makes no system calls). And its end says that the
// peer is gone, which the kernel sees to if the peer could not.
//
// Large payloads that are not gathered from rows skip the ring where the two
// processes can read each other's memory (Meet): one copy in place of two.
package shm

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"sar/core/transport"
	"sar/core/transport/internal/ring"
)

// spin is how long a side looks before it sleeps. To sleep and be woken costs
// some 10 to 20 µs over both sides; processes share cores with each other's
// computation, so a side burns no more than that.
const spin = 20 * time.Microsecond

// A byte is copied once or twice, while both sides compute.
var properties = transport.Properties{Kind: "shm", Shared: true, ByteCost: 0.095}

// NewLink makes a link to peer over a segment that both sides have mapped, and
// owns conn, the connection it travelled over, and the segment from then on.
// creator is true on the side that made the segment. remote is what Meet found.
// Where it is not nil the link is a transport.Direct.
func NewLink(conn *net.UnixConn, seg *Segment, remote *Remote, peer int, creator bool) (transport.Link, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	state := ring.NewState(spin)
	out, in := seg.rings()
	if !creator {
		out, in = in, out
	}
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		pump(raw, state, peer)
	}()
	free := func() {
		_ = conn.Close() // the peer drains the ring in its own mapping
		<-pumped
		seg.Close()
	}
	l := ring.NewLink(properties, peer, ring.NewProducer(out, seg.max, peer, state, waker(raw, forData)),
		ring.NewConsumer(in, seg.max, peer, state, waker(raw, forSpace)), free)
	if remote != nil {
		return l.WithReader(remote.Read), nil
	}
	return l, nil
}

// What the peer's doorbell is rung for.
const (
	forData  = 1
	forSpace = 2
)

// waker returns a function that rings the peer's doorbell.
func waker(raw syscall.RawConn, what byte) func() {
	b := &what
	ring := func(fd uintptr) { doorbell(fd, b) }
	return func() { _ = raw.Control(ring) } // fails only once conn is closed
}

// hearing is how many rings are heard at once.
const hearing = 64

// pump turns the peer's doorbell and its end into wake-ups on this side.
func pump(raw syscall.RawConn, state *ring.State, peer int) {
	var b [hearing]byte
	for {
		n, err := hear(raw, b[:])
		if err != nil {
			if err == io.EOF || errors.Is(err, syscall.ECONNRESET) {
				err = nil // a peer that closed with a ring unheard resets the socket
			}
			state.Gone(&transport.PeerGone{Peer: peer, Err: err})
			return
		}
		// A ring that the socket had no room for may have been for either; then there
		// is more to read than this.
		all := n == len(b)
		if all || bytes.IndexByte(b[:n], forData) >= 0 {
			state.Data.Signal()
		}
		if all || bytes.IndexByte(b[:n], forSpace) >= 0 {
			state.Space.Signal()
		}
	}
}
