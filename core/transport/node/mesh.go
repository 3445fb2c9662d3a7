package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sar/core/transport"
	"sar/core/transport/shm"
	"sar/core/transport/tcp"
)

// Mesh makes a link to every peer, in order of rank, nil for this rank. Every
// rank calls it with the same id, which no other mesh of the session has, and
// the same bytesPerLink: all the window memory that a link uses in this
// process, both directions together. Meshes of several ids may be made at once.
func (n *Node) Mesh(id uint32, bytesPerLink int, deadline time.Time) ([]transport.Link, error) {
	links := make([]transport.Link, n.cfg.World)
	err := n.each(deadline, func(ctx context.Context, peer transport.Endpoint) (err error) {
		h := hello{kind: kindTCP, mesh: id, bytes: uint64(bytesPerLink)}
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

// Control makes one plain connection to every peer, nil for this rank. Every
// rank calls it; another call makes other connections.
func (n *Node) Control(deadline time.Time) ([]net.Conn, error) {
	n.mu.Lock()
	h := hello{kind: kindControl, mesh: n.controls}
	n.controls++
	n.mu.Unlock()
	conns := make([]net.Conn, n.cfg.World)
	err := n.each(deadline, func(ctx context.Context, peer transport.Endpoint) (err error) {
		if peer.Rank < n.cfg.Rank {
			conns[peer.Rank], err = n.dialControl(ctx, peer, h)
			return err
		}
		a, err := n.await(ctx, peer, func(a *arrival) bool { return a.kind == kindControl && a.mesh == h.mesh })
		if err != nil {
			return err
		}
		conns[peer.Rank] = a.conn
		return n.accepted(ctx, a, h)
	})
	if err != nil {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
		return nil, err
	}
	return conns, nil
}

// each runs f for every peer at once. The first error ends the others.
func (n *Node) each(deadline time.Time, f func(context.Context, transport.Endpoint) error) error {
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
			cancel()
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
		if trouble := n.trouble(); trouble != nil {
			return fmt.Errorf("rank %d did not connect in time, and this rank cannot accept connections: %w", peer.Rank, trouble)
		}
		return &transport.TimeoutError{Op: "connect", Peer: peer.Rank}
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNREFUSED):
		return &transport.PeerGone{Peer: peer.Rank, Err: fmt.Errorf("while connecting: %w", err)}
	}
	return fmt.Errorf("connecting to rank %d on %s: %w", peer.Rank, peer.Host, err)
}

// trouble is why connections cannot be accepted, nil where they can.
func (n *Node) trouble() error {
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

// sharesHost says whether shared memory can reach a peer.
func (n *Node) sharesHost(peer transport.Endpoint) bool {
	return n.cfg.Transport != TCP && peer.HostID == n.endpoint.HostID && peer.Unix != "" && n.unix != nil
}

func (n *Node) checkForced(peer transport.Endpoint) error {
	if n.cfg.Transport == Shm && !n.sharesHost(peer) {
		return fmt.Errorf("shared memory is asked for, but rank %d on %s (%s) and rank %d on %s (%s) do not share memory: use tcp or auto",
			n.cfg.Rank, n.endpoint.Host, n.endpoint.HostID, peer.Rank, peer.Host, peer.HostID)
	}
	return nil
}

func (n *Node) dialLink(ctx context.Context, peer transport.Endpoint, h hello) (transport.Link, error) {
	if err := n.checkForced(peer); err != nil {
		return nil, err
	}
	if n.sharesHost(peer) {
		l, err := n.dialShm(ctx, peer, h)
		if err == nil || n.cfg.Transport == Shm || ctx.Err() != nil {
			return l, err
		}
		// Only what shared memory cannot do is tried otherwise.
		if r := (*refused)(nil); errors.As(err, &r) && r.answer != answerNoShm {
			return nil, err
		}
	}
	conn, err := n.dial(ctx, "tcp", peer.TCP, peer, h, -1)
	if err != nil {
		return nil, err
	}
	l, err := tcp.NewLink(conn, peer.Rank, int(h.bytes))
	if err != nil {
		_ = conn.Close()
	}
	return l, err
}

func (n *Node) dialShm(ctx context.Context, peer transport.Endpoint, h hello) (transport.Link, error) {
	seg, fd, err := shm.Create(int(h.bytes))
	if err != nil {
		return nil, err
	}
	h.kind = kindShm
	conn, err := n.dial(ctx, "unix", peer.Unix, peer, h, fd)
	closeDescriptor(fd)
	if err != nil {
		seg.Close()
		return nil, err
	}
	l, err := shmLink(ctx, conn, seg, peer.Rank, true)
	if err != nil {
		seg.Close()
		_ = conn.Close()
	}
	return l, err
}

// shmLink makes the link of a connection that both sides have agreed on.
func shmLink(ctx context.Context, conn net.Conn, seg *shm.Segment, peer int, creator bool) (transport.Link, error) {
	unixConn := conn.(*net.UnixConn)
	release := guard(ctx, conn)
	remote, err := shm.Meet(unixConn)
	release()
	if err != nil {
		return nil, err
	}
	return shm.NewLink(unixConn, seg, remote, peer, creator)
}

func (n *Node) dialControl(ctx context.Context, peer transport.Endpoint, h hello) (net.Conn, error) {
	if n.sharesHost(peer) {
		conn, err := n.dial(ctx, "unix", peer.Unix, peer, h, -1)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		if r := (*refused)(nil); errors.As(err, &r) {
			return nil, err
		}
	}
	return n.dial(ctx, "tcp", peer.TCP, peer, h, -1)
}

// await waits for a connection from a peer that wanted says yes to.
func (n *Node) await(ctx context.Context, peer transport.Endpoint, wanted func(*arrival) bool) (*arrival, error) {
	for {
		n.mu.Lock()
		for i, a := range n.parked {
			if a.session == n.session && a.rank == uint32(peer.Rank) && a.pinned(peer) && wanted(a) {
				n.parked = append(n.parked[:i], n.parked[i+1:]...)
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

// accepted tells an arrival's dialer that it is welcome.
func (n *Node) accepted(ctx context.Context, a *arrival, h hello) error {
	release := guard(ctx, a.conn)
	defer release()
	h.kind, h.answer, h.session = a.kind, answerAccepted, a.session
	h.rank, h.world = uint32(n.cfg.Rank), uint32(n.cfg.World)
	return sendHello(a.conn, h, -1)
}

func (n *Node) acceptLink(ctx context.Context, peer transport.Endpoint, h hello) (transport.Link, error) {
	if err := n.checkForced(peer); err != nil {
		return nil, err
	}
	for {
		a, err := n.await(ctx, peer, func(a *arrival) bool { return a.kind != kindControl && a.mesh == h.mesh })
		if err != nil {
			return nil, err
		}
		seg, no, err := n.judgeLink(a, h)
		if err == nil {
			return n.finishLink(ctx, a, seg, h)
		}
		a.refuse(n, no, int(h.bytes))
		if no != answerNoShm || n.cfg.Transport == Shm {
			return nil, err
		}
	}
}

// judgeLink returns the mapped segment of an arrival that wants shared memory,
// or says what to answer and why.
func (n *Node) judgeLink(a *arrival, h hello) (*shm.Segment, answer, error) {
	switch {
	case a.bytes != h.bytes:
		return nil, answerSize, refusal(int(a.rank), h, hello{bytes: a.bytes, answer: answerSize})
	case a.kind == kindTCP && n.cfg.Transport == Shm:
		return nil, answerOnlyShm, fmt.Errorf("shared memory is asked for and rank %d came over tcp: use one transport setting on every worker", a.rank)
	case a.kind == kindTCP:
		return nil, answerAccepted, nil
	case n.cfg.Transport == TCP:
		return nil, answerNoShm, fmt.Errorf("tcp is asked for and rank %d came over shared memory", a.rank)
	}
	seg, err := shm.Open(a.fd, int(h.bytes))
	closeDescriptor(a.fd)
	a.fd = -1
	return seg, answerNoShm, err
}

// finishLink accepts an arrival and makes the link.
func (n *Node) finishLink(ctx context.Context, a *arrival, seg *shm.Segment, h hello) (l transport.Link, err error) {
	if err = n.accepted(ctx, a, h); err == nil {
		if seg != nil {
			l, err = shmLink(ctx, a.conn, seg, int(a.rank), false)
		} else {
			l, err = tcp.NewLink(a.conn, int(a.rank), int(h.bytes))
		}
	}
	if err != nil {
		if seg != nil {
			seg.Close()
		}
		a.drop()
		return nil, err
	}
	return l, nil
}
