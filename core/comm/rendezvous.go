package comm

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sar/core/transport"
	"sar/core/transport/node"
)

// protocol is the version of everything that workers say to each other.
const protocol = 5

// joinRequest is a call that rank 0 answers when there is news: everyone is there, or something is
// wrong. It is repeated where there was none.
type joinRequest struct {
	Version     int
	Rank, World int
	Endpoint    transport.Endpoint
	Nonce       [16]byte      // of the process
	Patience    time.Duration // how long the answer may take
}

type joinReply struct {
	Done    bool
	Session [16]byte
	Peers   []transport.Endpoint
	Missing []int
	Seen    string // what may explain why they are missing
	Error   string
}

// master is the rendezvous at rank 0. After it, it turns away who comes too late.
type master struct {
	world   int
	server  *server
	session [16]byte

	mu      sync.Mutex
	node    *node.Node // takes connections for the server; nil until begin
	arrived []*arrival // by rank
	count   int
	err     error
	over    chan struct{} // closed when all are there or err is set
	told    chan struct{} // while linger waits: has an item for each worker that has the result
	refused []string      // why workers of this job were turned away, the first few
	early   map[[16]byte]time.Duration
}

type arrival struct {
	joinRequest
	seen time.Duration // its last call
	told bool          // it has the result
}

const (
	// patience is how long a worker waits for the answer to one call. Its calls are also its signs of life.
	patience = 2 * time.Second
	// vanishTime is how long a worker may not have called before another one may take its place.
	vanishTime = 5 * time.Second
	// earlyTime is how soon a worker may ask again that has come too early.
	earlyTime = 100 * time.Millisecond
)

// newMaster opens the rendezvous. Who calls hands its server the connections.
func newMaster(cfg Config) (m *master, err error) {
	m = &master{world: cfg.World, arrived: make([]*arrival, cfg.World), over: make(chan struct{}),
		early: map[[16]byte]time.Duration{}}
	rand.Read(m.session[:])
	m.server, err = serve(m.handle)
	return m, err
}

// begin has rank 0 join, whose node takes connections for the server.
func (m *master) begin(n *node.Node, own joinRequest) error {
	m.mu.Lock()
	m.node = n
	m.mu.Unlock()
	if reply := m.join(&own); reply.Error != "" {
		return &RendezvousError{reply.Error}
	}
	return nil
}

// handle answers a call. A connection speaks for the rank that it has proved.
func (m *master) handle(from string, request any) any {
	switch r := request.(type) {
	case *joinRequest:
		if caller(r.Rank, r.World) == from {
			reply := m.join(r)
			return &reply
		}
	default:
		return &refusal{fmt.Sprintf("rank 0 does not know what %T is", request)}
	}
	return &refusal{"the call is of another rank than the connection"}
}

// join takes a worker in and waits for the others, as long as it has patience.
func (m *master) join(r *joinRequest) joinReply {
	if m.tooEarly(r) {
		select {
		case <-m.server.done:
		case <-time.After(earlyTime):
		}
		return joinReply{}
	}
	m.mu.Lock()
	wrong := m.admit(r)
	if wrong != "" {
		m.noteLocked(wrong)
	}
	err := m.err
	m.mu.Unlock()
	if err == nil && wrong == "" && r.Rank != 0 {
		m.await(min(r.Patience, patience))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var own *arrival
	if r.Rank >= 0 && r.Rank < m.world {
		own = m.arrived[r.Rank]
	}
	reply := joinReply{Missing: m.missingLocked()}
	switch {
	case wrong != "": // it concerns this worker alone
		reply.Error = wrong
	case m.err != nil:
		reply.Error = m.err.Error()
	case m.count == m.world:
		reply = m.doneLocked()
	default:
		reply.Seen = m.seenLocked()
		return reply
	}
	if own != nil && own.Nonce == r.Nonce && !own.told {
		own.told = true
		if m.told != nil {
			m.told <- struct{}{}
		}
	}
	return reply
}

// tooEarly says whether r is of a process that was here: it has left the group, and comes to the next one
// at this port, while rank 0 has not closed this one. Rank 0 is given otherJobTime for that.
func (m *master) tooEarly(r *joinRequest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count < m.world || r.Rank <= 0 || r.Rank >= m.world {
		return false
	}
	old := m.arrived[r.Rank]
	if old.Nonce == r.Nonce || old.Endpoint.PID != r.Endpoint.PID || old.Endpoint.Host != r.Endpoint.Host {
		return false
	}
	since, asked := m.early[r.Nonce]
	if !asked {
		since = now()
		m.early[r.Nonce] = since
	}
	return now()-since < otherJobTime
}

// await returns when the rendezvous is over, its server ends, or after a time.
func (m *master) await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-m.over:
	case <-m.server.done:
	case <-timer.C:
	}
}

