package session

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/expr/exprtest"
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

// attention is GAT's, 2 heads of 8.
const attention = `{"operands":[{"side":"u","shape":[2,1]},{"side":"v","shape":[2,1]},{"side":"u","shape":[2,8]}],
	"code":[{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":3,"alpha":0.2},
	{"op":"softmax","a":4},{"op":"mul","a":2,"b":5}],
	"result":6,"reduce":"sum"}`

func attentionCase(t *testing.T, rng *rand.Rand, g *whole) *programCase {
	t.Helper()
	p := &exprtest.Program{Shapes: [][]int{{2, 1}, {2, 1}, {2, 8}, {2, 1}, {2, 1}, {2, 1}, {2, 8}}}
	if err := json.Unmarshal([]byte(attention), p); err != nil {
		t.Fatal(err)
	}
	for i := range p.Code { // null is not a shape
		p.Code[i].Shape = []int{}
	}
	c := &programCase{g: g, p: p, gradOut: random[float64](rng, g.n*16)}
	for _, o := range p.Operands {
		c.tensors = append(c.tensors, random[float64](rng, g.edges().Rows(o.Side)*exprtest.Width(o.Shape)))
	}
	return c
}

// Rows that travel in the order in which they are computed, in many chunks, with as many
// threads as there are, add up to the same.
func TestPushedInAnOrder(t *testing.T) {
	const parts = 2
	rng := rand.New(rand.NewPCG(7, 7))
	g := communities(parts)
	cases := []*programCase{attentionCase(t, rng, &g)}
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
	return p.Differentiate(1<<len(p.Operands)-1, 8).Push != nil
}
