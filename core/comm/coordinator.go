package comm

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// coordinator is what every rank asks of rank 0: the hub at rank 0, and for the others
// their connection for control to it.
type coordinator interface {
	// meet leaves this rank's value at a meeting and waits for a moment
	// whether everyone has come. It is called until the reply says Done.
	meet(meetRequest) (meetReply, error)
}

// errStranger answers requests that no member of the group makes.
var errStranger = errors.New("request from outside of the group")

type meetRequest struct {
	Rank  int
	Key   string
	Value []byte
}

type meetReply struct {
	Key     string
	Done    bool
	Values  [][]byte // by rank
	Missing []int    // who has not come
}

// Phase is what a rank does or, not Active, last did. The zero value: nothing yet.
type Phase struct {
	Step
	Active bool
}

// commState is the place of a rank in the schedule of one communicator.
type commState struct {
	Phase
	Lane uint64 // the caller, see schedule
}

// position is where a rank is in its schedules. It tells rank 0 with its signs of life.
type position struct {
	Progress uint64
	Latest   Phase
	Comms    []commState
}

// hub is rank 0's side of coordination.
type hub struct {
	world   int
	fail    func(error) error // ends rank 0's group, which tells everyone
	failure func() error
	gone    func(r int) bool // has said goodbye
	name    func(comm uint32) string

	mu       sync.Mutex
	meetings map[string]*meeting
	ranks    []report
}

type meeting struct {
	values  [][]byte
	here    []bool
	fetched []bool
	count   int
	left    int // who has the reply
	full    chan struct{}
}

// report is what a rank has last told.
type report struct {
	position
	at, since time.Duration // when it came, and since when nothing in it has changed
}

func newHub(g *Group) *hub {
	return &hub{
		world: g.cfg.World,
		fail:  func(err error) error { return g.fail(err, true) }, failure: g.Failure,
		gone:     func(r int) bool { return g.peers[r] != nil && g.peers[r].gone() },
		name:     g.commName,
		meetings: map[string]*meeting{},
		ranks:    make([]report, g.cfg.World),
	}
}

// pollTime is how long one call of meet waits.
const pollTime = 200 * time.Millisecond

// within waits until done is closed, but no longer than limit.
func within(limit time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

func (h *hub) meet(req meetRequest) (meetReply, error) {
	reply, err := h.attend(req)
	h.delivered(req, reply)
	return reply, err
}

// attend is meet for who has to deliver the reply.
func (h *hub) attend(req meetRequest) (meetReply, error) {
	if req.Rank < 0 || req.Rank >= h.world {
		return meetReply{}, errStranger
	}
	h.mu.Lock()
	m := h.meetings[req.Key]
	if m == nil {
		m = &meeting{values: make([][]byte, h.world), here: make([]bool, h.world), fetched: make([]bool, h.world), full: make(chan struct{})}
		h.meetings[req.Key] = m
	}
	if !m.here[req.Rank] {
		m.here[req.Rank], m.values[req.Rank] = true, req.Value
		if m.count++; m.count == h.world {
			close(m.full)
		}
	}
	h.mu.Unlock()
	within(pollTime, m.full)
	h.mu.Lock()
	defer h.mu.Unlock()
	reply := meetReply{Key: req.Key, Done: m.count == h.world}
	if reply.Done {
		reply.Values = m.values
		return reply, nil
	}
	for r, here := range m.here {
		if !here {
			reply.Missing = append(reply.Missing, r)
		}
	}
	return reply, nil
}

// delivered notes that who asked has the reply.
func (h *hub) delivered(req meetRequest, reply meetReply) {
	if !reply.Done {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.meetings[req.Key]
	if m == nil || m.fetched[req.Rank] {
		return
	}
	m.fetched[req.Rank] = true
	if m.left++; m.left == h.world {
		delete(h.meetings, req.Key)
	}
}

// drain waits until everyone has the reply of the meetings that are over, so
// that rank 0 may leave.
func (h *hub) drain(limit time.Duration) {
	for end := now() + limit; now() < end && h.failure() == nil; time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		open := false
		for _, m := range h.meetings {
			for r, fetched := range m.fetched {
				open = open || m.count == h.world && !fetched && !h.gone(r)
			}
		}
		h.mu.Unlock()
		if !open {
			return
		}
	}
}

// beat takes in where rank r is.
func (h *hub) beat(r int, at position) {
	if len(at.Comms) > maxComms {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	rep := &h.ranks[r]
	if rep.at == 0 || !same(rep.position, at) {
		rep.since = now()
	}
	rep.position, rep.at = at, now()
}

// phases are what all ranks do.
func (h *hub) phases() []Phase {
	h.mu.Lock()
	defer h.mu.Unlock()
	phases := make([]Phase, h.world)
	for r := range phases {
		phases[r] = h.ranks[r].Latest
	}
	return phases
}

func same(a, b position) bool {
	return a.Progress == b.Progress && slices.Equal(a.Comms, b.Comms)
}
