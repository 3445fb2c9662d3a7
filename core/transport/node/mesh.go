package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sar/core/transport"
	"sar/core/trust"
)

// Mesh makes a link to every peer, in order of rank, nil for this rank. Every
// rank calls it with the same id, which no other mesh of the session has, and
// the same bytesPerLink: all the window memory that a link uses in this
// process, both directions together. Meshes of several ids may be made at once.
func (n *Node) Mesh(id uint32, bytesPerLink int, deadline time.Time) ([]transport.Link, error) {
	links := make([]transport.Link, n.cfg.World)
	err := n.each(deadline, 0, func(ctx context.Context, peer transport.Endpoint) (err error) {
		h := hello{Mesh: id, Bytes: uint64(bytesPerLink)}
		if peer.Rank < n.cfg.Rank {
			links[peer.Rank], err = n.dialLink(ctx, peer, h)
		} else {
			links[peer.Rank], err = n.acceptLink(ctx, peer, h)
		}
		return err
	})
	if err != nil {
		for _, l := range links {
			if l != nil {
				_ = l.Close()
			}
		}
		return nil, err
	}
	return links, nil
}

// Control makes one plain connection to every peer that wanted says yes to, nil for
// the others and for this rank. Both ranks of a pair must say the same. Every
// rank calls it; another call makes other connections. With an error come those that were
// made nevertheless, over which the caller can say why it gives up.
func (n *Node) Control(wanted func(peer int) bool, deadline time.Time) ([]net.Conn, error) {
	n.mu.Lock()
	h := hello{Purpose: trust.Control, Mesh: n.controls}
	n.controls++
	n.mu.Unlock()
	conns := make([]net.Conn, n.cfg.World)
	err := n.each(deadline, settleTime, func(ctx context.Context, peer transport.Endpoint) (err error) {
		if !wanted(peer.Rank) {
			return nil
		}
		if peer.Rank < n.cfg.Rank {
			conns[peer.Rank], err = n.dialControl(ctx, peer, h)
			return err
		}
		a, err := n.await(ctx, peer, func(a *arrival) bool { return a.Purpose == trust.Control && a.Mesh == h.Mesh })
		if err != nil {
			return err
		}
		if err = n.accept(ctx, a, h); err == nil {
			conns[peer.Rank] = a.conn
		}
		return err
	})
	return conns, err
}

// settleTime is how long connections for control that are under way go on after one has failed.
// Without it, a rank that finds another one dead would leave the rest waiting for both.
const settleTime = time.Second

// each runs f for every peer at once. The first error ends the others after settle.
func (n *Node) each(deadline time.Time, settle time.Duration, f func(context.Context, transport.Endpoint) error) error {
	n.mu.Lock()
	peers, closed := n.peers, n.closed
	n.mu.Unlock()
	if closed {
		return transport.ErrClosed
	}
	if peers == nil {
		return fmt.Errorf("the peers are not known yet: SetPeers comes first")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !deadline.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline)
		defer stop()
	}
	results := make(chan error, len(peers))
	for _, p := range peers {
		if p.Rank != n.cfg.Rank {
			go func() { results <- n.explain(ctx, p, f(ctx, p)) }()
		}
	}
	var first error
	for range len(peers) - 1 {
		if err := <-results; err != nil && first == nil {
			first = err
			if settle == 0 {
				cancel()
			} else {
				defer time.AfterFunc(settle, cancel).Stop()
			}
		}
	}
	return first
}

// explain makes one of the transport's errors of what went wrong with a peer.
func (n *Node) explain(ctx context.Context, peer transport.Endpoint, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		if trouble := n.Trouble(); trouble != nil {
			return fmt.Errorf("rank %d did not connect in time, and this rank cannot accept connections: %w", peer.Rank, trouble)
		}
		return &transport.TimeoutError{Op: "connect", Peer: peer.Rank}
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE),
		errors.Is(err, unix.ECONNREFUSED):
		return &transport.PeerGone{Peer: peer.Rank, Err: fmt.Errorf("while connecting: %w", err)}
	}
	return fmt.Errorf("connecting to rank %d on %s: %w", peer.Rank, peer.Host, err)
}

// Trouble is why connections could not be accepted a moment ago, nil where all could.
func (n *Node) Trouble() error {
	if err := n.tcp.Trouble(); err != nil || n.unix == nil {
		return err
	}
	return n.unix.Trouble()
}

// guard has the context's end interrupt whatever conn is blocked in. The
// returned function takes that off again.
func guard(ctx context.Context, conn net.Conn) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-done
		}
		_ = conn.SetDeadline(time.Time{})
	}
}

