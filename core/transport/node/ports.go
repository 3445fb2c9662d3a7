package node

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// Ports are the TCP ports that a worker may listen on, both ends of the range
// included. The zero value is any port that the system gives.
type Ports struct {
	First, Last int
	Avoid       int // one of them that is another worker's; 0: none
}

const maxPort = 65535

// Check refuses a range that is none.
func (p Ports) Check() error {
	if p.First == 0 && p.Last == 0 || 1 <= p.First && p.First <= p.Last && p.Last <= maxPort {
		return nil
	}
	return fmt.Errorf("ports from %d to %d: give a first and a last one from 1 to %d, or neither "+
		"(SAR_PORT_RANGE=first-last)", p.First, p.Last, maxPort)
}

// listen takes the first port of the range that is free. One that a process of
// this host has claimed for a worker it is starting is taken only where there is
// no other.
func (p Ports) listen(addr string) (net.Listener, error) {
	if p.Last == 0 {
		return net.Listen("tcp", net.JoinHostPort(addr, "0"))
	}
	for _, claimed := range []bool{false, true} {
		for port := p.First; port <= p.Last; port++ {
			if port == p.Avoid || isClaimed(port) != claimed {
				continue
			}
			l, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
			if !errors.Is(err, unix.EADDRINUSE) {
				return l, err
			}
		}
	}
	return nil, fmt.Errorf("no port from %d to %d is free: a host needs one for each of its workers; widen "+
		"SAR_PORT_RANGE, or end what listens there",
		p.First, p.Last)
}

// isClaimed tells whether a process has bound the port, without listening
// there, as the Python package does with one that it has chosen
// (sar/distributed/network.py), or whether connections there are still closing.
func isClaimed(port int) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return errors.Is(unix.Bind(fd, &unix.SockaddrInet4{Port: port}), unix.EADDRINUSE)
}
