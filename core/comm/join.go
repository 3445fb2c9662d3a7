package comm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"sar/core/transport"
	"sar/core/transport/node"
	"sar/core/trust"
)

// lingerTime is how long a rank 0 that gives up stays to tell the others.
const lingerTime = time.Second

// Join meets the other workers and returns when all are there: rank 0 listens
// at the master address and the others come to it. World 1 opens no socket.
// Errors are *RendezvousError, and the ranks that came all get the same text.
func Join(cfg Config) (*Group, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := checkDescriptors(cfg); err != nil {
		return nil, err
	}
	if cfg.World == 1 {
		host, _ := os.Hostname()
		return newGroup(cfg, []transport.Endpoint{{Host: host, PID: os.Getpid()}}, nil), nil
	}
	at, id, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	n, m, err := listen(cfg, at, id)
	if err != nil {
		return nil, err
	}
	end := n.Endpoint()
	listening.Store(end.TCP, true)
	g, err := join(cfg, id, n, m, end)
	if err != nil {
		listening.Delete(end.TCP)
		_ = n.Close()
		return nil, err
	}
	g.onClose = append(g.onClose, func() { listening.Delete(end.TCP) })
	return g, nil
}

// prepare finds where this rank listens, and who it is.
func prepare(cfg Config) (place, *trust.Identity, error) {
	at, err := locate(cfg)
	if err != nil {
		return at, nil, rendezvousf("rank %d: %v", cfg.Rank, err)
	}
	id, err := identify(cfg, at)
	return at, id, err
}

// listen opens this rank's node, and at rank 0 the rendezvous, which is at the same port.
func listen(cfg Config, at place, id *trust.Identity) (*node.Node, *master, error) {
	c := node.Config{Rank: cfg.Rank, World: cfg.World, BindAddr: at.data, Advertise: cfg.Advertise,
		Transport: cfg.Transport, Identity: id, Ports: cfg.Ports}
	var m *master
	var err error
	if cfg.Rank == 0 {
		if c.Listeners, err = listenMaster(cfg, at, id); err != nil {
			return nil, nil, err
		}
		if m, err = newMaster(cfg); err != nil {
			closeAll(c.Listeners)
			return nil, nil, err
		}
		c.Calls = m.server.take
	} else if slices.Contains(at.found, at.data) { // rank 0 is on this host and may not listen yet
		c.Ports.Avoid = cfg.MasterPort
	}
	n, err := node.Listen(c)
	if err != nil {
		if m != nil {
			m.server.stop()
		}
		return nil, nil, rendezvousf("rank %d: %v", cfg.Rank, err)
	}
	return n, m, nil
}

// join meets the others, who are told end to reach n. m is rank 0's alone.
func join(cfg Config, id *trust.Identity, n *node.Node, m *master, end transport.Endpoint) (*Group, error) {
	deadline := time.Now().Add(cfg.Start)
	own := joinRequest{Version: protocol, Rank: cfg.Rank, World: cfg.World, Endpoint: end}
	stop := func() {}
	rand.Read(own.Nonce[:])
	var (
		reply joinReply
		err   error
	)
	if m != nil {
		stop = m.server.stop
		if err = m.begin(n, own); err == nil {
			reply, err = m.wait(cfg)
		}
		if err != nil {
			m.linger(lingerTime)
		}
	} else {
		c := connect(net.JoinHostPort(cfg.MasterAddr, fmt.Sprint(cfg.MasterPort)), id, max(time.Second, cfg.Liveness/3))
		reply, err = c.meetMaster(cfg, own, deadline)
		c.stop()
	}
	var conns []net.Conn
	if err == nil {
		conns, err = controls(cfg, n, reply, deadline)
	}
	if err != nil {
		stop()
		return nil, err
	}
	g := newGroup(cfg, reply.Peers, n)
	g.onClose = append(g.onClose, stop)
	g.attach(conns)
	g.start()
	if err := g.agree("start", "start-up"); err != nil {
		_ = g.Close()
		return nil, err
	}
	if m != nil {
		debug.FreeOSMemory() // what it took to answer all calls of the rendezvous
	}
	return g, nil
}