func (n *Node) dialLink(ctx context.Context, peer transport.Endpoint, h hello) (transport.Link, error) {
	usable, err := n.reaching(peer)
	if err != nil {
		return nil, err
	}
	for {
		l, err := n.dialOver(ctx, usable[0], peer, h)
		if err == nil || len(usable) == 1 || ctx.Err() != nil {
			return l, err
		}
		// Only what this transport cannot do is tried by the next.
		if r := (*refused)(nil); errors.As(err, &r) && r.answer != answerNext {
			return nil, err
		}
		usable = usable[1:]
	}
}

func (n *Node) dialOver(ctx context.Context, t *transport.Transport, peer transport.Endpoint, h hello) (transport.Link,
	error) {
	end, err := t.Offer(int(h.Bytes))
	if err != nil {
		return nil, err
	}
	h.Purpose = t.Purpose
	conn, err := n.dial(ctx, t.Network, peer, h, end.Descriptor())
	if err != nil {
		end.Drop()
		return nil, err
	}
	return n.join(ctx, end, conn, peer)
}

// join makes the link of a connection that both sides have agreed on.
func (n *Node) join(ctx context.Context, end transport.End, conn net.Conn, peer transport.Endpoint) (transport.Link,
	error) {
	release := guard(ctx, conn)
	l, err := end.Link(conn, n.endpoint, peer)
	release()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if err := ctx.Err(); err != nil { // while the link was made, which may have lost the connection
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// dialControl takes the Unix socket where a transport would, else the TCP port.
func (n *Node) dialControl(ctx context.Context, peer transport.Endpoint, h hello) (net.Conn, error) {
	usable, _ := n.reaching(peer)
	if slices.ContainsFunc(usable, func(t *transport.Transport) bool { return t.Network == "unix" }) {
		conn, err := n.dial(ctx, "unix", peer, h, -1)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		if r := (*refused)(nil); errors.As(err, &r) {
			return nil, err
		}
	}
	return n.dial(ctx, "tcp", peer, h, -1)
}

// await waits for a connection from a peer that wanted says yes to.
func (n *Node) await(ctx context.Context, peer transport.Endpoint, wanted func(*arrival) bool) (*arrival, error) {
	for {
		n.mu.Lock()
		for i, a := range n.parked {
			if a.Session == n.session && a.Rank == uint32(peer.Rank) && a.pinned(peer) && wanted(a) {
				n.parked = slices.Delete(n.parked, i, i+1)
				n.mu.Unlock()
				return a, nil
			}
		}
		changed, closed := n.changed, n.closed
		n.mu.Unlock()
		if closed {
			return nil, transport.ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// accept tells an arrival's dialer that it is welcome, or drops the arrival where it cannot.
func (n *Node) accept(ctx context.Context, a *arrival, h hello) error {
	release := guard(ctx, a.conn)
	h.Purpose, h.Answer, h.Session = a.Purpose, answerAccepted, a.Session
	h.Rank, h.World = uint32(n.cfg.Rank), uint32(n.cfg.World)
	err := sendHello(a.conn, h, -1)
	if release(); err != nil {
		a.drop()
	}
	return err
}

func (n *Node) acceptLink(ctx context.Context, peer transport.Endpoint, h hello) (transport.Link, error) {
	if _, err := n.reaching(peer); err != nil {
		return nil, err
	}
	for {
		a, err := n.await(ctx, peer, func(a *arrival) bool { return a.Purpose != trust.Control && a.Mesh == h.Mesh })
		if err != nil {
			return nil, err
		}
		end, no, err := n.judgeLink(a, h)
		if err == nil {
			if err = n.accept(ctx, a, h); err != nil {
				end.Drop()
				return nil, err
			}
			return n.join(ctx, end, a.conn, peer)
		}
		a.refuse(n, no, int(h.Bytes))
		if no != answerNext || !n.allowsAfter(n.place(a.Purpose)) {
			return nil, err
		}
	}
}

// allowsAfter tells whether a dialer may try another transport after that at a place of the list.
func (n *Node) allowsAfter(at int) bool {
	return slices.ContainsFunc(n.transports[at+1:],
		func(t *transport.Transport) bool { return slices.Contains(n.allowed, t) })
}

// judgeLink returns this side's end of the link that an arrival wants, or says what to
// answer and why.
func (n *Node) judgeLink(a *arrival, h hello) (transport.End, answer, error) {
	at := n.place(a.Purpose)
	t := n.transports[at]
	switch {
	case a.Bytes != h.Bytes:
		return nil, answerSize, n.refusal(int(a.Rank), h, hello{Bytes: a.Bytes, Answer: answerSize})
	case slices.Contains(n.allowed, t):
		end, err := t.Accept(a.fd, int(h.Bytes))
		closeDescriptor(a.fd)
		a.fd = -1
		return end, answerNext, err
	}
	no := answerOnly
	if n.allowsAfter(at) {
		no = answerNext
	}
	return nil, no, fmt.Errorf("%s is asked for and rank %d came over %s: use one transport setting on every worker",
		n.cfg.Transport, a.Rank, t.Name)
}
