package comm

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// coordinator is what every rank asks of rank 0. Rank 0, and ranks that share
// its process, call the hub; the others reach it over gorpc.
type coordinator interface {
	// meet leaves this rank's value at a meeting and waits for a moment
	// whether everyone has come. It is called until the reply says Done.
	meet(meetRequest) (meetReply, error)
	// beat is a sign of life.
	beat(beatRequest) (beatReply, error)
}

// errStranger answers requests that no member of the group makes.
var errStranger = errors.New("request from outside of the group")

type meetRequest struct {
	Session [16]byte
	Rank    int
	Key     string
	Value   []byte
}

type meetReply struct {
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

type beatRequest struct {
	Session  [16]byte
	Rank     int
	Progress uint64
	Latest   Phase
	Comms    []commState
}

type beatReply struct {
	Phases  []Phase // of every rank
	Failure *failure
}

// hub is rank 0's side of coordination.
type hub struct {
	session [16]byte
	world   int
	fail    func(error) error // ends rank 0's group, which tells everyone
	failure func() error
	gone    func(r int) bool // has said goodbye
	name    func(comm uint32) string
	pack    func(error) failure

	mu       sync.Mutex
	meetings map[string]*meeting
	fetched  time.Duration // when a meeting's values were last handed out
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

// report is the last beat of a rank.
type report struct {
	beatRequest
	at, since time.Duration // when it came, and since when nothing in it has changed
}

func newHub(g *Group) *hub {
	return &hub{
		session: g.session, world: g.cfg.World,
		fail: func(err error) error { return g.fail(err, true) }, failure: g.Failure,
		gone:     func(r int) bool { return g.peers[r] != nil && g.peers[r].gone() },
		name:     g.commName,
		pack:     func(err error) failure { return pack(err, g.cfg.Rank, g.self.Host) },
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
	if req.Session != h.session || req.Rank < 0 || req.Rank >= h.world {
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
	reply := meetReply{Done: m.count == h.world}
	if !reply.Done {
		for r, here := range m.here {
			if !here {
				reply.Missing = append(reply.Missing, r)
			}
		}
		return reply, nil
	}
	reply.Values = m.values
	if !m.fetched[req.Rank] {
		m.fetched[req.Rank] = true
		h.fetched = now()
		if m.left++; m.left == h.world {
			delete(h.meetings, req.Key)
		}
	}
	return reply, nil
}

// drain waits until everyone has the reply of the meetings that are over, so
// that rank 0 may leave.
func (h *hub) drain(limit time.Duration) {
	for end := now() + limit; now() < end && h.failure() == nil; time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		open := now()-h.fetched < replyTime
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

func (h *hub) beat(req beatRequest) (beatReply, error) {
	if req.Session != h.session || req.Rank < 0 || req.Rank >= h.world || len(req.Comms) > maxComms {
		return beatReply{}, errStranger
	}
	h.mu.Lock()
	r := &h.ranks[req.Rank]
	if r.at == 0 || !sameReport(r.beatRequest, req) {
		r.since = now()
	}
	r.beatRequest, r.at = req, now()
	reply := beatReply{Phases: make([]Phase, h.world)}
	for i := range h.ranks {
		reply.Phases[i] = h.ranks[i].Latest
	}
	h.mu.Unlock()
	if err := h.failure(); err != nil {
		f := h.pack(err)
		reply.Failure = &f
	}
	return reply, nil
}

func sameReport(a, b beatRequest) bool {
	return a.Progress == b.Progress && slices.Equal(a.Comms, b.Comms)
}