// controls makes the control connections. Everyone has been alive a moment ago,
// so a rank that does not come soon has died on the way.
func controls(cfg Config, n *node.Node, reply joinReply, deadline time.Time) ([]net.Conn, error) {
	if err := n.SetPeers(reply.Session, reply.Peers); err != nil {
		return nil, rendezvousf("rank %d: %v", cfg.Rank, err)
	}
	if soon := time.Now().Add(cfg.Liveness + 2*trust.ProofTime); soon.Before(deadline) {
		deadline = soon
	}
	conns, err := n.Control(cfg.controls, deadline)
	if err == nil {
		return conns, nil
	}
	text := fmt.Sprintf("rank %d cannot connect to all workers: %v", cfg.Rank, err)
	var (
		timeout *transport.TimeoutError
		gone    *transport.PeerGone
		peer    = -1
	)
	if errors.As(err, &timeout) {
		peer = timeout.Peer
	} else if errors.As(err, &gone) {
		peer = gone.Peer
	}
	if peer >= 0 {
		e := reply.Peers[peer]
		text += fmt.Sprintf(" (process %d on %s, at %s): it has ended, or a firewall is between; SAR_SOCKET_NAME chooses "+
			"another network interface", e.PID, e.Host, e.TCP)
	}
	failed := &RendezvousError{text}
	giveUp(conns, failed, reply.Peers[cfg.Rank].Host, cfg.Rank)
	return nil, failed
}

// giveUp ends the connections for control that were made, and says why: a peer whose own are
// complete has begun, and would take this rank's end for the cause.
func giveUp(conns []net.Conn, why error, host string, rank int) {
	encoded, err := message{Type: msgFail, Failure: pack(why, rank, host)}.encoded()
	for _, conn := range conns {
		if conn != nil {
			c := &control{conn: conn}
			if err == nil {
				_ = c.send(encoded)
			}
			c.close()
		}
	}
}

// silentTime is how long rank 0 may not have answered for what it said last to be why the
// workers could not meet.
const silentTime = patience + time.Second

// meetMaster asks rank 0 until everyone is there.
func (c *client) meetMaster(cfg Config, own joinRequest, deadline time.Time) (joinReply, error) {
	var (
		missing []int
		seen    string
		heard   time.Time
	)
	for {
		long := min(patience, time.Until(deadline))
		if heard.IsZero() { // who is missing is worth to be known early
			long = 0
		}
		reply, err := c.join(own, long)
		switch {
		case err == nil && reply.Error != "":
			return reply, &RendezvousError{reply.Error}
		case err == nil && reply.Done:
			if len(reply.Peers) != cfg.World {
				return reply, rendezvousf("rank 0 told of %d workers, expected %d", len(reply.Peers), cfg.World)
			}
			return reply, nil
		case err == nil:
			missing, seen, heard = reply.Missing, reply.Seen, time.Now()
		}
		select {
		case <-c.final:
			return reply, c.refusal(cfg)
		default:
		}
		if time.Now().Before(deadline) {
			continue
		}
		if err == nil || len(missing) > 0 && time.Since(heard) < silentTime {
			return reply, missingError(missing, seen, cfg)
		}
		if why := c.why(); why != nil {
			err = why
		}
		if !heard.IsZero() {
			return reply, rendezvousf("rank %d met rank 0 at %s, which has not answered for %.1f s: %v; until then %s of %d "+
				"had not come%s: is rank 0 still running, and is no firewall between?",
				cfg.Rank, c.addr, time.Since(heard).Seconds(), err, listRanks(missing), cfg.World, seen)
		}
		return reply, rendezvousf("rank %d cannot reach rank 0 at %s after %g s: %v; is rank 0 running, are address and "+
			"port right, and does no firewall close that port (SAR_PORT_RANGE names those that are open)?",
			cfg.Rank, c.addr, cfg.Start.Seconds(), err)
	}
}

// refusal says why whoever listens at the master's address is not rank 0.
func (c *client) refusal(cfg Config) error {
	err := c.why()
	var no *trust.Refused
	switch {
	case errors.Is(err, trust.ErrStranger):
		return rendezvousf("what listens at %s is not a SAR worker: the master port is taken by something else, "+
			"choose another", c.addr)
	case errors.As(err, &no) && no.OtherJob:
		return rendezvousf("rank %d was refused at %s: %v; choose another master port, or, if these are workers of one "+
			"job, give all of them one SAR_JOB_TOKEN",
			cfg.Rank, c.addr, err)
	}
	return rendezvousf("rank %d was refused at %s: %v", cfg.Rank, c.addr, err)
}
