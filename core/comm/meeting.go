package comm

import (
	"sync"
	"time"
)

// agree meets everyone and compares what each came for.
func (g *Group) agree(key, what string) error {
	if g.cfg.World == 1 {
		return nil
	}
	values, err := g.meet(key, []byte(what))
	if err != nil {
		return err
	}
	for r, v := range values {
		if string(v) != what {
			return g.fail(&ScheduleError{Rank: g.cfg.Rank, Peer: r, Mine: what, Theirs: string(v)}, true)
		}
	}
	return nil
}

// meet gathers a value of every rank. The name of a meeting is used once.
func (g *Group) meet(key string, value []byte) ([][]byte, error) {
	answer := make(chan meetReply, 1)
	g.meetings.Store(key, answer)
	defer g.meetings.Delete(key)
	ask := meetRequest{Key: key, Value: value}
	var bye chan struct{} // of rank 0
	if g.hub != nil {
		g.hub.attend(g.cfg.Rank, ask)
	} else {
		bye = g.peers[0].bye
		g.send(message{Type: msgMeet, Ask: &ask}, g.peers[0])
	}
	// Rank 0 tells of a meeting that takes too long.
	timer := time.NewTimer(g.cfg.Operation + max(time.Second, g.cfg.Liveness/3))
	defer timer.Stop()
	reply := meetReply{Missing: []int{0}}
	select {
	case reply = <-answer:
	case <-g.failed:
	case <-g.done:
	case <-bye:
		select {
		case reply = <-answer: // it came before the goodbye
		default:
			reply.Left = reply.Missing
		}
	case <-timer.C:
	}
	if err := g.usable(); err != nil {
		return nil, err
	}
	switch {
	case reply.Values != nil:
		g.frames.Add(uint64(len(reply.Values)))
		return reply.Values, nil
	case len(reply.Left) > 0:
		return nil, g.lost(reply.Left[0], shutDown)
	}
	e := &DeadlineError{Peer: reply.Missing[0], Op: KindCreate.String(), Seconds: g.cfg.Operation.Seconds()}
	if g.peers[e.Peer] != nil {
		e.Phase = g.phaseOf(e.Peer)
	}
	return nil, g.fail(e, true)
}

// met takes what rank r says of a meeting: at rank 0 that r has come, elsewhere the news.
func (g *Group) met(r int, m message) {
	switch {
	case g.hub != nil && m.Ask != nil:
		g.hub.attend(r, *m.Ask)
	case r == 0 && m.Answer != nil && (m.Answer.Values != nil || len(m.Answer.Missing) > 0):
		deliver(&g.meetings, m.Answer.Key, *m.Answer)
	}
}

// deliver hands an answer to who waits for it. A second one, or one of nobody, is not waited for.
func deliver[V any](waiting *sync.Map, key any, answer V) {
	c, _ := waiting.Load(key)
	who, _ := c.(chan V)
	select {
	case who <- answer:
	default:
	}
}
