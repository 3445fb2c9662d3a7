package tcp

import (
	"crypto/tls"
	"net"

	"sar/core/transport"
)

// Transport makes these links, with TLS and without.
var Transport = &transport.Transport{
	Name: "tcp", Purpose: 1, Network: "tcp",
	Reach:  func(_, _ transport.Endpoint) error { return nil }, // every worker listens at a port
	Offer:  func(linkBytes int) (transport.End, error) { return end(linkBytes), nil },
	Accept: func(_, linkBytes int) (transport.End, error) { return end(linkBytes), nil },
}

// What a byte costs: measured within a host; over a network at 10 Gbit/s, during which
// four threads could compute. How many there are is not asked, since the bits of
// results would follow from it.
const (
	hostCost    = 0.7
	networkCost = 1.2 * 4
)

// end is the memory that a link may use.
type end int

func (end) Descriptor() int { return -1 }
func (end) Drop()           {}

func (e end) Link(conn net.Conn, own, peer transport.Endpoint) (transport.Link, error) {
	return newLink(conn, peer.Rank, int(e), ByteCost(own, peer))
}

// ByteCost is what a byte costs between two workers.
func ByteCost(own, peer transport.Endpoint) float64 {
	if own.Host == peer.Host {
		return hostCost
	}
	return networkCost
}

func kindOf(conn net.Conn) string {
	if _, encrypted := conn.(interface{ ConnectionState() tls.ConnectionState }); encrypted {
		return "tls"
	}
	return "tcp"
}
