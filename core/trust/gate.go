package trust

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"sar/core/internal/limits"
)

// ProofTime is how long a connection may take to prove itself. A genuine worker
// takes a few round trips.
const ProofTime = 5 * time.Second

// maxUnproven is how many connections may be in the middle of that at one time.
// Another one takes the place of one that is there: a worker that loses its
// place tries again, and someone who keeps connections open has them closed.
const maxUnproven = 128

// Gate accepts connections at its listeners and lets those through that prove
// themselves. The others cost a connection each for ProofTime at most, and
// maxUnproven of them altogether.
type Gate struct {
	id     *Identity
	policy Policy
	serve  func(net.Conn, Claim)

	mu        sync.Mutex
	listeners []net.Listener
	unproven  []*newcomer // in order of arrival
	limit     int
	closed    bool
	otherJobs int   // workers of other jobs that were refused
	trouble   error // why a connection could not be accepted, the last time
	troubled  time.Time
	wg        sync.WaitGroup
}

type newcomer struct {
	conn   net.Conn
	source string
	spoke  bool // its first message is one of this job
}

// NewGate begins to accept. serve gets each proven connection on a goroutine of
// its own, without a deadline, and owns it.
func NewGate(id *Identity, p Policy, serve func(net.Conn, Claim), listeners ...net.Listener) *Gate {
	g := &Gate{id: id, policy: p, serve: serve, listeners: listeners, limit: unprovenLimit()}
	for _, l := range listeners {
		g.wg.Go(func() { g.accept(l) })
	}
	return g
}

// unprovenLimit leaves most of the descriptors to who belongs here.
func unprovenLimit() int {
	n, known := limits.Descriptors()
	if !known {
		return maxUnproven
	}
	return int(max(8, min(maxUnproven, n/8)))
}

// OtherJobs counts workers of other jobs that came here.
func (g *Gate) OtherJobs() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.otherJobs
}

// recentTime is how long trouble is told of after it was seen: connections may be accepted
// and evicted in turn.
const recentTime = 10 * time.Second

// Trouble is why a connection could not be accepted a moment ago, nil if all could.
func (g *Gate) Trouble() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.troubled) > recentTime {
		return nil
	}
	return limits.Explain(g.trouble)
}

// Close stops accepting and returns when no goroutine of the gate is left, those
// in serve included.
func (g *Gate) Close() error {
	g.mu.Lock()
	g.closed = true
	for _, n := range g.unproven {
		_ = n.conn.Close()
	}
	g.mu.Unlock()
	var errs []error
	for _, l := range g.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	g.wg.Wait()
	return errors.Join(errs...)
}

// troubleTime is between two attempts to accept where the system has no room.
const troubleTime = 10 * time.Millisecond

func (g *Gate) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			if err == nil {
				_ = conn.Close()
			}
			continue // until the listener is closed too
		}
		if err != nil { // no descriptors, or the other side gave up: neither has to last
			if limits.Exhausted(err) {
				g.trouble, g.troubled = err, time.Now()
				g.evictLocked()
			}
			g.mu.Unlock()
			time.Sleep(troubleTime)
			continue
		}
		if len(g.unproven) >= g.limit {
			g.evictLocked()
		}
		n := &newcomer{conn: conn, source: source(conn)}
		g.unproven = append(g.unproven, n)
		g.wg.Go(func() { g.examine(n) })
		g.mu.Unlock()
	}
}

// examine has a newcomer prove itself.
func (g *Gate) examine(n *newcomer) {
	_ = n.conn.SetDeadline(time.Now().Add(ProofTime))
	conn, claim, err := g.id.admit(n.conn, g.policy, func() {
		g.mu.Lock()
		n.spoke = true
		g.mu.Unlock()
	})
	g.mu.Lock()
	here := g.removeLocked(n)
	if err == errOtherJob {
		g.otherJobs++
	}
	g.mu.Unlock()
	if err != nil || !here {
		_ = n.conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	g.serve(conn, claim)
}

// removeLocked says whether n was still there.
func (g *Gate) removeLocked(n *newcomer) bool {
	i := slices.Index(g.unproven, n)
	if i >= 0 {
		g.unproven = slices.Delete(g.unproven, i, i+1)
	}
	return i >= 0 && !g.closed
}

// evictLocked closes an unproven connection: one that has said nothing of this
// job before one that has, of those one from the source that has most, and of
// those the oldest.
func (g *Gate) evictLocked() {
	if len(g.unproven) == 0 {
		return
	}
	silent := false
	for _, n := range g.unproven {
		silent = silent || !n.spoke
	}
	count := map[string]int{}
	most := 0
	for _, n := range g.unproven {
		if n.spoke != silent {
			count[n.source]++
			most = max(most, count[n.source])
		}
	}
	for _, n := range g.unproven {
		if n.spoke != silent && count[n.source] == most {
			g.removeLocked(n)
			_ = n.conn.Close()
			return
		}
	}
}

// source is where a connection comes from: an IPv4 address, or the network of an
// IPv6 one, of which a host has many addresses.
func source(conn net.Conn) string {
	addr, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return conn.RemoteAddr().Network()
	}
	if four := addr.IP.To4(); four != nil {
		return four.String()
	}
	return addr.IP.Mask(net.CIDRMask(64, 128)).String()
}
