package comm

import (
	"time"

	"sar/core/transport"
)

// KindStats is what operations of one kind have cost this rank. Bytes include
// frame headers. Waiting is the time blocked on links, of sender and receiver
// together where both run.
type KindStats struct {
	Count       uint64  `json:"count"`
	Seconds     float64 `json:"seconds"`
	WaitSeconds float64 `json:"wait_seconds"`
	SentBytes   uint64  `json:"sent_bytes"`
	RecvBytes   uint64  `json:"recv_bytes"`
}

// PeerStats is another worker as statistics show it.
type PeerStats struct {
	Rank      int    `json:"rank"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	Transport string `json:"transport"` // of the links to it; "" before there is one
}

// LinkTotal is what one communicator has carried to and from one peer.
type LinkTotal struct {
	Peer         int    `json:"peer"`
	Communicator string `json:"communicator"`
	Transport    string `json:"transport"`
	transport.LinkStats
	// Of the sent payload, what travelled in each Way.
	SentPulled uint64 `json:"sent_pulled"`
	SentHome   uint64 `json:"sent_home"`
	SentPushed uint64 `json:"sent_pushed"`
	// WaitSeconds is the time blocked on the link, for frames or for room.
	WaitSeconds float64 `json:"wait_seconds"`
}

// Way is what rows travel for.
type Way uint8

const (
	Pulled  Way = iota // rows go to whoever reads them
	ToOwner            // what was computed for rows, sums and gradients, goes to their owner
	Pushed             // rows of destinations go to the owner of sources
	numWays            //
)

// Moved counts payload bytes that were sent to peer as rows.
func (op *Op) Moved(peer int, way Way, bytes int) { op.c.moved[peer][way].Add(uint64(bytes)) }

// Stats is what a group has done so far.
type Stats struct {
	Rank       int                  `json:"rank"`
	World      int                  `json:"world"`
	Peers      []PeerStats          `json:"peers"`
	Links      []LinkTotal          `json:"links"`
	Operations map[string]KindStats `json:"operations"` // by name of the kind
}

// Stats returns what this rank has done so far.
func (g *Group) Stats() Stats {
	s := Stats{Rank: g.cfg.Rank, World: g.cfg.World, Peers: []PeerStats{}, Links: []LinkTotal{},
		Operations: map[string]KindStats{}}
	g.statsMu.Lock()
	for k, v := range g.kinds {
		if v.Count > 0 {
			s.Operations[Kind(k).String()] = v
		}
	}
	g.statsMu.Unlock()
	comms := g.communicators()
	kinds := make([]string, g.cfg.World)
	for _, c := range comms {
		c.mu.Lock()
		for r, total := range c.carried {
			if r == g.cfg.Rank {
				continue
			}
			l := LinkTotal{Peer: r, Communicator: c.name, LinkStats: total}
			if c.links != nil {
				l.Transport = c.links[r].Properties().Kind
				l.LinkStats = addLinkStats(total, c.links[r].Stats())
				kinds[r] = l.Transport
			}
			moved := &c.moved[r]
			l.SentPulled, l.SentHome, l.SentPushed = moved[Pulled].Load(), moved[ToOwner].Load(), moved[Pushed].Load()
			l.WaitSeconds = time.Duration(c.waited[r].Load()).Seconds()
			s.Links = append(s.Links, l)
		}
		c.mu.Unlock()
	}
	for r, p := range g.peers {
		if p != nil {
			s.Peers = append(s.Peers, PeerStats{Rank: r, Host: p.Host, PID: p.PID, Transport: kinds[r]})
		}
	}
	return s
}

// Link is what the link to a peer says of itself.
func (c *Communicator) Link(peer int) transport.Properties {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links == nil || c.links[peer] == nil {
		return transport.Properties{}
	}
	return c.links[peer].Properties()
}

func (g *Group) count(k Kind, add KindStats) {
	if k >= numKinds {
		return
	}
	g.statsMu.Lock()
	defer g.statsMu.Unlock()
	s := &g.kinds[k]
	s.Count += add.Count
	s.Seconds += add.Seconds
	s.WaitSeconds += add.WaitSeconds
	s.SentBytes += add.SentBytes
	s.RecvBytes += add.RecvBytes
}

// carriedNow is what all links of c have carried. c.mu is held.
func (c *Communicator) carriedNow() transport.LinkStats {
	var sum transport.LinkStats
	for r, total := range c.carried {
		sum = addLinkStats(sum, total)
		if c.links != nil && c.links[r] != nil {
			sum = addLinkStats(sum, c.links[r].Stats())
		}
	}
	return sum
}

func addLinkStats(a, b transport.LinkStats) transport.LinkStats {
	a.SentFrames += b.SentFrames
	a.SentPayload += b.SentPayload
	a.SentBytes += b.SentBytes
	a.RecvFrames += b.RecvFrames
	a.RecvPayload += b.RecvPayload
	a.RecvBytes += b.RecvBytes
	return a
}

func (g *Group) ownMemory() map[string]int64 {
	if g.cfg.Memory == nil {
		return nil
	}
	return g.cfg.Memory()
}

// Memory returns what every rank has last told of its memory, by rank; nil of
// one that has told nothing. It waits at most so long for goodbyes, with which
// the last figures come.
func (g *Group) Memory(wait time.Duration) ([]map[string]int64, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	out := make([]map[string]int64, g.cfg.World)
	waiting := true
	for r, p := range g.peers {
		if p == nil {
			continue
		}
		if waiting {
			select {
			case <-p.bye:
			case <-g.failed:
			case <-timer.C:
				waiting = false
			}
		}
		if m := p.memory.Load(); m != nil {
			out[r] = *m
		}
	}
	if err := g.Failure(); err != nil {
		return nil, err
	}
	out[g.cfg.Rank] = g.ownMemory()
	return out, nil
}