// admit takes r in or says what is wrong with it. m.mu is held.
func (m *master) admit(r *joinRequest) string {
	who := fmt.Sprintf("rank %d (process %d on %s)", r.Rank, r.Endpoint.PID, r.Endpoint.Host)
	switch {
	case m.err != nil:
		return ""
	case r.Version != protocol:
		return fmt.Sprintf("%s speaks version %d of the protocol and rank 0 version %d: install one version of SAR on "+
			"every worker", who, r.Version, protocol)
	case r.World != m.world:
		return fmt.Sprintf("%s was started with a world size of %d and rank 0 with %d: start every worker with the "+
			"same number", who, r.World, m.world)
	case r.Rank < 0 || r.Rank >= m.world:
		return fmt.Sprintf("%s is not below the world size of %d: ranks go from 0 to %d", who, m.world, m.world-1)
	}
	old := m.arrived[r.Rank]
	switch {
	case old != nil && old.Nonce == r.Nonce:
		old.seen = now()
		return ""
	case old != nil && (r.Rank == 0 || m.count == m.world || now()-old.seen < vanishTime):
		return fmt.Sprintf("two workers have rank %d: process %d on %s and process %d on %s; give each worker a rank "+
			"of its own",
			r.Rank, old.Endpoint.PID, old.Endpoint.Host, r.Endpoint.PID, r.Endpoint.Host)
	}
	if old == nil {
		m.count++
	}
	j := &arrival{joinRequest: *r, seen: now()}
	j.Endpoint.Rank = r.Rank
	m.arrived[r.Rank] = j
	if m.count == m.world {
		close(m.over)
	}
	return ""
}

// endLocked ends a rendezvous that is not over yet.
func (m *master) endLocked(err error) {
	if m.err == nil && m.count < m.world {
		m.err = err
		close(m.over)
	}
}

func (m *master) missingLocked() []int {
	var missing []int
	for r, j := range m.arrived {
		if j == nil {
			missing = append(missing, r)
		}
	}
	return missing
}

// maxRefused is how many refusals are kept.
const maxRefused = 3

func (m *master) noteLocked(wrong string) {
	if len(m.refused) < maxRefused && !slices.Contains(m.refused, wrong) {
		m.refused = append(m.refused, wrong)
	}
}

// wait returns when everyone is there.
func (m *master) wait(cfg Config) (joinReply, error) {
	m.await(cfg.Start)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count < m.world {
		m.endLocked(missingError(m.missingLocked(), m.seenLocked(), cfg))
		return joinReply{}, m.err
	}
	return m.doneLocked(), nil
}

// doneLocked is what everybody hears once all are there.
func (m *master) doneLocked() joinReply {
	reply := joinReply{Done: true, Session: m.session}
	for _, j := range m.arrived {
		reply.Peers = append(reply.Peers, j.Endpoint)
	}
	return reply
}

// seenLocked says what may explain that workers are missing.
func (m *master) seenLocked() string {
	text := ""
	for _, r := range m.refused {
		text += "; turned away: " + r
	}
	if m.node == nil {
		return text
	}
	if n := m.node.OtherJobs(); n > 0 {
		text += fmt.Sprintf("; workers of another job were refused %d times: do all workers of this one have the same "+
			"SAR_JOB_TOKEN?", n)
	}
	if err := m.node.Trouble(); err != nil {
		text += fmt.Sprintf("; rank 0 cannot accept connections: %v", err)
	}
	return text
}

func missingError(missing []int, seen string, cfg Config) error {
	return rendezvousf("%s of %d did not come to %s port %d within %g s: were all workers started, and did one end with "+
		"an error?%s",
		listRanks(missing), cfg.World, cfg.MasterAddr, cfg.MasterPort, cfg.Start.Seconds(), seen)
}

// listRanks says "rank 1", or "ranks 1, 2".
func listRanks(ranks []int) string {
	names := make([]string, len(ranks))
	for i, r := range ranks {
		names[i] = fmt.Sprint(r)
	}
	word := "rank "
	if len(ranks) > 1 {
		word = "ranks "
	}
	return word + strings.Join(names, ", ")
}

// replyTime is for the reply to a handled call to leave the process; gorpc does
// not tell when it has.
const replyTime = 200 * time.Millisecond

// linger gives those who have come the time to hear of the end.
func (m *master) linger(limit time.Duration) {
	defer time.Sleep(replyTime)
	m.mu.Lock()
	m.told = make(chan struct{}, m.world)
	waiting := 0
	for _, w := range m.arrived {
		if w != nil && w.Rank != 0 && !w.told && now()-w.seen < vanishTime {
			waiting++
		}
	}
	m.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for range waiting {
		select {
		case <-m.told:
		case <-timer.C:
			return
		}
	}
}
