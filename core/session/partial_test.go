package session

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"sar/core/exchange"
	"sar/core/expr/exprtest"
)

// programText is the operands of a program, the shapes of what these and the instructions make, and the instructions,
// of which the last is the result.
type programText struct {
	operands, code string
	shapes         [][]int
}

// rowsOfSources has rows of sources as they are for messages.
var rowsOfSources = programText{`{"side":"u","shape":[16]}`, "", [][]int{{16}}}

// programs of attention, 2 heads of 8.
var programs = map[string]programText{
	"additive": {
		`{"side":"u","shape":[2,1]},{"side":"v","shape":[2,1]},{"side":"u","shape":[2,8]}`,
		`{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":3,"alpha":0.2},{"op":"softmax","a":4},{"op":"mul","a":2,"b":5}`,
		[][]int{{2, 1}, {2, 1}, {2, 8}, {2, 1}, {2, 1}, {2, 1}, {2, 8}},
	},
	"dot": {
		`{"side":"u","shape":[2,8]},{"side":"v","shape":[2,8]},{"side":"u","shape":[2,8]}`,
		`{"op":"dot","a":0,"b":1},{"op":"softmax","a":3},{"op":"mul","a":2,"b":4}`,
		[][]int{{2, 8}, {2, 8}, {2, 8}, {2, 1}, {2, 1}, {2, 8}},
	},
	"vector": {
		`{"side":"u","shape":[2,8]},{"side":"v","shape":[2,8]},{"side":"p","shape":[2,8]}`,
		`{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":3,"alpha":0.2},{"op":"dot","a":4,"b":2},{"op":"softmax","a":5},
		{"op":"mul","a":0,"b":6}`,
		[][]int{{2, 8}, {2, 8}, {2, 8}, {2, 8}, {2, 8}, {2, 1}, {2, 1}, {2, 8}},
	},
	"gate": {
		`{"side":"u","shape":[16]},{"side":"v","shape":[16]}`,
		`{"op":"sigmoid","a":1},{"op":"mul","a":0,"b":2}`,
		[][]int{{16}, {16}, {16}, {16}},
	},
}

func namedCase(t *testing.T, rng *rand.Rand, g *whole, name, reduce string) *programCase {
	t.Helper()
	return programs[name].reduced(t, rng, g, reduce)
}

