package tcp

import (
	"crypto/tls"
	"net"

	"sar/core/transport"
	"sar/core/trust"
)

// Name is what users ask for the transport by.
const Name = "tcp"

// Purpose is that of its connections.
const Purpose trust.Purpose = 1

// What a byte costs: measured within a host; over a network at 10 Gbit/s, during which
// four threads could compute. How many there are is not asked, since the bits of
// results would follow from it.
const (
	hostCost    = 0.7
	networkCost = 1.2 * 4
)

// Transport makes these links.
type Transport struct{}

var _ transport.Transport = Transport{}

// Name is "tcp", with TLS too.
func (Transport) Name() string { return Name }

// Purpose is that of a link.
func (Transport) Purpose() trust.Purpose { return Purpose }

// Network is the TCP port.
func (Transport) Network() string { return "tcp" }

// PassesDescriptor is false.
func (Transport) PassesDescriptor() bool { return false }

// Reach is nil: every worker listens at a port.
func (Transport) Reach(_, _ transport.Endpoint) error { return nil }

// Offer prepares nothing.
func (Transport) Offer(linkBytes int) (transport.End, error) { return end(linkBytes), nil }

// Accept prepares nothing.
func (Transport) Accept(_, linkBytes int) (transport.End, error) { return end(linkBytes), nil }

// end is the memory that a link may use.
type end int

func (end) Descriptor() int { return -1 }

func (e end) Link(conn net.Conn, own, peer transport.Endpoint) (transport.Link, error) {
	cost := networkCost
	if own.Host == peer.Host {
		cost = hostCost
	}
	return newLink(conn, peer.Rank, int(e), cost)
}

func (end) Drop() {}

func kindOf(conn net.Conn) string {
	if _, encrypted := conn.(interface{ ConnectionState() tls.ConnectionState }); encrypted {
		return "tls"
	}
	return "tcp"
}
