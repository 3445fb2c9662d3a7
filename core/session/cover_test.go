package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/graph"
)

// hubs draws a graph in which a few nodes of every worker have many edges, in and out.
func hubs(rng *rand.Rand, n, edges, parts int) whole {
	g := randomGraph(rng, n, edges, parts)
	for range edges {
		u, v := rng.IntN(n), rng.IntN(n)
		if rng.IntN(2) == 0 {
			u -= u % 20
		} else {
			v -= v % 20
		}
		g.src, g.dst = append(g.src, int64(u)), append(g.dst, int64(v))
	}
	return g
}

// sumRun is what a worker gets of a sum, and the bytes of rows that it sends for it.
type sumRun struct {
	out, gradU []float32
	sent       uint64
}

// sumTest is a case of one worker.
type sumTest struct {
	aggregateCase
	s  *Session
	g  *whole
	dg *Graph
	w  []float64 // of this worker's edges
}

// run computes forward and backward with a setting of exchange.
func (c sumTest) run(u, gradOut []float64, how Exchange) (*sumRun, error) {
	s, g, dg := c.s, c.g, c.dg
	if err := s.SetExchange(how); err != nil {
		return nil, err
	}
	lo, n := int(g.starts[s.Rank()]), int(g.starts[s.Rank()+1]-g.starts[s.Rank()])
	own := func(x []float64) Rows[float32] {
		x = x[lo*c.width : (lo+n)*c.width]
		if c.half {
			return Rows[float32]{Half: cut(slices.Clone(x)), N: n, Width: c.width}
		}
		return Rows[float32]{Data: toT[float32](x), N: n, Width: c.width}
	}
	x := &sumRun{out: make([]float32, n*c.width), gradU: make([]float32, n*c.width)}
	out, gradU := Rows[float32]{Data: x.out, N: n, Width: c.width}, Rows[float32]{Data: x.gradU, N: n, Width: c.width}
	program, before := c.program(), sentRows(s)
	call := ProgramCall[float32]{Operands: []Rows[float32]{own(u)}, Out: out}
	grads := []*Rows[float32]{&gradU}
	if c.heads > 0 {
		call.Operands = append(call.Operands, Rows[float32]{Data: toT[float32](c.w), N: len(c.w) / c.heads, Width: c.heads})
		grads = append(grads, nil)
	}
	agreed, _, err := ProgramForward(dg, program, call, 1)
	if err != nil {
		return nil, err
	}
	err = ProgramBackward(dg, program, call, agreed, own(gradOut), grads)
	x.sent = sentRows(s) - before
	return x, err
}

// received is the bytes of the rows and sums by which forward needs rows of peers, and backward gives gradients back.
func (c sumTest) received() (n uint64) {
	rel := c.dg.topo.Relations[0]
	row, sum, price, back := 4, 4, graph.SumIsOne, graph.SumIsOne
	if c.half {
		row, price, back = 2, graph.SumIsDouble, graph.SumIsHalf
	}
	for _, h := range rel.Halo[1:] {
		n += uint64(c.width * (row*int(h.Leading[price]) + sum*int(h.Sums[price])))
		n += uint64(c.width * (sum*int(h.Leading[back]) + row*int(h.Sums[back])))
	}
	return n
}

// sentRows is the bytes of rows that a worker has sent.
func sentRows(s *Session) (n uint64) {
	for _, link := range s.Stats().Links {
		n += link.SentPulled + link.SentHome + link.SentPushed
	}
	return n
}

// A sum is the same to the bit, forward and backward, whether rows travel or sums in their place, where no sum
// is rounded; it repeats to the bit where it is; and it takes fewer bytes. Each number of workers has half of the
// cases.
func TestCoverings(t *testing.T) {
	for wi, parts := range worlds(2, 3, 4, 8) {
		rng := rand.New(rand.NewPCG(uint64(parts), 77))
		g := hubs(rng, 600, 2000, parts)
		for ci, c := range []aggregateCase{{width: 1}, {width: 47}, {width: 47, mean: true}, {width: 16, half: true},
			{width: 16, half: true, mean: true}, {width: 32, heads: 1}, {width: 48, heads: 3, mean: true},
			{width: 32, heads: 2, half: true}} {
			if (wi+ci)%2 != 0 {
				continue
			}
			t.Run(fmt.Sprintf("P=%d/%+v", parts, c), func(t *testing.T) {
				whole := func(scale int) []float64 {
					x := make([]float64, g.n*c.width)
					for i := range x {
						x[i] = float64(rng.IntN(2*scale+1) - scale)
					}
					return x
				}
				u, gradOut, rough := whole(60), whole(60), cutIf(c.half, random[float64](rng, g.n*c.width))
				w := whole(3)[:len(g.src)*c.heads]
				if c.heads == 0 {
					w = nil
				}
				wantOut, wantU, _ := g.serial(c.width, c.heads, c.mean, u, w, gradOut)
				sent, expected := make([][2]uint64, parts), make([]uint64, parts)
				workers(t, parts, Config{Window: 1 << 19}, func(s *Session) error {
					src, dst, at := g.of(s.Rank())
					dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
					if err != nil {
						return err
					}
					defer dg.Free()
					on := sumTest{c, s, &g, dg, nil}
					for _, k := range at {
						on.w = append(on.w, w[k*c.heads:(k+1)*c.heads]...)
					}
					lo, hi := int(g.starts[s.Rank()])*c.width, int(g.starts[s.Rank()+1])*c.width
					tol := 0.0
					if c.mean {
						tol = 1e-6
					}
					for range 2 { // who makes which sums travels once, and so do weights that come again
						if _, err := on.run(u, gradOut, ExchangeAuto); err != nil {
							return err
						}
					}
					for how := range numExchanges {
						x, err := on.run(u, gradOut, how)
						if err == nil {
							err = closeTo(fmt.Sprintf("exchange %d, out", how), x.out, wantOut[lo:hi], tol)
						}
						if err == nil {
							err = closeTo(fmt.Sprintf("exchange %d, gradient", how), x.gradU, wantU[lo:hi], tol)
						}
						if err != nil {
							return err
						}
						if how != ExchangePush {
							sent[s.Rank()][how] = x.sent
						}
						expected[s.Rank()] = on.received()
					}
					first, err := on.run(rough, rough, ExchangeAuto)
					if err != nil {
						return err
					}
					again, err := on.run(rough, rough, ExchangeAuto)
					if err == nil && !(slices.Equal(first.out, again.out) && slices.Equal(first.gradU, again.gradU)) {
						err = fmt.Errorf("the same sum has other bits the second time")
					}
					return err
				})
				var auto, pull, want uint64
				for p, n := range sent {
					auto, pull, want = auto+n[ExchangeAuto], pull+n[ExchangePull], want+expected[p]
				}
				if auto != want || auto >= pull*15/16 {
					t.Errorf("%d bytes with sums, expected %d, and %d without", auto, want, pull)
				}
			})
		}
	}
}

func cutIf(half bool, x []float64) []float64 {
	if half {
		cut(x)
	}
	return x
}
