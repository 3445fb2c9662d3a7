// Package comm lets P workers act as one: they meet (Join), notice when one of
// them dies, stops or fails, keep to one schedule, and run collectives.
//
// A Group is this worker's membership. Its Communicators each have a mesh of
// links of their own and number their operations, so that work on one never
// waits behind work on another. Every frame carries the number and kind of its
// operation; ranks that disagree get a ScheduleError. The first failure of a
// group is final: every current and later call on every rank ends with it.
//
// Liveness and progress are two things. Signs of life come from goroutines of
// this package, so a worker that is busy elsewhere for minutes is alive. What
// an operation may take is bounded by Config.Operation alone.
package comm

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sar/core/transport"
)

// fabric makes meshes: core/transport/node between processes.
type fabric interface {
	// Mesh returns one link per rank, nil for this one.
	Mesh(id uint32, bytesPerLink int, deadline time.Time) ([]transport.Link, error)
	Close() error
}

// Group is this worker's membership in a set of workers.
type Group struct {
	cfg     Config
	peers   []*peer // nil at this rank's place
	self    transport.Endpoint
	fabric  fabric
	hub     *hub     // rank 0 alone has it
	values  values   // of rank 0
	onClose []func() // what Join started, in order

	// telling is held by who tells all peers something, so that all hear it in one order. A
	// failure is told before anything that follows from it: rank 0 passes on the goodbye of
	// a rank that ends because of a failure when everyone has been told of the failure.
	telling sync.Mutex

	mu      sync.Mutex
	comms   []*Communicator // id - 1
	setup   schedule        // of making communicators, as id 0
	failure error
	closed  bool
	failed  chan struct{} // closed with the first failure
	done    chan struct{} // closed by Close
	wg      sync.WaitGroup

	meetings sync.Map      // that this rank waits for, by key: chan meetReply
	asking   sync.Map      // the values that it waits for, by number of the question: chan ValueReply
	asked    atomic.Uint64 // questions

	frames  atomic.Uint64 // meetings attended: progress that no link counts
	statsMu sync.Mutex
	kinds   [numKinds]KindStats
}

// peer is what this rank knows of another one.
type peer struct {
	transport.Endpoint
	control *control                         // nil where there is none, see Config.controls
	inside  bool                             // in this process: it lives as long as this rank
	heard   atomic.Int64                     // last sign of life, nanoseconds since start
	bye     chan struct{}                    // closed when it says goodbye
	byeOnce sync.Once                        //
	memory  atomic.Pointer[map[string]int64] // what it last told of its memory
	told    atomic.Pointer[sighting]         // what the coordinator says it does
	seen    atomic.Pointer[sighting]         // what its last frame was of
}

func (p *peer) gone() bool {
	select {
	case <-p.bye:
		return true
	default:
		return false
	}
}

// newGroup makes a group of ranks whose endpoints are known; peers reach each
// other over controls (nil for this rank).
func newGroup(cfg Config, ends []transport.Endpoint, f fabric) *Group {
	g := &Group{
		cfg: cfg, fabric: f, self: ends[cfg.Rank],
		failed: make(chan struct{}), done: make(chan struct{}),
		peers: make([]*peer, cfg.World), values: values{kept: map[string][]byte{}},
	}
	for r := range g.peers {
		if r != cfg.Rank {
			_, inside := listening.Load(ends[r].TCP)
			g.peers[r] = &peer{Endpoint: ends[r], inside: inside, bye: make(chan struct{})}
			g.peers[r].heard.Store(int64(now()))
		}
	}
	if cfg.Rank == 0 {
		g.hub = newHub(g)
	}
	return g
}

var started = time.Now()

// now is monotonic.
func now() time.Duration { return time.Since(started) }

// Rank is this worker's number among World.
func (g *Group) Rank() int  { return g.cfg.Rank }
func (g *Group) World() int { return g.cfg.World }

func (g *Group) communicators() []*Communicator {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.comms)
}

// Failure is the error that ended the group, or nil.
func (g *Group) Failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failure
}

// Failed is closed with the first failure, for those who wait on something else.
func (g *Group) Failed() <-chan struct{} { return g.failed }

// usable is nil while operations may begin.
func (g *Group) usable() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.usableLocked()
}

func (g *Group) usableLocked() error {
	if g.closed {
		return ErrClosed
	}
	return g.failure
}

// fail makes err the end of the group unless it has ended already, and returns
// what ended it. With tell the other ranks hear of it.
func (g *Group) fail(err error, tell bool) error {
	if tell {
		g.telling.Lock() // before anyone can know of the failure
		defer g.telling.Unlock()
	}
	return g.failLocked(err, tell)
}

// failLocked is fail for who holds telling where it tells.
func (g *Group) failLocked(err error, tell bool) error {
	g.mu.Lock()
	if g.closed || g.failure != nil {
		old := g.failure
		g.mu.Unlock()
		if old == nil {
			return ErrClosed
		}
		return old
	}
	g.failure = err
	comms := slices.Clone(g.comms)
	g.mu.Unlock()
	// Peers first: failing the links lets this process raise the error and
	// exit, and then they would only see it vanish.
	if tell {
		g.sendLocked(message{Type: msgFail, Failure: pack(err, g.cfg.Rank, g.self.Host)}, g.peers)
	}
	close(g.failed)
	for _, c := range comms {
		c.failLinks(err)
	}
	return err
}

// Abort tells every rank that this one failed: their current and later calls
// return *RemoteError with the message, as do this rank's.
func (g *Group) Abort(message string) {
	g.fail(&RemoteError{Rank: g.cfg.Rank, Host: g.self.Host, Message: message}, true)
}

// lost declares rank r lost.
func (g *Group) lost(r int, format string, args ...any) error {
	return g.fail(g.peerLost(r, fmt.Sprintf(format, args...)), true)
}

func (g *Group) peerLost(r int, reason string) *PeerLost {
	return &PeerLost{Rank: r, Host: g.peers[r].Host, Phase: g.phaseOf(r), Reason: reason}
}

const shutDown = "it has shut down"

// Close says goodbye, so that the peers do not take this rank for dead, and
// frees everything. Operations that still run here end with ErrClosed, those of
// peers that still wait for this rank with *PeerLost. It may be called again.
func (g *Group) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	failure := g.failure
	comms := slices.Clone(g.comms)
	g.mu.Unlock()
	close(g.done)
	if failure != nil { // who has not heard of it yet must not take our leaving for the cause
		g.tell(message{Type: msgFail, Failure: pack(failure, g.cfg.Rank, g.self.Host)})
	}
	g.tell(message{Type: msgBye, Rank: g.cfg.Rank, Memory: g.ownMemory()})
	for _, c := range comms {
		c.failLinks(transport.ErrClosed) // not a failure: what was committed still leaves
	}
	for _, c := range comms {
		if c.idle() { // else the memory stays with the process
			c.closeLinks()
		}
	}
	if g.hub != nil {
		g.hub.stop()
	}
	for _, f := range g.onClose {
		f()
	}
	for _, p := range g.peers {
		if p != nil && p.control != nil {
			p.control.close()
		}
	}
	var err error
	if g.fabric != nil {
		err = g.fabric.Close()
	}
	g.wg.Wait()
	return err
}
