package session

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sar/core/expr/exprtest"
)

// extremumCase is a case of greatest or least rows of sources, of few different numbers, and integral gradients.
func extremumCase(rng *rand.Rand, g *whole, width int, reduce string) *programCase {
	p := &exprtest.Program{Operands: []exprtest.Operand{{Side: "u", Shape: []int{width}}}, Shapes: [][]int{{width}},
		Reduce: reduce}
	c := &programCase{g: g, p: p, gradOut: make([]float64, g.n*width), tensors: [][]float64{make([]float64, g.n*width)}}
	for i := range c.gradOut {
		c.gradOut[i] = float64(rng.IntN(7) - 3)
		c.tensors[0][i] = float64(rng.IntN(5) - 2)
		switch rng.IntN(40) {
		case 0:
			c.tensors[0][i] = math.Inf(2*rng.IntN(2) - 1)
		case 1:
			c.tensors[0][i] = math.NaN()
		case 2:
			c.tensors[0][i] = math.Copysign(0, -1)
		}
	}
	return c
}

// want is what a case of max or min comes to: results, winning edges as workers number theirs, gradients.
func (c *programCase) want() (out []float64, winner []int32, grad []float64) {
	g, w, least := c.g, c.p.Width(), c.p.Reduce == "min"
	out, grad, winner = make([]float64, g.n*w), make([]float64, g.n*w), make([]int32, g.n*w)
	edges, of := make([][]int, g.n), make([]int, len(g.src)) // in-edges; the number of an edge at its worker
	count := make([]int, len(g.starts))
	for k, v := range g.dst {
		edges[v] = append(edges[v], k)
		owner := 0
		for g.starts[owner+1] <= v {
			owner++
		}
		of[k] = count[owner]
		count[owner]++
	}
	for v, in := range edges {
		for j := range w {
			at := v*w + j
			winner[at] = -1
			for _, k := range in {
				x := c.tensors[0][int(g.src[k])*w+j]
				if !math.IsNaN(x) && (winner[at] < 0 || !least && x > out[at] || least && x < out[at]) {
					out[at], winner[at] = x, int32(k)
				}
			}
			if k := winner[at]; k >= 0 && math.IsInf(out[at], 0) {
				out[at], winner[at] = 0, -1
			} else if k >= 0 {
				grad[int(g.src[k])*w+j] += c.gradOut[at]
				winner[at] = int32(of[k])
			}
		}
	}
	return out, winner, grad
}

// Greatest and least messages, the edges that won, and gradients are the same to the bit, whatever travels: with ties,
// loops, parallel edges, more of them in a sum than one byte counts, and without any.
func TestRankedCovers(t *testing.T) {
	for _, parts := range worlds(1, 2, 3, 4, 8) {
		rng := rand.New(rand.NewPCG(uint64(parts), 61))
		graphs := []whole{hubs(rng, 80, 400, parts), randomGraph(rng, 12, 9000, parts), randomGraph(rng, 1, 3, parts),
			randomGraph(rng, 30, 0, parts), hubs(rng, 300, 1500, parts)}
		var cases, half []*programCase // in both types, and in float32 alone
		for i := range graphs {
			for _, reduce := range []string{"max", "min", "max_shared", "min_shared"} {
				c := extremumCase(rng, &graphs[i], []int{47, 1}[(i+len(reduce))%2], reduce)
				stored := *c
				stored.half = true
				cases, half = append(cases, c), append(half, &stored)
			}
		}
		rankedAsRows[float64](t, parts, cases)
		rankedAsRows[float32](t, parts, append(half, cases...))
	}
}

func rankedAsRows[T Float](t *testing.T, parts int, cases []*programCase) {
	t.Helper()
	rows := runPrograms[T](t, parts, Config{Window: 1 << 19}, cases, ExchangePull)
	for transport, how := range map[string]Exchange{"shm": ExchangePush, "tcp": ExchangeAuto} {
		t.Run(fmt.Sprintf("P=%d/%s/%T", parts, transport, T(0)), func(t *testing.T) {
			rankedAs(t, rows, runPrograms[T](t, parts, Config{Transport: transport, Window: 1 << 19}, cases, how), cases)
		})
	}
}

// rankedAs compares runs with those of rows alone, and those of max and min with what they come to.
func rankedAs[T Float](t *testing.T, rows, runs []programRun[T], cases []*programCase) {
	t.Helper()
	for n, c := range cases {
		a, b := runs[n], rows[n]
		shared := strings.HasSuffix(c.p.Reduce, "_shared")
		switch {
		case !equalBits(a.out, b.out, shared) || !slices.Equal(a.winner, b.winner):
			t.Errorf("%s: other results than of rows alone", c)
		case !shared && !equalBits(a.grads[0], b.grads[0], false):
			t.Errorf("%s: other gradients than of rows alone", c)
		case shared: // shares of gradients are rounded
			if err := closeOrNaN(a.grads[0], b.grads[0]); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		default:
			out, winner, grad := c.want()
			if !slices.Equal(a.winner, winner) {
				t.Errorf("%s: other edges won", c)
			}
			for i := range out {
				if a.out[i] != T(out[i]) || !c.half && a.grads[0][i] != T(grad[i]) {
					t.Fatalf("%s: element %d is %v, want %v; its gradient is %v, want %v", c, i, a.out[i], out[i],
						a.grads[0][i], grad[i])
				}
			}
		}
	}
}

// equalBits takes NaN for equal to NaN, and tells the zeros apart unless which of two wins depends on their order.
func equalBits[T Float](a, b []T, zeros bool) bool {
	return slices.EqualFunc(a, b, func(x, y T) bool {
		return x == y && (zeros || math.Signbit(float64(x)) == math.Signbit(float64(y))) || x != x && y != y
	})
}

func closeOrNaN[T Float](a, b []T) error {
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		if !(math.Abs(x-y) <= 1e-5*max(1, math.Abs(y))) && !(math.IsNaN(x) && math.IsNaN(y)) && x != y {
			return fmt.Errorf("gradient %d is %v, and %v with rows alone", i, x, y)
		}
	}
	return nil
}
