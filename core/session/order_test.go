package session

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// communities is a graph large enough that its relations have an order: 34
// blocks of 500 nodes under shuffled numbers, one in five edges between blocks.
func communities(parts int) whole {
	const size, n = 500, 17_000
	rng := rand.New(rand.NewPCG(21, 22))
	g := whole{n: n, starts: make([]int64, parts+1)}
	for p := range g.starts {
		g.starts[p] = int64(n * p / parts)
	}
	name := rng.Perm(n)
	for v := range n {
		for k := range rng.IntN(20) {
			u := rng.IntN(n)
			if k%5 > 0 {
				u = v/size*size + rng.IntN(size)
			}
			g.src, g.dst = append(g.src, int64(name[u])), append(g.dst, int64(name[v]))
		}
	}
	return g
}

func TestAggregateInAnOrder(t *testing.T) {
	for _, parts := range []int{1, 2} {
		if parts == 1 && testing.Short() {
			continue
		}
		g := communities(parts)
		workers(t, parts, Config{}, func(s *Session) error {
			src, dst, _ := g.of(s.Rank())
			dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
			if err != nil {
				return err
			}
			defer dg.Free()
			if len(dg.topo.Relations[0].Order.Data) == 0 {
				return errors.New("the rows have no order")
			}
			for _, c := range []aggregateCase{{width: 9, mean: true}, {width: 8, heads: 1}, {width: 6, heads: 3, mean: true}} {
				if err := runCase[float64](s, &g, c, 23, 1e-10); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
