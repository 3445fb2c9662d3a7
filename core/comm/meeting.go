package comm

import (
	"fmt"
	"sync"
	"time"
)

// mostAsks is how many questions of one rank rank 0 answers at once. Each waits pollTime at most.
const mostAsks = 16

// asker is the coordinator of all ranks but rank 0: it asks rank 0 over their connection for control.
type asker struct {
	g    *Group
	mu   sync.Mutex
	open map[string]chan meetReply // by key
}

func (a *asker) meet(req meetRequest) (none meetReply, err error) {
	encoded, err := message{Type: msgMeet, Ask: &req}.encoded()
	if err != nil {
		return none, err
	}
	answer := make(chan meetReply, 1)
	a.mu.Lock()
	a.open[req.Key] = answer
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.open, req.Key)
		a.mu.Unlock()
	}()
	root := a.g.peers[0]
	if err := root.control.send(encoded); err != nil {
		return none, err
	}
	limit := max(time.Second, a.g.cfg.Liveness/3)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case reply := <-answer:
		return reply, nil
	case <-a.g.failed:
	case <-a.g.done:
	case <-timer.C:
		return none, fmt.Errorf("no answer from rank 0 within %g s", limit.Seconds())
	case <-root.over:
		select {
		case reply := <-answer: // the last that came
			return reply, nil
		default:
		}
	}
	return none, fmt.Errorf("no answer from rank 0: the connection has ended")
}

// answered hands an answer to who waits for it.
func (a *asker) answered(reply meetReply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case a.open[reply.Key] <- reply: // of nobody, or the second: not waited for
	default:
	}
}

// met takes a question of rank r about a meeting at rank 0, or an answer of rank 0.
func (g *Group) met(r int, p *peer, m message) {
	switch c := g.coord.(type) {
	case *hub:
		if m.Ask == nil {
			return
		}
		ask := *m.Ask
		ask.Rank = r
		p.asks <- struct{}{}
		g.wg.Go(func() {
			defer func() { <-p.asks }()
			reply, err := c.attend(ask)
			if err != nil {
				return
			}
			g.send(message{Type: msgMeet, Answer: &reply}, func(q *peer) bool { return q == p })
			c.delivered(ask, reply)
		})
	case *asker:
		if r == 0 && m.Answer != nil {
			c.answered(*m.Answer)
		}
	}
}
