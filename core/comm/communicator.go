package comm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sar/core/internal/argument"
	"sar/core/mem"
	"sar/core/transport"
)

const maxComms = 1 << 12

// Communicator orders operations and has links of its own. One thread at a
// time may use it; two communicators may be used at once.
type Communicator struct {
	g    *Group
	id   uint32
	name string

	mu sync.Mutex
	schedule
	places  places
	active  *Op
	links   []transport.Link      // by rank; nil at this rank's place, and for World 1
	carried []transport.LinkStats // by links that Resize has replaced
	window  int
	gen     uint32                   // of the mesh
	payload int                      // the smallest MaxPayload of any link of any rank
	moved   [][numWays]atomic.Uint64 // by rank
	waited  []atomic.Int64           // nanoseconds, by rank
}

// schedule is a place in the schedule of one communicator.
type schedule struct {
	Phase
	// caller began the operation (Config.Caller), 0: not known. Who waits for whom is read off it.
	caller  uint64
	changed time.Duration
}

func (s *schedule) begin(step Step, caller uint64) {
	step.Seq = s.Seq + 1
	s.Step, s.Active, s.caller, s.changed = step, true, caller, now()
}

func (s *schedule) end() { s.Active, s.changed = false, now() }

func (s *schedule) state() commState { return commState{s.Phase, s.caller} }

// NewCommunicator makes a communicator. Collective: every rank makes the same
// ones in the same order, with the same window. The window, in bytes, is split
// evenly over the links to the P-1 peers.
func (g *Group) NewCommunicator(name string, windowBytes int) (*Communicator, error) {
	g.mu.Lock()
	err := g.usableLocked()
	if err == nil && g.setup.Active {
		err = argument.Errorf("communicator %q: another one is being made at this moment; make one after the other", name)
	} else if err == nil && len(g.comms)+1 >= maxComms {
		err = argument.Errorf("communicator %q: a group has at most %d", name, maxComms)
	}
	if err != nil {
		g.mu.Unlock()
		return nil, err
	}
	id := uint32(len(g.comms) + 1)
	g.setup.begin(Step{Kind: KindCreate}, g.cfg.Caller())
	attempt := g.setup.Seq
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.setup.end()
		g.mu.Unlock()
	}()
	// Meshes and meetings are numbered so that a failed attempt leaves no trace.
	c := &Communicator{g: g, id: id, name: name, window: windowBytes, gen: uint32(attempt),
		carried: make([]transport.LinkStats, g.cfg.World), moved: make([][numWays]atomic.Uint64, g.cfg.World),
		waited: make([]atomic.Int64, g.cfg.World)}
	if g.cfg.World > 1 {
		what := fmt.Sprintf("creation of communicator %q with a window of %d bytes", name, windowBytes)
		if err := g.agree(fmt.Sprintf("create/%d", attempt), what); err != nil {
			return nil, err
		}
		if err := c.fits(windowBytes); err != nil {
			return nil, err
		}
		if err := c.connect(); err != nil {
			return nil, err
		}
	}
	g.mu.Lock()
	g.comms = append(g.comms, c)
	err = g.usableLocked()
	g.mu.Unlock()
	if err != nil { // it came while c was not in the list that fail and Close walk
		c.failLinks(err)
		c.closeLinks()
		return nil, err
	}
	return c, nil
}

// Resize gives the communicator a window of another size. Collective; no
// operation may run. One that is too small is refused with *mem.BudgetError,
// and the communicator goes on with what it has.
func (c *Communicator) Resize(windowBytes int) error {
	op, err := c.Begin(KindCreate, None)
	if err != nil {
		return err
	}
	if c.g.cfg.World == 1 {
		c.mu.Lock()
		c.window = windowBytes
		c.mu.Unlock()
		return op.End(nil)
	}
	err = c.g.agree(fmt.Sprintf("resize/%d/%d", c.id, op.seq),
		fmt.Sprintf("resizing of communicator %q to %d bytes", c.name, windowBytes))
	if err != nil {
		return op.End(err)
	}
	if err := c.fits(windowBytes); err != nil {
		op.finish()
		return err
	}
	if c.window != windowBytes {
		// Every rank has come here, so nobody uses the links, and they hold no
		// frames. Their memory is given back before other is taken.
		c.closeLinks()
		c.mu.Lock()
		c.window = windowBytes
		c.gen++
		c.mu.Unlock()
		err = c.connect()
	}
	return op.End(err)
}

// minLinkBytes is the least that links are made of.
const minLinkBytes = 4096

