package shm

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"sar/core/transport"
)

// Transport makes these links. Connections come to the Unix socket, as descriptors travel
// over nothing else; the segment has no name.
var Transport = &transport.Transport{
	Name: "shm", Purpose: 2, Network: "unix", PassesDescriptor: true, Reach: reach, Offer: offer, Accept: accept,
}

func reach(own, peer transport.Endpoint) error {
	if own.HostID != peer.HostID || own.Unix == "" || peer.Unix == "" {
		return fmt.Errorf("rank %d on %s (%s) and rank %d on %s (%s) do not share memory",
			own.Rank, own.Host, own.HostID, peer.Rank, peer.Host, peer.HostID)
	}
	return nil
}

func offer(linkBytes int) (transport.End, error) {
	seg, fd, err := Create(linkBytes)
	return &end{seg: seg, fd: fd, creator: true}, err
}

func accept(fd, linkBytes int) (transport.End, error) {
	seg, err := Open(fd, linkBytes)
	return &end{seg: seg, fd: -1}, err
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
