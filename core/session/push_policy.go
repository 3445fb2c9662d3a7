package session

import (
	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/expr"
	"sar/core/graph"
	"sar/core/topology"
)

// Exchange says who computes over edges between two workers: the reader of their sources, whom rows of those are sent
// (pull), or the owner of the sources, who is sent rows of destinations where it needs them and sends results for
// these (push). In backward rows are gradients where values do not matter.
type Exchange int32

const (
	ExchangeAuto Exchange = iota // what is fewer bytes, edge by edge
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

// pushes tells whether the owner of the sources computes over the edges of a shard.
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

// traffic is what would travel between all workers at a price.
type traffic struct{ rows, sums int64 }

// trafficOf is that of each price, and of rows alone last. Collective where it has not been asked before.
func (g *Graph) trafficOf(c *comm.Communicator, rel *graph.Relation) ([]traffic, error) {
	if x := g.coverings.traffic[rel]; x != nil {
		return x, nil
	}
	// A sum first: a rank that finds itself choosing what a plain sum sends begins with something else, and hears of it.
	counts := make([]int64, 2*(graph.NumPrices+2))
	for r := 1; r < rel.Parts; r++ {
		h := rel.Halo[r]
		for price := range graph.NumPrices {
			counts[2*price] += int64(h.Leading[price])
			counts[2*price+1] += int64(h.Sums[price])
		}
		counts[2*graph.SumIsFree+2] += int64(h.End - h.Begin)
	}
	counts, err := c.SumInts(counts...)
	if err != nil {
		return nil, err
	}
	free, err := g.topo.ShardsOf(c, rel, graph.SumIsFree)
	if err != nil {
		return nil, err
	}
	reached := int64(0)
	for _, of := range free.In {
		reached += of.Rows
	}
	sum, err := c.SumInts(reached)
	if err != nil {
		return nil, err
	}
	counts[2*graph.SumIsFree+1] = sum[0]
	var all []traffic
	for i := 0; i < len(counts); i += 2 {
		all = append(all, traffic{counts[i], counts[i+1]})
	}
	if g.coverings.traffic == nil {
		g.coverings.traffic = map[*graph.Relation][]traffic{}
	}
	g.coverings.traffic[rel] = all
	return all, nil
}

// cheapest is the price whose cover moves the fewest bytes, where a row and a sum take so many; ok is false where rows
// alone are about as few.
func (e Exchange) cheapest(all []traffic, row, sum int) (price graph.Price, ok bool) {
	switch e {
	case ExchangePull:
		return 0, false
	case ExchangePush:
		return graph.SumIsFree, true
	}
	least := all[len(all)-1].rows * int64(row)
	least -= least / graph.CoverGain
	for i, x := range all[:len(all)-1] {
		if bytes := x.rows*int64(row) + x.sums*int64(sum); bytes < least {
			price, ok, least = graph.Price(i), true, bytes
		}
	}
	return price, ok
}

// programCovering decides which rows a program that is no plain sum sends. Collective.
func (g *Graph) programCovering(rel *graph.Relation, p Program, ask asked) (c exchange.Covering, err error) {
	if rel.Parts == 1 || g.topo.IsBlock() {
		return c, nil
	}
	if plan := ask.plan; plan != nil {
		if plan.PickBytes == 0 {
			return c, nil
		}
		return g.coveringOf(rel, plan.ReturnBytes, plan.PickBytes, true)
	}
	layout := p.Partial(ask.elemSize)
	if layout == nil {
		return c, nil
	}
	return g.coveringOf(rel, layout.RowBytes, layout.SentBytes+layout.ReturnedBytes, layout.Ranked)
}

// coveringOf is the cheapest one where a row and a sum take so many bytes.
func (g *Graph) coveringOf(rel *graph.Relation, row, sum int, ranked bool) (c exchange.Covering, err error) {
	how := Exchange(g.session.exchange.Load())
	err = g.choose("which partial results travel in place of rows", how, func(train *comm.Communicator) error {
		all, err := g.trafficOf(train, rel)
		if err != nil {
			return err
		}
		price, ok := how.cheapest(all, row, sum)
		if !ok {
			return nil
		}
		c.Price = price
		if ranked {
			c.Cover, err = g.topo.Ranked(train, rel, price)
		} else {
			c.Cover, err = g.topo.Cover(train, rel, price)
		}
		return err
	})
	return c, err
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
	err := g.choose("how gradients of edge expressions travel", how, func(train *comm.Communicator) (err error) {
		push, err = g.decide(train, rel, size, how)
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

func (g *Graph) decide(train *comm.Communicator, rel *graph.Relation, size rowSizes, how Exchange) (*exchange.PushPlan,
	error) {
	travels, err := g.trafficOf(train, rel)
	if err != nil {
		return nil, err
	}
	price, ok := how.cheapest(travels, size.pull, size.push)
	if !ok {
		return nil, nil
	}
	all, err := g.topo.ShardsOf(train, rel, price)
	if err != nil {
		return nil, err
	}
	p, pushing := rel.Parts, &rel.Pushed[price]
	push := &exchange.PushPlan{Price: price, Out: make([]bool, p), In: make([]bool, p)}
	var pushed, pulls, lacking int64
	for r := 1; r < p; r++ {
		to, from := (rel.Rank+r)%p, (rel.Rank-r+p)%p
		push.Out[r] = how.pushes(all.Out[r], size, train.Link(to).ByteCost)
		push.In[r] = how.pushes(all.In[r], size, train.Link(from).ByteCost)
		switch {
		case push.In[r]:
			pushed++
			if len(pushing.Reached) == 0 || len(pushing.Reached[r].Data) == 0 {
				lacking++
			}
			pulls += int64(rel.Halo[r].Lead(price))
		default:
			pulls += int64(rel.Halo[r].End - rel.Halo[r].Begin)
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
		err = g.topo.HandOver(train, rel, price, push.Out, push.In)
	}
	return push, err
}
