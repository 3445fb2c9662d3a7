package comm

import (
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

// watch sends signs of life to every peer of another process and notices whose stop.
func (g *Group) watch() {
	every := g.cfg.pingEvery()
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := now()
	for g.beat(tick) {
		g.send(message{Type: msgPing, Memory: g.ownMemory()}, func(p *peer) bool { return !p.inside })
		t := now()
		// Where this process itself was stopped, the others' silence is ours.
		asleep := t-last > every+g.cfg.Liveness/3
		last = t
		for r, p := range g.peers {
			if p == nil || p.inside || p.gone() {
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

// report beats at the coordinator until the group ends. Rank 0's silence on
// this way, too, is its loss. Afterwards nobody needs the connection, and the
// attempts to restore it end.
func (g *Group) report() {
	if c, ok := g.coord.(*client); ok {
		defer c.stop()
	}
	every := g.cfg.beatEvery()
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, heard := now(), now()
	for on := true; on; on = g.beat(tick) {
		reply, err := g.coord.beat(g.snapshot())
		t := now()
		if t-last > every+g.cfg.Liveness { // this process was stopped
			heard = t
		}
		last = t
		if err == nil {
			heard = t
			g.learn(reply)
		} else if root := g.peers[0]; root != nil {
			if root.gone() {
				return // rank 0 has shut down; pings and links tell the rest
			}
			if t-heard > g.cfg.Liveness {
				g.lost(0, "it has not answered for %.1f s: it was stopped or cut off", (t - heard).Seconds())
			}
		}
	}
}

// arbitrate looks for divergence; rank 0 alone does.
func (g *Group) arbitrate(h *hub) {
	tick := time.NewTicker(g.cfg.beatEvery())
	defer tick.Stop()
	for g.beat(tick) {
		h.diverge()
	}
}

// learn takes what the coordinator knows of the others.
func (g *Group) learn(reply beatReply) {
	if len(reply.Phases) == g.cfg.World {
		for r, p := range g.peers {
			if p == nil {
				continue
			}
			if old := p.told.Load(); old == nil || old.Phase != reply.Phases[r] {
				p.told.Store(&sighting{reply.Phases[r], now()})
			}
		}
	}
	if reply.Failure != nil {
		host := g.self.Host
		if g.peers[0] != nil {
			host = g.peers[0].Host
		}
		g.fail(reply.Failure.unpack(g.cfg.Rank, 0, host), false)
	}
}

// snapshot is this rank's beat.
func (g *Group) snapshot() beatRequest {
	g.mu.Lock()
	comms := append([]*Communicator(nil), g.comms...)
	setup := g.setup
	g.mu.Unlock()
	req := beatRequest{Session: g.session, Rank: g.cfg.Rank, Progress: g.frames.Load(), Comms: []commState{setup.state()}}
	latest := setup
	for _, c := range comms {
		c.mu.Lock()
		s := c.schedule
		for _, l := range c.links {
			if l != nil {
				st := l.Stats()
				req.Progress += st.SentFrames + st.RecvFrames
			}
		}
		c.mu.Unlock()
		req.Comms = append(req.Comms, s.state())
		if s.changed > latest.changed {
			latest = s
		}
	}
	req.Latest = latest.Phase
	return req
}

// phaseOf names what rank r was last known to do: the newest of what the
// coordinator told, which lags by the beats of r and of this rank, and of the
// frames that came from r.
func (g *Group) phaseOf(r int) string {
	p := g.peers[r]
	var what sighting
	if told := p.told.Load(); told != nil {
		what = *told
	}
	if seen := p.seen.Load(); seen != nil && seen.newer(what, 2*g.cfg.beatEvery()) {
		what = *seen
	}
	switch {
	case what.Kind == KindNone:
		return "at start-up"
	case what.Active:
		return "in " + what.describe(g.commName(what.Comm))
	}
	return "after " + what.describe(g.commName(what.Comm))
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

// start begins to watch the peers; h is rank 0's, nil elsewhere.
func (g *Group) start(h *hub) {
	if g.cfg.World == 1 {
		return
	}
	g.wg.Go(g.watch)
	g.wg.Go(g.report)
	if h != nil {
		g.wg.Go(func() { g.arbitrate(h) })
	}
}
