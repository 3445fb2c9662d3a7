package comm

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// meetRequest is what a rank brings to a meeting. It asks rank 0 once.
type meetRequest struct {
	Key   string
	Value []byte
}

// meetReply is what rank 0 tells all ranks of a meeting when there is news of it: everyone has
// come, somebody who has not has left, or it has taken too long.
type meetReply struct {
	Key     string
	Values  [][]byte `json:",omitempty"` // by rank, when everyone has come
	Missing []int    `json:",omitempty"` // who has not come
	Left    []int    `json:",omitempty"` // who of them has said goodbye
}

// Phase is what a rank does or, not Active, last did. The zero value: nothing yet.
type Phase struct {
	Step
	Active bool
}

// commState is the place of a rank in the schedule of one communicator.
type commState struct {
	Phase
	Caller uint64 // see schedule
}

// position is where a rank is in its schedules. It tells rank 0 with its signs of life.
type position struct {
	Progress uint64
	Latest   Phase
	Comms    []commState
}

// hub is rank 0's side of meetings, and knows where all ranks are in their schedules.
type hub struct {
	g *Group

	mu       sync.Mutex
	meetings map[string]*meeting
	ranks    []report
}

type meeting struct {
	values [][]byte
	here   []bool
	late   *time.Timer
}

// report is what a rank has last told.
type report struct {
	position
	at, since time.Duration // when it came, and since when nothing in it has changed
}

func newHub(g *Group) *hub {
	return &hub{g: g, meetings: map[string]*meeting{}, ranks: make([]report, g.cfg.World)}
}

// gone tells whether rank r has said goodbye.
func (h *hub) gone(r int) bool { return h.g.peers[r] != nil && h.g.peers[r].gone() }

// attend takes rank r into a meeting.
func (h *hub) attend(r int, ask meetRequest) {
	h.mu.Lock()
	m := h.meetings[ask.Key]
	if m == nil {
		m = &meeting{values: make([][]byte, len(h.ranks)), here: make([]bool, len(h.ranks))}
		m.late = time.AfterFunc(h.g.cfg.Operation, func() { h.news(ask.Key, true) })
		h.meetings[ask.Key] = m
	}
	m.here[r], m.values[r] = true, ask.Value
	h.mu.Unlock()
	h.news(ask.Key, false)
}

// left tells of the meetings to which a rank that has said goodbye has not come.
func (h *hub) left() {
	h.mu.Lock()
	keys := slices.Collect(maps.Keys(h.meetings))
	h.mu.Unlock()
	for _, key := range keys {
		h.news(key, false)
	}
}

// news tells all ranks of a meeting if there is something to tell.
func (h *hub) news(key string, late bool) {
	h.mu.Lock()
	m := h.meetings[key]
	if m == nil {
		h.mu.Unlock()
		return
	}
	reply := meetReply{Key: key}
	for r, here := range m.here {
		if !here {
			reply.Missing = append(reply.Missing, r)
			if h.gone(r) {
				reply.Left = append(reply.Left, r)
			}
		}
	}
	full := len(reply.Missing) == 0
	if full {
		reply.Values = m.values
		m.late.Stop()
		delete(h.meetings, key)
	}
	h.mu.Unlock()
	if full || late || len(reply.Left) > 0 {
		h.g.tell(message{Type: msgMeet, Answer: &reply})
		deliver(&h.g.meetings, reply.Key, reply)
	}
}

// stop ends the meetings that are open.
func (h *hub) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, m := range h.meetings {
		m.late.Stop()
		delete(h.meetings, key)
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
	phases := make([]Phase, len(h.ranks))
	for r := range phases {
		phases[r] = h.ranks[r].Latest
	}
	return phases
}

func same(a, b position) bool {
	return a.Progress == b.Progress && slices.Equal(a.Comms, b.Comms)
}

// stillTime is how long nobody may have moved before diverge looks.
const stillTime = 2 * time.Second

// diverge finds two ranks that wait for each other in different operations and
// ends the group with a ScheduleError. Frames cannot show this: where each
// waits for the other to come, none are sent.
//
// Every rank must have been inside some operation, without a frame sent or
// received, for stillTime. Then two ranks diverge if they are in operation n of
// one communicator with different kinds, or if one is in operation n of X and
// the other in operation m of Y, and neither has reached the other's, and
// neither can: the thread that would have to is the one that waits. A rank that
// is outside of operations, however long, is slow and no more.
func (h *hub) diverge() {
	h.mu.Lock()
	t := now()
	var active [][]commState
	for r := range h.ranks {
		rep := &h.ranks[r]
		var in []commState
		for _, c := range rep.Comms {
			if c.Active {
				in = append(in, c)
			}
		}
		if rep.at == 0 || len(in) == 0 || t-rep.since < stillTime || h.gone(r) {
			h.mu.Unlock()
			return
		}
		active = append(active, in)
	}
	var found *ScheduleError
search:
	for a := range active {
		for b := a + 1; b < len(active); b++ {
			for _, x := range active[a] {
				for _, y := range active[b] {
					if apart(x, y, h.ranks[a].Comms, h.ranks[b].Comms) {
						found = &ScheduleError{Rank: a, Peer: b, Mine: x.describe(h.g.commName(x.Comm)),
							Theirs: y.describe(h.g.commName(y.Comm))}
						break search
					}
				}
			}
		}
	}
	h.mu.Unlock()
	if found != nil {
		h.g.fail(found, true)
	}
}

// apart tells whether rank a in x and rank b in y can never meet.
func apart(x, y commState, a, b []commState) bool {
	if x.Comm == y.Comm {
		return x.Seq == y.Seq && !x.meets(y.Step)
	}
	return blocked(x, y, a) && blocked(y, x, b)
}

// blocked tells whether a rank that waits in the operation own has not reached
// other and cannot: the one who called uses that communicator too, or nobody did.
func blocked(own, other commState, states []commState) bool {
	for _, s := range states {
		if s.Comm == other.Comm {
			return s.Seq < other.Seq && !s.Active && (s.Seq == 0 || s.Caller != 0 && s.Caller == own.Caller)
		}
	}
	return true
}
