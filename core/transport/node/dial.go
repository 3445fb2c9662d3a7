package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"sar/core/internal/limits"
	"sar/core/transport"
	"sar/core/trust"
)

// redialTime is between two attempts to reach a peer that has no room for more
// connections at the moment.
const redialTime = 20 * time.Millisecond

// reach connects to a peer and proves this rank's identity, until ctx ends. Only
// what may pass is tried again: a listener that is busy with strangers.
func (n *Node) reach(ctx context.Context, network, addr string, peer transport.Endpoint, h hello) (net.Conn, error) {
	for {
		conn, err := n.tryReach(ctx, network, addr, peer, h)
		if err == nil || ctx.Err() != nil || !passing(err) {
			return conn, limits.Explain(err)
		}
		select {
		case <-time.After(redialTime):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// passing tells whether err is of a connection that the listener has dropped or
// had no room for.
func passing(err error) bool {
	var late net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) ||
		errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EAGAIN) || errors.As(err, &late) && late.Timeout()
}

func (n *Node) tryReach(ctx context.Context, network, addr string, peer transport.Endpoint, h hello) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, trust.ProofTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	release := guard(ctx, conn)
	defer release()
	proven, err := n.cfg.Identity.Dial(conn, trust.Target{Purpose: h.Purpose, Peer: peer.Rank, Mesh: h.Mesh,
		Certificate: peer.Certificate})
	if err == nil {
		if err = ctx.Err(); err == nil {
			return proven, nil
		}
	}
	_ = conn.Close()
	return nil, err
}

// dial reaches a peer, says hello and waits for its answer.
func (n *Node) dial(ctx context.Context, network string, peer transport.Endpoint, h hello, fd int) (net.Conn, error) {
	n.mu.Lock()
	h.Session = n.session
	n.mu.Unlock()
	h.Rank, h.World = uint32(n.cfg.Rank), uint32(n.cfg.World)
	addr := peer.TCP
	if network == "unix" {
		addr = peer.Unix
	}
	conn, err := n.reach(ctx, network, addr, peer, h)
	if err != nil {
		return nil, err
	}
	release := guard(ctx, conn)
	defer release()
	got, err := hello{}, sendHello(conn, h, fd)
	if err == nil {
		got, _, err = receiveHello(conn)
	}
	if err == nil {
		err = n.check(peer.Rank, h, got)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// refused is a listener's no.
type refused struct {
	answer
	error
}

func (n *Node) check(peer int, said, got hello) error {
	if got.Answer != answerAccepted {
		return &refused{got.Answer, n.refusal(peer, said, got)}
	}
	if got.Session != said.Session || got.Mesh != said.Mesh || got.Rank != uint32(peer) || got.Version != helloVersion {
		return fmt.Errorf("the answer is not of rank %d in this run", peer)
	}
	return nil
}
