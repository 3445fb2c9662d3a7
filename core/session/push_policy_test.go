package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Gradients computed by the owners of sources are those of the oracle, and repeat to the bit
// for any number of threads.
func TestPushedPrograms(t *testing.T) {
	for _, parts := range []int{2, 3, 4, 5} {
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(parts), 21))
			graphs := []whole{randomGraph(rng, 40, 250, parts), randomGraph(rng, 1, 3, parts), randomGraph(rng, 40, 0, parts)}
			var cases []*programCase
			for len(cases) < 36 {
				c := drawCase(rng, &graphs[[]int{0, 0, 0, 0, 1, 2}[len(cases)%6]])
				if pushable(t, c) || len(cases)%10 == 0 {
					cases = append(cases, c)
				}
			}
			transport := []string{"shm", "tcp"}[parts%2]
			cfg := Config{Transport: transport, Window: 1 << 19}
			for n, got := range runPrograms[float64](t, parts, cfg, cases, ExchangePush) {
				if err := checkCase(rng, cases[n], got); err != nil && !t.Failed() {
					t.Error(err)
				}
			}
		})
	}
}

// Rows that travel in the order in which they are computed, in many chunks, with as many
// threads as there are, add up to the same.
func TestPushedInAnOrder(t *testing.T) {
	const parts = 2
	rng := rand.New(rand.NewPCG(7, 7))
	g := communities(parts)
	cases := []*programCase{namedCase(t, rng, &g, "additive", "sum")}
	run := func(how Exchange, threads int, window int64) programRun[float64] {
		pool.SetThreads(threads)
		defer pool.SetThreads(1)
		return runPrograms[float64](t, parts, Config{Window: window}, cases, how)[0]
	}
	const narrow, wide = 1 << 18, 1 << 24
	want, got, again := run(ExchangePull, 1, narrow), run(ExchangePush, 1, narrow), run(ExchangePush, 3, narrow)
	other := run(ExchangePush, 2, wide)
	for _, i := range []int{0, 2} { // of sources: edge after edge, whatever a frame holds
		if !slices.Equal(got.grads[i], other.grads[i]) {
			t.Errorf("gradient %d: the window changes bits", i)
		}
	}
	for i := range want.grads {
		if err := closeTo(fmt.Sprintf("gradient %d", i), got.grads[i], want.grads[i], 1e-12); err != nil {
			t.Error(err)
		}
		if !slices.Equal(got.grads[i], again.grads[i]) {
			t.Errorf("gradient %d: threads change bits", i)
		}
	}
}

func pushable(t *testing.T, c *programCase) bool {
	t.Helper()
	p, err := NewProgram(c.String())
	if err != nil {
		t.Fatal(err)
	}
	return p.Differentiate(1<<len(p.Operands)-1, 8, false).Push != nil
}
