package shm

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"sar/core/transport"
	"sar/core/trust"
)

// Name is what users ask for the transport by.
const Name = "shm"

// Purpose is that of its connections.
const Purpose trust.Purpose = 2

// Transport makes these links.
type Transport struct{}

var _ transport.Transport = Transport{}

// Name is "shm".
func (Transport) Name() string { return Name }

// Purpose is that of a link.
func (Transport) Purpose() trust.Purpose { return Purpose }

// Network is the Unix socket: descriptors travel over nothing else.
func (Transport) Network() string { return "unix" }

// PassesDescriptor is true: the segment has no name.
func (Transport) PassesDescriptor() bool { return true }

// Reach tells whether two workers share a host.
func (Transport) Reach(own, peer transport.Endpoint) error {
	if own.HostID != peer.HostID || own.Unix == "" || peer.Unix == "" {
		return fmt.Errorf("rank %d on %s (%s) and rank %d on %s (%s) do not share memory",
			own.Rank, own.Host, own.HostID, peer.Rank, peer.Host, peer.HostID)
	}
	return nil
}

// Offer makes a segment.
func (Transport) Offer(linkBytes int) (transport.End, error) {
	seg, fd, err := Create(linkBytes)
	if err != nil {
		return nil, err
	}
	return &end{seg: seg, fd: fd, creator: true}, nil
}

// Accept maps the segment that came.
func (Transport) Accept(fd, linkBytes int) (transport.End, error) {
	seg, err := Open(fd, linkBytes)
	if err != nil {
		return nil, err
	}
	return &end{seg: seg, fd: -1}, nil
}

type end struct {
	seg     *Segment
	fd      int
	creator bool
}

func (e *end) Descriptor() int { return e.fd }

// Link finds out first how the two processes can reach each other's memory.
func (e *end) Link(conn net.Conn, _, peer transport.Endpoint) (transport.Link, error) {
	e.closeDescriptor()
	socket := conn.(*net.UnixConn)
	remote, err := Meet(socket)
	if err == nil {
		var l transport.Link
		if l, err = NewLink(socket, e.seg, remote, peer.Rank, e.creator); err == nil {
			return l, nil
		}
	}
	e.seg.Close()
	return nil, err
}

func (e *end) Drop() {
	e.closeDescriptor()
	e.seg.Close()
}

func (e *end) closeDescriptor() {
	if e.fd >= 0 {
		_ = unix.Close(e.fd)
		e.fd = -1
	}
}