func (of programText) reduced(t *testing.T, rng *rand.Rand, g *whole, reduce string) *programCase {
	t.Helper()
	p := &exprtest.Program{Shapes: of.shapes}
	text := fmt.Sprintf(`{"operands":[%s],"code":[%s],"result":%d,"reduce":"%s"}`, of.operands, of.code,
		len(of.shapes)-1, reduce)
	if err := json.Unmarshal([]byte(text), p); err != nil {
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

// hasPartial tells whether a program has partial results.
func hasPartial(t *testing.T, c *programCase) bool {
	t.Helper()
	p, err := NewProgram(c.String())
	if err != nil {
		t.Fatal(err)
	}
	_, plain := p.PlainSum()
	return !plain && p.Partial(8) != nil
}

// Partial results that travel in place of rows, and gradients over a cover, are those of the oracle.
func TestPartialResults(t *testing.T) {
	for _, parts := range worlds(2, 3, 4, 8) {
		rng := rand.New(rand.NewPCG(uint64(parts), 31))
		graphs := []whole{hubs(rng, 80, 400, parts), randomGraph(rng, 40, 250, parts), randomGraph(rng, 1, 3, parts),
			randomGraph(rng, 40, 0, parts)}
		var cases []*programCase
		for name := range programs {
			for _, reduce := range []string{"sum", "mean"} {
				cases = append(cases, namedCase(t, rng, &graphs[0], name, reduce))
			}
		}
		for len(cases) < 32 {
			if c := drawCase(rng, &graphs[len(cases)%8/2]); hasPartial(t, c) {
				cases = append(cases, c)
			}
		}
		for transport, how := range map[string]Exchange{"shm": ExchangePush, "tcp": ExchangeAuto} {
			t.Run(fmt.Sprintf("P=%d/%s", parts, transport), func(t *testing.T) {
				cfg := Config{Transport: transport, Window: 1 << 19}
				for n, got := range runPrograms[float64](t, parts, cfg, cases, how) {
					if err := checkCase(rng, cases[n], got); err != nil && !t.Failed() {
						t.Error(err)
					}
				}
			})
		}
	}
}

// Threads change no bit of what rests on partial results, and rows of bfloat16 give about what the numbers do.
func TestPartialResultsRepeat(t *testing.T) {
	const parts = 3
	rng := rand.New(rand.NewPCG(3, 41))
	g := hubs(rng, 600, 12000, parts)
	for name := range programs {
		c := namedCase(t, rng, &g, name, "sum")
		cut(c.gradOut)
		for _, x := range c.tensors {
			cut(x)
		}
		half := *c
		half.cut, half.half = true, true
		run := func(c *programCase, threads int) programRun[float32] {
			pool.SetThreads(threads)
			defer pool.SetThreads(1)
			return runPrograms[float32](t, parts, Config{Transport: "tcp", Window: 1 << 18}, []*programCase{c})[0]
		}
		got, again, stored := run(c, 1), run(c, 3), run(&half, 1)
		rows := runPrograms[float64](t, parts, Config{Window: 1 << 18}, []*programCase{c}, ExchangePull)[0]
		rounded(t, name+": out", stored.out, got.out)
		if err := closeTo(name+": out", got.out, rows.out, 2e-6); err != nil {
			t.Error(err)
		}
		if !slices.Equal(got.out, again.out) {
			t.Errorf("%s: threads change bits", name)
		}
		for i := range got.grads {
			what := fmt.Sprintf("%s: gradient %d", name, i)
			if err := closeTo(what+" in bfloat16", stored.grads[i], rows.grads[i], 0x1p-6); err != nil {
				t.Error(err)
			}
			if err := closeTo(what, got.grads[i], rows.grads[i], 1e-5); err != nil {
				t.Error(err)
			}
			if !slices.Equal(got.grads[i], again.grads[i]) {
				t.Errorf("%s: threads change bits", what)
			}
		}
	}
}

// What travels is what the rule has counted, and less than rows alone.
func TestPartialResultBytes(t *testing.T) {
	const parts = 4
	rng := rand.New(rand.NewPCG(4, 51))
	g := hubs(rng, 600, 4000, parts)
	cases := map[string]*programCase{
		"rows max": rowsOfSources.reduced(t, rng, &g, "max"), "rows min": rowsOfSources.reduced(t, rng, &g, "min_shared"),
	}
	for name := range programs {
		cases[name] = namedCase(t, rng, &g, name, "sum")
	}
	for name, c := range cases {
		var sent [numExchanges]uint64
		for how := range numExchanges {
			all := programRun[float32]{out: make([]float32, g.n*16)}
			for _, x := range c.tensors {
				all.grads = append(all.grads, make([]float32, len(x)))
			}
			var mu sync.Mutex
			var total [parts]uint64
			var expected [parts]int64
			workers(t, parts, Config{Transport: "tcp", Window: 1 << 20}, func(s *Session) error {
				if err := s.SetExchange(how); err != nil {
					return err
				}
				src, dst, at := g.of(s.Rank())
				dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
				if err != nil {
					return err
				}
				defer dg.Free()
				for range 2 { // what the first run moves says who computes what
					total[s.Rank()] = sentRows(s)
					if err := runCaseOf(s, dg, at, c, &all, &mu); err != nil {
						return err
					}
				}
				total[s.Rank()] = sentRows(s) - total[s.Rank()]
				expected[s.Rank()], err = countedBytes(dg, c, how)
				return err
			})
			var want int64
			for p := range parts {
				sent[how] += total[p]
				want += expected[p]
			}
			if int64(sent[how]) != want {
				t.Errorf("%s, exchange %d: %d bytes, counted %d", name, how, sent[how], want)
			}
		}
		if sent[ExchangeAuto] >= min(sent[ExchangePull], sent[ExchangePush])*19/20 {
			t.Errorf("%s: %d bytes, with pull %d, with push %d", name, sent[ExchangeAuto], sent[ExchangePull],
				sent[ExchangePush])
		}
	}
}

// countedBytes is what comes to a worker, and returns to it, for a run of a program forward and backward.
func countedBytes(g *Graph, c *programCase, how Exchange) (n int64, err error) {
	p, err := NewProgram(c.String())
	if err != nil {
		return 0, err
	}
	rel := g.topo.Relations[0]
	layout, plan := p.Partial(4), p.Differentiate(1<<len(p.Operands)-1, 4, false)
	price, covered := how.cheapest(g.coverings.traffic[rel], layout.RowBytes, layout.SentBytes+layout.ReturnedBytes)
	back, picked := how.cheapest(g.coverings.traffic[rel], plan.ReturnBytes, plan.PickBytes)
	picked = picked && plan.PickBytes > 0
	var push *exchange.PushPlan
	for _, push = range g.plans {
	}
	for r, h := range rel.Halo[1:] {
		r++
		rows, sums := int(h.End-h.Begin), 0
		if covered {
			rows, sums = int(h.Lead(price)), len(rel.Covers[price].Rows[r].Data)
			if layout.Ranked {
				sums = len(rel.Covers[price].Ranked.Rows[r].Data)
			}
		}
		n += int64(rows*layout.RowBytes + sums*(layout.SentBytes+layout.ReturnedBytes))
		rows, sums = int(h.End-h.Begin), 0
		if push != nil && push.In[r] {
			rows, sums = int(h.Lead(push.Price)), len(rel.Pushed[push.Price].Reached[r].Data)
			n += int64(sums * (plan.Push.SentBytes + plan.Push.ReturnedBytes))
		}
		if picked {
			rows = int(h.Lead(back))
			n += int64(len(rel.Covers[back].Ranked.Rows[r].Data) * plan.PickBytes)
		}
		n += int64(rows * (plan.FetchBytes + plan.ReturnBytes))
	}
	return n, nil
}
