package transport

import (
	"net"

	"sar/core/trust"
)

// Transport makes links of one kind. To add one: describe it in a package of its own, have
// its links pass the conformance suite, and enter it in the list of package node. The dialer
// of a pair takes the first of the list that both workers may use and that reaches the peer,
// and the next one where the listener says that it cannot.
type Transport struct {
	Name    string        // what a user asks for it by
	Purpose trust.Purpose // what its connections say that they are for, in proof and hello; no other's
	Network string        // the socket that they come to: "tcp" or "unix"
	// PassesDescriptor: a file descriptor travels with the dialer's hello.
	PassesDescriptor bool
	// Reach says why two workers cannot be joined, nil where they can.
	Reach func(own, peer Endpoint) error
	// Offer prepares the dialer's end of a link that may use linkBytes, Accept the
	// listener's. fd is the descriptor that came, which stays the caller's, or -1.
	Offer  func(linkBytes int) (End, error)
	Accept func(fd, linkBytes int) (End, error)
}

// End is an end of a link whose connection has yet to be made. Link or Drop ends it.
type End interface {
	// Descriptor is the one that travels with the hello, -1 where none does.
	Descriptor() int
	// Link makes the link over conn, which it owns unless it fails. Both ends call it at
	// the same time. The caller bounds the time by a deadline of conn.
	Link(conn net.Conn, own, peer Endpoint) (Link, error)
	// Drop frees what was prepared.
	Drop()
}

// Properties are what a link tells to those who choose how to use it. Both ends tell the same.
type Properties struct {
	Kind string // for statistics: "inproc", "shm", "tcp" or "tls"
	// Shared says that the ends share memory: what is sent is there at once, and no network
	// has to be kept busy while the receiver works.
	Shared bool
	// ByteCost is the time that a byte takes, in nanoseconds of computation that could be
	// done in place of it, copies at both ends included.
	ByteCost float64
}
