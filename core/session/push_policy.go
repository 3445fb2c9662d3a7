package session

import (
	"sar/core/exchange"
	"sar/core/expr"
	"sar/core/graph"
	"sar/core/topology"
)

// Exchange says who computes gradients of edge expressions over edges between two workers,
// where backward reads values of sources: the reader of the sources, who fetches them again
// and sends their gradients to the owner (pull), or their owner, whom readers send rows of destinations (push).
type Exchange int32

const (
	ExchangeAuto Exchange = iota // what is cheaper, for each pair of workers
	ExchangePull
	ExchangePush // wherever a program can
	numExchanges
)

// SetExchange chooses for all programs from now on. Every rank must choose the same.
func (s *Session) SetExchange(how Exchange) error {
	if how < 0 || how >= numExchanges {
		return Invalid("exchange is %d: 0 is what is cheaper, 1 pull, 2 push", how)
	}
	s.exchange.Store(int32(how))
	return nil
}

// What computing at the owner costs beside what it saves. Rows of destinations come a
// window at a time, so a source's row is read and its gradient read and written anew for about
// every edge, in place of once: so many nanoseconds a byte. What a byte that travels takes, the
// link says; over shared memory it is so little that edges are kept twice only where there
// are few of them for each source (5 of GAT's).
const rereadCost = 0.005

// rowSizes are the bytes of what travels both ways for a source (pull) and for a
// destination (push), and of the gradients of a source.
type rowSizes struct{ pull, push, gradient int }

// pushes tells whether the owner of the sources computes.
func (e Exchange) pushes(x topology.Shard, size rowSizes, byteCost float64) bool {
	switch {
	case e == ExchangePull || x.Edges == 0:
		return false
	case e == ExchangePush:
		return true
	}
	saved := float64(x.Sources*int64(size.pull)-x.Rows*int64(size.push)) * byteCost
	return saved > float64(x.Edges)*float64(3*size.gradient)*rereadCost
}

type pushKey struct {
	rel *graph.Relation
	rowSizes
	how Exchange
}

// pushPlan decides which pairs of workers push in backward; nil: none. What they need
// for that is built. Collective where it has not been asked the same before.
func (g *Graph) pushPlan(rel *graph.Relation, plan *expr.GradientPlan) (*exchange.PushPlan, error) {
	how := Exchange(g.session.exchange.Load())
	// A block is not used often enough for a structure of its own.
	if how == ExchangePull || rel.Parts == 1 || plan.Push == nil || g.topo.IsBlock() {
		return nil, nil
	}
	size := rowSizes{pull: plan.FetchBytes + plan.ReturnBytes, push: plan.Push.SentBytes + plan.Push.ReturnedBytes,
		gradient: plan.ReturnBytes}
	key := pushKey{rel, size, how}
	push, ok := g.plans[key]
	if ok {
		return push, nil
	}
	err := g.session.collective("choosing how gradients of edge expressions travel", func() (err error) {
		push, err = g.decide(rel, size, how)
		return err
	})
	if err != nil {
		return nil, err
	}
	if g.plans == nil {
		g.plans = map[pushKey]*exchange.PushPlan{}
	}
	g.plans[key] = push
	return push, nil
}

func (g *Graph) decide(rel *graph.Relation, size rowSizes, how Exchange) (*exchange.PushPlan, error) {
	s := g.session
	train, err := s.Comm(Train)
	if err != nil {
		return nil, err
	}
	if err := g.agree(train, how); err != nil {
		return nil, err
	}
	all, err := g.topo.ShardsOf(train, rel)
	if err != nil {
		return nil, err
	}
	p := rel.Parts
	push := &exchange.PushPlan{Out: make([]bool, p), In: make([]bool, p)}
	var pushed, pulls, lacking int64
	for r := 1; r < p; r++ {
		to, from := (rel.Rank+r)%p, (rel.Rank-r+p)%p
		push.Out[r] = how.pushes(all.Out[r], size, train.Link(to).ByteCost)
		push.In[r] = how.pushes(all.In[r], size, train.Link(from).ByteCost)
		switch {
		case push.In[r]:
			pushed++
			if len(rel.Reached) == 0 || len(rel.Reached[r].Data) == 0 {
				lacking++
			}
		case all.In[r].Edges > 0:
			pulls++
		}
	}
	sum, err := train.SumInts(pushed, pulls, lacking)
	if err != nil {
		return nil, err
	}
	if sum[0] == 0 {
		return nil, nil
	}
	push.Pulls = sum[1] > 0
	if sum[2] > 0 {
		err = g.topo.HandOver(train, rel, push.Out, push.In)
	}
	return push, err
}