// fits is the same answer on every rank.
func (c *Communicator) fits(windowBytes int) error {
	if links := c.g.cfg.World - 1; windowBytes/links < minLinkBytes {
		return &mem.BudgetError{
			What: fmt.Sprintf("window of communicator %q, which has links to %d peers,", c.name, links),
			Have: int64(windowBytes), Minimum: int64(links * minLinkBytes),
		}
	}
	return nil
}

// connect makes the mesh of this generation and agrees on what its frames can
// carry on every rank.
func (c *Communicator) connect() error {
	g := c.g
	links, err := g.mesh(c.id<<16|c.gen&0xffff, c.window/(g.cfg.World-1))
	if err != nil {
		return g.meshFailed(c, err)
	}
	payload := math.MaxInt
	for _, l := range links {
		if l != nil {
			payload = min(payload, l.MaxPayload())
		}
	}
	c.mu.Lock()
	c.links = links
	c.mu.Unlock()
	values, err := g.meet(fmt.Sprintf("mesh/%d/%d", c.id, c.gen), strconv.AppendInt(nil, int64(payload), 10))
	for r, v := range values {
		theirs, e := strconv.Atoi(string(v))
		if e != nil || theirs < minPayload {
			err = g.fail(fmt.Errorf("rank %d has links with frames of %q bytes", r, v), true)
			break
		}
		payload = min(payload, theirs)
	}
	if err == nil {
		err = g.usable()
	}
	if err != nil {
		c.failLinks(err)
		c.closeLinks()
		return err
	}
	c.mu.Lock()
	c.payload = payload
	c.mu.Unlock()
	return nil
}

// meshFailed ends the group: the others wait for this rank's links.
func (g *Group) meshFailed(c *Communicator, err error) error {
	var gone *transport.PeerGone
	if errors.As(err, &gone) {
		return g.ended(gone.Peer, err)
	}
	if e := g.usable(); e != nil {
		return e
	}
	return g.fail(fmt.Errorf("links of communicator %q: %w", c.name, err), true)
}

// mesh makes links to every peer, and gives up when the group fails.
func (g *Group) mesh(id uint32, bytesPerLink int) ([]transport.Link, error) {
	type result struct {
		links []transport.Link
		err   error
	}
	ready := make(chan result, 1)
	go func() {
		links, err := g.fabric.Mesh(id, bytesPerLink, time.Now().Add(g.cfg.Operation))
		ready <- result{links, err}
	}()
	drop := func() { // what comes too late
		for _, l := range (<-ready).links {
			if l != nil {
				_ = l.Close()
			}
		}
	}
	select {
	case r := <-ready:
		return r.links, r.err
	case <-g.failed:
		go drop()
		return nil, g.Failure()
	case <-g.done:
		go drop()
		return nil, ErrClosed
	}
}

// commName is how messages name a communicator.
func (g *Group) commName(id uint32) string {
	if id == 0 {
		return "the group"
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if int(id) <= len(g.comms) {
		return fmt.Sprintf("communicator %q", g.comms[id-1].name)
	}
	return fmt.Sprintf("communicator %d", id)
}

// Name is what the communicator was made with, Group whose it is; Rank is this worker's number among World.
func (c *Communicator) Name() string  { return c.name }
func (c *Communicator) Group() *Group { return c.g }
func (c *Communicator) Rank() int     { return c.g.cfg.Rank }
func (c *Communicator) World() int    { return c.g.cfg.World }

// MaxPayload is the smallest MaxPayload of any link of any rank, the same
// number everywhere; for one worker the window.
func (c *Communicator) MaxPayload() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.g.cfg.World == 1 {
		return c.window
	}
	return c.payload
}

func (c *Communicator) failLinks(err error) {
	c.mu.Lock()
	links := c.links
	c.mu.Unlock()
	for _, l := range links {
		if l != nil {
			l.Fail(err)
		}
	}
}

// idleTime is how long Close waits for an operation that computes.
const idleTime = 10 * time.Second

// idle waits until no operation runs, and says whether that is so: one that does
// may be working in the memory of links that have failed. An operation that the
// caller itself is in, having come by way of what it calls, would never end.
func (c *Communicator) idle() bool {
	for end := now() + idleTime; ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		idle := c.active == nil || c.links == nil
		caller := c.schedule.caller
		c.mu.Unlock()
		if idle || caller != 0 && caller == c.g.cfg.Caller() || now() > end {
			return idle
		}
	}
}

func (c *Communicator) closeLinks() {
	c.mu.Lock()
	links := c.links
	for r, l := range links {
		if l != nil {
			c.carried[r] = addLinkStats(c.carried[r], l.Stats())
		}
	}
	c.links = nil
	c.mu.Unlock()
	for _, l := range links {
		if l != nil {
			_ = l.Close()
		}
	}
}
