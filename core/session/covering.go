package session

import (
	"hash/maphash"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/expr"
	"sar/core/graph"
	"sar/core/internal/view"
	"sar/core/mem"
	"sar/core/topology"
)

// coverings is what a graph knows of the sums that travel in place of rows.
type coverings struct {
	agreed  [numExchanges]bool // settings of exchange that all ranks have had
	weights []*sharedWeights   // the last ones
	traffic map[*graph.Relation][]traffic
	seed    maphash.Seed
}

// sharedWeights are weights of edges that sums were asked for with.
type sharedWeights struct {
	rel    *graph.Relation
	price  graph.Price
	digest int64             // of what all workers have
	owners []mem.Array[byte] // what owners of sources got; nil: nothing yet
}

// keptWeights is of how many weights owners of sources keep what they got.
const keptWeights = 8

func (w *sharedWeights) free() {
	for i := range w.owners {
		w.owners[i].Free()
	}
}

// asked is what a program is asked for with.
type asked struct {
	plan     *expr.GradientPlan // of backward; nil: forward
	half     bool               // rows, or in backward the gradients of results, are bfloat16
	weights  []byte             // of edges, size bytes each; size 0: none
	size     int
	elemSize int // of results
}

// covering decides which rows a program sends, and which sums, or partial results, in place of the others. Collective.
func (g *Graph) covering(rel *graph.Relation, p Program, ask asked) (c exchange.Covering, err error) {
	if _, plain := p.PlainSum(); !plain {
		return g.programCovering(rel, p, ask)
	}
	if rel.Parts == 1 || g.topo.IsBlock() {
		return c, nil
	}
	how := Exchange(g.session.exchange.Load())
	err = g.choose("which sums travel in place of rows", how, func(train *comm.Communicator) (err error) {
		if how == ExchangePull {
			return nil
		}
		c.Price = how.price(ask)
		if c.Cover, err = g.topo.Cover(train, rel, c.Price); err != nil || c.Cover == nil || ask.size == 0 {
			return err
		}
		w, err := g.shareWeights(train, rel, c.Price, ask)
		if err != nil || w == nil {
			c.Cover = nil
			return err
		}
		for i := range w.owners {
			c.Weights = append(c.Weights, w.owners[i].Data)
		}
		return nil
	})
	return c, err
}

// price is what a sum costs beside a row.
func (e Exchange) price(ask asked) graph.Price {
	switch {
	case e == ExchangePush:
		return graph.SumIsFree
	case !ask.half:
		return graph.SumIsOne
	case ask.plan != nil: // rows of destinations in bfloat16, and sums that are not
		return graph.SumIsHalf
	}
	return graph.SumIsDouble
}

// shareWeights gives owners of sources the weights of the edges whose sums they make, where these are asked for the
// second time: weights that change with every step would travel as often. nil: not now. All ranks get the same answer.
func (g *Graph) shareWeights(c *comm.Communicator, rel *graph.Relation, price graph.Price, ask asked) (*sharedWeights,
	error) {
	know := &g.coverings
	if know.seed == (maphash.Seed{}) {
		know.seed = maphash.MakeSeed()
	}
	sum, err := c.SumInts(int64(maphash.Bytes(know.seed, ask.weights)))
	if err != nil {
		return nil, err
	}
	for _, w := range know.weights {
		if w.rel != rel || w.price != price || w.digest != sum[0] {
			continue
		}
		if w.owners == nil {
			w.owners, err = topology.Weights(c, rel, price, ask.weights, ask.size)
		}
		return w, err
	}
	know.weights = append(know.weights, &sharedWeights{rel: rel, price: price, digest: sum[0]})
	if len(know.weights) > keptWeights {
		know.weights[0].free()
		know.weights = know.weights[1:]
	}
	return nil, nil
}

// choose runs f, which is collective, once all ranks are known to have the same setting of exchange.
func (g *Graph) choose(what string, how Exchange, f func(train *comm.Communicator) error) error {
	return g.session.collective("choosing "+what, func() error {
		train, err := g.session.Comm(Train)
		if err == nil {
			err = g.agree(train, how)
		}
		if err != nil {
			return err
		}
		return f(train)
	})
}

// agree holds the ranks' settings of exchange against each other, once each.
func (g *Graph) agree(c *comm.Communicator, how Exchange) error {
	if g.coverings.agreed[how] {
		return nil
	}
	sum, err := c.SumInts(int64(how), int64(how*how))
	if err != nil {
		return err
	}
	if p := int64(c.World()); sum[0] != int64(how)*p || sum[1] != int64(how*how)*p {
		return Invalid("the ranks have different settings of exchange, of which this one has %d: set the same on all", how)
	}
	g.coverings.agreed[how] = true
	return nil
}

// weightsOf are the weights of a plain sum as bytes, and the size of those of an edge.
func weightsOf[T Float](p Program, c ProgramCall[T]) (all []byte, size int) {
	if sum, plain := p.PlainSum(); plain && sum.Weights >= 0 {
		w := c.Operands[sum.Weights]
		return view.Bytes(w.Data), p.Operands[sum.Weights].Width * view.Size[T]()
	}
	return nil, 0
}
