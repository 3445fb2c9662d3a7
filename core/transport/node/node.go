// Package node makes the meshes of links between the processes of a run. A node
// listens on a TCP port and on an abstract Unix socket (which leaves no file). At
// rank 0 the rendezvous shares that port, so that a host needs one port for each worker.
// For each pair the higher rank dials the lower one, over the first transport of a list
// that both may use and that reaches the other: shared memory where both
// are on one host, else TCP. What connects has to prove first that it belongs to
// the job (core/trust); a worker that does not know the session is turned away,
// and a connection for a mesh that this rank has not come to yet is parked.
package node

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"sar/core/internal/limits"
	"sar/core/transport"
	"sar/core/transport/foreign"
	"sar/core/trust"
)

// helloTime is for a proven connection to say hello.
const helloTime = 10 * time.Second

// Config says how this rank is reached.
type Config struct {
	Rank, World int
	BindAddr    string // address to listen on; "": OwnAddr()
	Advertise   string // host:port for peers to dial; port 0 or none: the listener's
	Transport   string // the name of one to use alone; Auto or "": the best that works
	Identity    *trust.Identity

	Ports     Ports          // where to listen; zero: at any port
	Listeners []net.Listener // open ones, of one port, in place of one at BindAddr; the node closes them
	// gets the connections for calls to rank 0, of any world size; nil: they are refused
	Calls func(net.Conn, trust.Claim)
}

// Node is this process's part of every mesh.
type Node struct {
	cfg        Config
	library    *foreign.Opened        // that carries links of this node, nil where none does
	transports []*transport.Transport // the best first
	allowed    []*transport.Transport // those of them that it may use
	tcp        *trust.Gate
	unix       *trust.Gate // nil where there are no abstract sockets
	endpoint   transport.Endpoint

	mu       sync.Mutex
	session  [16]byte
	peers    []transport.Endpoint // nil until SetPeers
	parked   []*arrival
	greeting map[net.Conn]struct{} // proven connections that have not said hello
	controls uint32
	closed   bool
	changed  chan struct{} // closed and replaced when any of the above changes
}

// arrival is a connection whose hello has been read.
type arrival struct {
	hello
	conn net.Conn
	fd   int // the segment's descriptor, -1 if none

	certificate [32]byte // zero where the connection is not encrypted
}

// pinned tells whether an encrypted connection is of the worker that everybody
// was told of.
func (a *arrival) pinned(peer transport.Endpoint) bool {
	return a.certificate == [32]byte{} || a.certificate == peer.Certificate
}

func (a *arrival) drop() {
	closeDescriptor(a.fd)
	_ = a.conn.Close()
}

// refuse tells the dialer why and drops the connection.
func (a *arrival) refuse(n *Node, why answer, bytes int) {
	_ = a.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = sendHello(a.conn, hello{Purpose: a.Purpose, Answer: why, Rank: uint32(n.cfg.Rank), World: uint32(n.cfg.World),
		Mesh: a.Mesh, Bytes: uint64(bytes)}, -1)
	a.drop()
}

// Listen opens the node.
func Listen(cfg Config) (*Node, error) {
	n := &Node{cfg: cfg, greeting: map[net.Conn]struct{}{}, changed: make(chan struct{})}
	if err := n.listen(); err != nil {
		for _, l := range n.cfg.Listeners {
			_ = l.Close()
		}
		n.closeLibrary()
		return nil, err
	}
	return n, nil
}

func (n *Node) listen() error {
	cfg := &n.cfg
	if cfg.World < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.World {
		return fmt.Errorf("rank %d is not within a world of %d", cfg.Rank, cfg.World)
	}
	if cfg.Identity == nil {
		return fmt.Errorf("rank %d has no identity", cfg.Rank)
	}
	if err := n.choose(cfg.Transport); err != nil {
		return err
	}
	addr := cfg.BindAddr
	if addr == "" {
		addr = OwnAddr()
	}
	if len(cfg.Listeners) == 0 {
		l, err := cfg.Ports.listen(addr)
		if err != nil {
			return fmt.Errorf("listening on %q: %w", addr, limits.Explain(err))
		}
		cfg.Listeners = []net.Listener{l}
	}
	_, port, _ := net.SplitHostPort(cfg.Listeners[0].Addr().String())
	if ip := net.ParseIP(addr); ip != nil && ip.IsUnspecified() { // asked for in so many words
		addr = OwnAddr()
	}
	n.endpoint = transport.Endpoint{
		Rank: cfg.Rank, Host: hostName(), PID: os.Getpid(), HostID: hostID(), TCP: net.JoinHostPort(addr, port),
		Certificate: cfg.Identity.Certificate(),
	}
	if n.library != nil {
		n.endpoint.Library = n.library.Name()
	}
	if cfg.Advertise != "" {
		var err error
		if n.endpoint.TCP, err = advertised(cfg.Advertise, port); err != nil {
			return err
		}
	}
	if err := n.listenUnix(); err != nil && !n.uses("tcp") {
		return fmt.Errorf("%s needs an abstract Unix socket: %w", cfg.Transport, limits.Explain(err))
	}
	policy := n.taken("tcp")
	if cfg.Calls != nil {
		policy.AnyWorld = []trust.Purpose{trust.Calls}
	}
	n.tcp = trust.NewGate(cfg.Identity, policy, n.serve, cfg.Listeners...)
	return nil
}

