package session

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sar/core/internal/freeport"
	"sar/core/kernel"
)

var ctx = context.Background()

// whole is a graph on one machine, the oracle's view of it.
type whole struct {
	n        int
	src, dst []int64
	starts   []int64 // ranges of the P workers
}

// randomGraph draws a graph whose ranges leave some workers without nodes, with
// isolated nodes, self loops, parallel edges and one hub.
func randomGraph(rng *rand.Rand, n, edges, parts int) whole {
	g := whole{n: n, starts: make([]int64, parts+1)}
	for p := 1; p < parts; p++ {
		g.starts[p] = int64(rng.IntN(n + 1))
	}
	if parts > 2 { // one worker owns nothing
		g.starts[2] = g.starts[1]
	}
	g.starts[parts] = int64(n)
	for p := 1; p <= parts; p++ {
		g.starts[p] = max(g.starts[p], g.starts[p-1])
	}
	for range edges {
		u, v := rng.IntN(n), rng.IntN(n)
		switch rng.IntN(10) {
		case 0:
			v = u
		case 1:
			v = 0
		}
		if v%7 == 3 || u%11 == 5 { // nodes nobody points at, and nodes nobody reads
			continue
		}
		g.src, g.dst = append(g.src, int64(u)), append(g.dst, int64(v))
		if rng.IntN(8) == 0 {
			g.src, g.dst = append(g.src, int64(u)), append(g.dst, int64(v))
		}
	}
	return g
}

// of returns the edges of worker p, as positions in the whole graph.
func (g *whole) of(p int) (src, dst []int64, at []int) {
	for k, v := range g.dst {
		if v >= g.starts[p] && v < g.starts[p+1] {
			src, dst, at = append(src, g.src[k]), append(dst, v), append(at, k)
		}
	}
	return src, dst, at
}

// worlds gives the numbers of workers to test with: every second one with
// -short.
func worlds(all ...int) []int {
	if !testing.Short() {
		return all
	}
	var some []int
	for i := 0; i < len(all); i += 2 {
		some = append(some, all[i])
	}
	return some
}

// workers runs f on P sessions of this process and fails on any error.
func workers(t testing.TB, parts int, cfg Config, f func(s *Session) error) {
	t.Helper()
	for p, err := range tryWorkers(t, parts, cfg, f) {
		if err != nil {
			t.Errorf("rank %d: %v", p, err)
		}
	}
}

func tryWorkers(t testing.TB, parts int, cfg Config, f func(s *Session) error) []error {
	cfg.World, cfg.MasterAddr, cfg.MasterPort = parts, "127.0.0.1", freeport.Find()
	cfg.Start, cfg.Operation = 20*time.Second, 20*time.Second
	errs := make([]error, parts)
	var wg sync.WaitGroup
	for p := range parts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			mine := cfg
			mine.Rank = p
			s, err := Open(ctx, mine)
			if err != nil {
				errs[p] = fmt.Errorf("open: %w", err)
				return
			}
			errs[p] = f(s)
			if err := s.Barrier(ctx, Reduce); err != nil && errs[p] == nil {
				errs[p] = err
			}
			if err := s.Close(); err != nil && errs[p] == nil {
				errs[p] = err
			}
		}()
	}
	wg.Wait()
	return errs
}

func random[T kernel.Float](rng *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(rng.NormFloat64())
	}
	return x
}

// close compares element by element, relative to the largest entry.
func closeTo[T kernel.Float](name string, got []T, want []float64, tol float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d entries, want %d", name, len(got), len(want))
	}
	largest := 1e-30
	for _, w := range want {
		largest = max(largest, math.Abs(w))
	}
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= tol*largest) {
			return fmt.Errorf("%s[%d] = %v, want %v (largest %v)", name, i, got[i], w, largest)
		}
	}
	return nil
}

// serial computes forward and both gradients edge by edge in float64.
func (g *whole) serial(width, heads int, mean bool, u, w, gradOut []float64) (out, gradU, gradW []float64) {
	out, gradU = make([]float64, g.n*width), make([]float64, g.n*width)
	deg := make([]float64, g.n)
	for _, v := range g.dst {
		deg[v]++
	}
	if w != nil {
		gradW = make([]float64, len(g.src)*heads)
	}
	d := width / max(heads, 1)
	for k := range g.src {
		i, j := int(g.dst[k])*width, int(g.src[k])*width
		scale := 1.0
		if mean {
			scale = 1 / deg[g.dst[k]]
		}
		for c := range width {
			weight := scale
			if w != nil {
				weight *= w[k*heads+c/d]
				gradW[k*heads+c/d] += scale * u[j+c] * gradOut[i+c]
			}
			out[i+c] += weight * u[j+c]
			gradU[j+c] += weight * gradOut[i+c]
		}
	}
	return out, gradU, gradW
}
