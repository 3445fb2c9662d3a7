package comm

import "time"

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
						found = &ScheduleError{Rank: a, Peer: b, Mine: x.describe(h.name(x.Comm)), Theirs: y.describe(h.name(y.Comm))}
						break search
					}
				}
			}
		}
	}
	h.mu.Unlock()
	if found != nil {
		h.fail(found)
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