func (n *Node) closeLibrary() {
	if n.library != nil {
		n.library.Close()
	}
}

// serve has a proven connection handled.
func (n *Node) serve(conn net.Conn, claim trust.Claim) {
	if claim.Purpose == trust.Calls {
		n.cfg.Calls(conn, claim)
	} else {
		n.greet(conn, claim)
	}
}

// listenUnix opens a socket for ranks of this host. Its name is no secret.
func (n *Node) listenUnix() error {
	var random [12]byte
	rand.Read(random[:])
	name := fmt.Sprintf("@sar-%d-%s", os.Getpid(), hex.EncodeToString(random[:]))
	l, err := net.Listen("unix", name)
	if err != nil {
		return err
	}
	n.unix, n.endpoint.Unix = trust.NewGate(n.cfg.Identity, n.taken("unix"), n.greet, l), name
	return nil
}

// advertised completes what peers are to dial with the listener's port.
func advertised(addr, port string) (string, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		host, p = addr, ""
	}
	if p == "" || p == "0" {
		p = port
	}
	if _, err := strconv.ParseUint(p, 10, 16); err != nil || host == "" {
		return "", fmt.Errorf("address to advertise %q is not host:port", addr)
	}
	return net.JoinHostPort(host, p), nil
}

// OtherJobs counts workers of other jobs that came to the TCP port. Endpoint is how peers reach this node.
func (n *Node) OtherJobs() int               { return n.tcp.OtherJobs() }
func (n *Node) Endpoint() transport.Endpoint { return n.endpoint }

// SetPeers tells the node the run's session and everyone's endpoint, by rank.
// Parked connections of other sessions are turned away.
func (n *Node) SetPeers(session [16]byte, peers []transport.Endpoint) error {
	if len(peers) != n.cfg.World {
		return fmt.Errorf("%d endpoints for a world of %d", len(peers), n.cfg.World)
	}
	for r, p := range peers {
		if p.Rank != r {
			return fmt.Errorf("endpoint %d is of rank %d", r, p.Rank)
		}
	}
	n.mu.Lock()
	n.session = session
	n.peers = slices.Clone(peers)
	var strangers []*arrival
	n.parked = slices.DeleteFunc(n.parked, func(a *arrival) bool {
		if a.Session == session {
			return false
		}
		strangers = append(strangers, a)
		return true
	})
	n.wakeLocked()
	n.mu.Unlock()
	for _, a := range strangers {
		a.refuse(n, answerSession, 0)
	}
	return nil
}

func (n *Node) wakeLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// greet reads the hello of a proven connection and parks it, or turns it away.
func (n *Node) greet(conn net.Conn, claim trust.Claim) {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		_ = conn.Close()
		return
	}
	n.greeting[conn] = struct{}{}
	n.mu.Unlock()
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	h, fd, err := receiveHello(conn)
	if err == nil {
		err = h.claimed(claim)
	}
	a := &arrival{hello: h, conn: conn, fd: fd, certificate: claim.Certificate}
	n.mu.Lock()
	delete(n.greeting, conn)
	why := answerNone
	var old *arrival
	if err == nil && !n.closed {
		if why = n.judgeLocked(h); why == answerNone {
			old = n.parkLocked(a)
		}
	}
	dropped := err != nil || n.closed
	n.mu.Unlock()
	switch {
	case dropped:
		a.drop()
	case why != answerNone:
		a.refuse(n, why, 0)
	case old != nil:
		old.drop()
	}
}

func (n *Node) judgeLocked(h hello) answer {
	switch {
	case h.Version != helloVersion:
		return answerVersion
	case n.peers != nil && h.Session != n.session:
		return answerSession
	case int64(h.World) != int64(n.cfg.World), h.Rank >= h.World, int64(h.Rank) <= int64(n.cfg.Rank),
		h.Purpose != trust.Control && n.place(h.Purpose) < 0:
		return answerMismatch
	}
	return answerNone
}

// parkLocked keeps an arrival and returns one that it replaces: an earlier one
// of the same sender, which has given that up, or the oldest if there are many.
func (n *Node) parkLocked(a *arrival) (old *arrival) {
	_ = a.conn.SetDeadline(time.Time{})
	at := slices.IndexFunc(n.parked, func(p *arrival) bool { return p.hello == a.hello })
	if at < 0 && len(n.parked) >= 16*n.cfg.World+64 {
		at = 0
	}
	if at >= 0 {
		old = n.parked[at]
		n.parked = slices.Delete(n.parked, at, at+1)
	}
	n.parked = append(n.parked, a)
	n.wakeLocked()
	return old
}

// Close ends the node. Links and control streams that it made live on.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	parked := n.parked
	n.parked = nil
	for conn := range n.greeting {
		_ = conn.Close()
	}
	n.wakeLocked()
	n.mu.Unlock()
	for _, a := range parked {
		a.drop()
	}
	err := n.tcp.Close()
	if n.unix != nil {
		err = errors.Join(err, n.unix.Close())
	}
	n.closeLibrary()
	return err
}
