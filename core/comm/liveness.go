package comm

import (
	"slices"
	"sync"
	"time"
)

// listening has the addresses at which ranks of this process are reached.
var listening sync.Map

// beat waits for the next tick, and tells whether the group has not ended before it.
func (g *Group) beat(tick *time.Ticker) bool {
	select {
	case <-g.done:
	case <-g.failed:
	case <-tick.C:
		return true
	}
	return false
}

// watch sends signs of life to every peer with which there is a connection for control, and
// notices whose stop. Those to rank 0 say where this rank is, those from rank 0 where all are.
func (g *Group) watch() {
	every := g.cfg.pingEvery()
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := now()
	for on := true; on; on = g.beat(tick) {
		g.ping()
		t := now()
		// Where this process itself was stopped, the others' silence is ours.
		asleep := t-last > every+g.cfg.Liveness/3
		last = t
		for r, p := range g.peers {
			if p == nil || p.control == nil || p.inside || p.gone() {
				continue
			}
			silent := t - time.Duration(p.heard.Load())
			if asleep {
				p.heard.Store(int64(t))
			} else if silent > g.cfg.Liveness {
				g.lost(r, "no sign of life for %.1f s: it was stopped or cut off", silent.Seconds())
				return
			}
		}
	}
}

// ping sends one sign of life to each.
func (g *Group) ping() {
	m := message{Type: msgPing, Memory: g.ownMemory()}
	if g.hub != nil {
		m.Phases = g.hub.phases()
		g.tell(m)
		return
	}
	g.send(m, g.peers[1:]...)
	here := g.position()
	m.Here = &here
	g.send(m, g.peers[0])
}

// arbitrate looks for divergence; rank 0 alone does.
func (g *Group) arbitrate() {
	tick := time.NewTicker(g.cfg.beatEvery())
	defer tick.Stop()
	for on := true; on; on = g.beat(tick) {
		g.hub.beat(g.cfg.Rank, g.position())
		g.hub.diverge()
	}
}

// learn takes what a sign of life from rank r tells of the schedules.
func (g *Group) learn(r int, m message) {
	if g.hub != nil {
		if m.Here != nil {
			g.hub.beat(r, *m.Here)
		}
		return
	}
	if r != 0 || len(m.Phases) != g.cfg.World {
		return
	}
	for r, p := range g.peers {
		if p == nil {
			continue
		}
		if old := p.told.Load(); old == nil || old.Phase != m.Phases[r] {
			p.told.Store(&sighting{m.Phases[r], now()})
		}
	}
}

// position is where this rank is.
func (g *Group) position() position {
	g.mu.Lock()
	comms, setup := slices.Clone(g.comms), g.setup
	g.mu.Unlock()
	at := position{Progress: g.frames.Load(), Comms: []commState{setup.state()}}
	latest := setup
	for _, c := range comms {
		c.mu.Lock()
		s := c.schedule
		for _, l := range c.links {
			if l != nil {
				st := l.Stats()
				at.Progress += st.SentFrames + st.RecvFrames
			}
		}
		c.mu.Unlock()
		at.Comms = append(at.Comms, s.state())
		if s.changed > latest.changed {
			latest = s
		}
	}
	at.Latest = latest.Phase
	return at
}

// phaseOf names what rank r was last known to do: the newest of what the
// coordinator told, which lags by the beats of r and of rank 0, and of the
// frames that came from r.
func (g *Group) phaseOf(r int) string {
	p := g.peers[r]
	var last sighting
	if told := p.told.Load(); told != nil {
		last = *told
	}
	if seen := p.seen.Load(); seen != nil && seen.newer(last, g.cfg.toldAfter()) {
		last = *seen
	}
	switch {
	case last.Kind == KindNone:
		return "at start-up"
	case last.Active:
		return "in " + last.describe(g.commName(last.Comm))
	}
	return "after " + last.describe(g.commName(last.Comm))
}

// sighting is a phase and when this rank first knew of it.
type sighting struct {
	Phase
	at time.Duration
}

// newer tells whether s is of a later operation than t, which lags by so much.
func (s sighting) newer(t sighting, lag time.Duration) bool {
	if s.Comm == t.Comm {
		return s.Seq > t.Seq
	}
	return s.at > t.at-lag
}

// start begins to watch the peers.
func (g *Group) start() {
	if g.cfg.World == 1 {
		return
	}
	g.wg.Go(g.watch)
	if g.hub != nil {
		g.wg.Go(g.arbitrate)
	}
}
