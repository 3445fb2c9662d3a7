package exchange

// Links of ranks of one process, tcp over connections that carry so many bytes a
// second and no more: a slow network for tests of what overlaps with what.

import (
	"net"
	"sync"
	"time"

	"sar/core/transport"
	"sar/core/transport/tcp"
)

// port is what a worker sends through, all its links together: a token bucket.
// One that was left alone for long lets burst bytes through at once; writes take
// their bytes in pieces, as a network does in packets.
type port struct {
	perMiB time.Duration
	mu     sync.Mutex
	next   time.Time // when the bytes that were taken have left
}

const (
	burst = 64 << 10
	piece = 16 << 10
)

// newPort makes a port for rate bytes a second.
func newPort(rate float64) *port {
	return &port{perMiB: time.Duration(float64(time.Second) * (1 << 20) / rate)}
}

// take waits until n bytes may leave.
func (p *port) take(n int) {
	cost := func(n int) time.Duration { return time.Duration(int64(p.perMiB) * int64(n) >> 20) }
	p.mu.Lock()
	if full := time.Now().Add(-cost(burst)); p.next.Before(full) {
		p.next = full
	}
	p.next = p.next.Add(cost(n))
	due := p.next
	p.mu.Unlock()
	time.Sleep(time.Until(due))
}

// shapedConn sends through a port.
type shapedConn struct {
	net.Conn
	port *port
}

// Write blocks until the port has let all of b through.
func (c *shapedConn) Write(b []byte) (done int, err error) {
	for done < len(b) {
		n := min(piece, len(b)-done)
		c.port.take(n)
		if n, err = c.Conn.Write(b[done : done+n]); err != nil {
			return done + n, err
		}
		done += n
	}
	return done, nil
}

// shapedPair joins ranks a and b and returns a's end and b's end. linkBytes is the
// memory of each end; each sends through the port given for it. Nothing of it
// is the operating system's, so that it runs under the clock of testing/synctest.
func shapedPair(a, b, linkBytes int, pa, pb *port) (la, lb transport.Link, err error) {
	ca, cb := net.Pipe()
	if la, err = tcp.NewLink(&shapedConn{ca, pa}, b, linkBytes); err != nil {
		return nil, nil, err
	}
	lb, err = tcp.NewLink(&shapedConn{cb, pb}, a, linkBytes)
	return la, lb, err
}
