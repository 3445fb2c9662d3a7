package session

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"sar/core/expr/exprtest"
	"sar/core/kernel"
)

func TestProgramsAgainstOracle(t *testing.T) {
	for _, parts := range worlds(3, 1, 2, 5) {
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(parts), 11))
			graphs := []whole{randomGraph(rng, 40, 250, parts), randomGraph(rng, 1, 3, parts), randomGraph(rng, 40, 0, parts)}
			var cases []*programCase
			for n := range 60 {
				cases = append(cases, drawCase(rng, &graphs[[]int{0, 0, 0, 0, 1, 2}[n%6]]))
			}
			transport := []string{"shm", "tcp"}[parts%2]
			for n, got := range runPrograms[float64](t, parts, Config{Transport: transport, Window: 1 << 20}, cases) {
				if err := checkCase(rng, cases[n], got); err != nil && !t.Failed() {
					t.Error(err)
				}
			}
		})
	}
}

// Programs on bfloat16 give what they give on the same numbers as floats, rounded; in backward, the result among those.
// One worker rounds gradients of sources group by group: there is a graph of several groups.
func TestProgramsInBFloat16(t *testing.T) {
	for _, parts := range worlds(3, 1) {
		rng := rand.New(rand.NewPCG(uint64(parts), 17))
		graphs := []whole{randomGraph(rng, 40, 250, parts), randomGraph(rng, 1, 3, parts)}
		of := func(n int) *whole { return &graphs[n%8/7] }
		if parts == 1 {
			graphs = append(graphs, randomGraph(rng, 9000, 20000, parts))
			of = func(n int) *whole { return &graphs[[]int{0, 0, 2, 1}[n%4]] }
		}
		var native, half []*programCase
		for n := range 40 {
			c := drawCase(rng, of(n))
			cut(c.gradOut)
			for _, x := range c.tensors {
				cut(x)
			}
			c.cut = true
			stored := *c
			stored.half = true
			native, half = append(native, c), append(half, &stored)
		}
		want := runPrograms[float32](t, parts, Config{Window: 1 << 20}, native)
		for n, got := range runPrograms[float32](t, parts, Config{Window: 1 << 20}, half) {
			c := half[n]
			rounded(t, c.String()+": out", got.out, want[n].out)
			for i := range got.grads {
				if !c.extreme() {
					rounded(t, fmt.Sprintf("%s: gradient %d", c, i), got.grads[i], want[n].grads[i])
				}
			}
		}
	}
}

// Threads and windows change no bit, but for what the package says; SIMD paths agree closely.
func TestProgramsRepeat(t *testing.T) {
	const parts, wide, narrow = 3, 1 << 24, 1 << 18
	rng := rand.New(rand.NewPCG(12, 12))
	g := randomGraph(rng, 500, 6000, parts)
	var cases []*programCase
	for range 16 {
		cases = append(cases, drawCase(rng, &g))
	}
	was := kernel.SIMD()
	defer func() {
		pool.SetThreads(1)
		_, _ = kernel.ChooseSIMD(was)
	}()
	runs := func(window int64, threads int) []programRun[float32] {
		pool.SetThreads(threads)
		return runPrograms[float32](t, parts, Config{Window: window}, cases)
	}
	reference, small := runs(wide, 1), runs(narrow, 1)
	for n, threads := range map[int][]programRun[float32]{wide: runs(wide, 3), narrow: runs(narrow, 3)} {
		want := map[int][]programRun[float32]{wide: reference, narrow: small}[n]
		for i, c := range cases {
			sameBits(t, c.String()+": threads change the result", threads[i].out, want[i].out)
			for k := range c.p.Operands {
				sameBits(t, fmt.Sprintf("%s: threads change gradient %d", c, k), threads[i].grads[k], want[i].grads[k])
			}
		}
	}
	for i, c := range cases {
		sameBits(t, c.String()+": the window changes the result", small[i].out, reference[i].out)
	}
	for _, simd := range []string{"scalar", "avx2", "avx512", "neon"} {
		if _, err := kernel.ChooseSIMD(simd); err != nil {
			continue
		}
		for i, got := range runs(wide, 1) {
			c := cases[i]
			near(t, c.String()+", "+simd+": out", got.out, reference[i].out, 2e-5)
			for k := range got.grads {
				if !c.extreme() {
					near(t, fmt.Sprintf("%s, %s: gradient %d", c, simd, k), got.grads[k], reference[i].grads[k], 2e-4)
				}
			}
		}
	}
}

// Rows and columns that are taken in an order of their own.
func TestProgramsInAnOrder(t *testing.T) {
	const attention = `{"operands":[{"side":"u","shape":[2,1]},{"side":"v","shape":[2,1]},
		{"side":"u","shape":[2,8]},{"side":"e","shape":[2,1]}],
		"code":[{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":4,"alpha":0.2},
		{"op":"mul","a":5,"b":3},{"op":"softmax","a":6},{"op":"mul","a":2,"b":7}],
		"result":8,"reduce":"mean"}`
	p := &exprtest.Program{Shapes: [][]int{{2, 1}, {2, 1}, {2, 8}, {2, 1}, {2, 1}, {2, 1}, {2, 1}, {2, 1}, {2, 8}}}
	if err := json.Unmarshal([]byte(attention), p); err != nil {
		t.Fatal(err)
	}
	for i := range p.Code { // null is not a shape
		p.Code[i].Shape = []int{}
	}
	for _, parts := range []int{1, 2} {
		if parts == 1 && testing.Short() {
			continue
		}
		g := communities(parts)
		rng := rand.New(rand.NewPCG(6, 6))
		c := &programCase{g: &g, p: p, gradOut: random[float64](rng, len(g.src)*16)}
		for _, o := range p.Operands {
			c.tensors = append(c.tensors, random[float64](rng, g.edges().Rows(o.Side)*exprtest.Width(o.Shape)))
		}
		got := runPrograms[float64](t, parts, Config{Window: 1 << 20}, []*programCase{c})
		if err := checkCase(rng, c, got[0]); err != nil {
			t.Error(err)
		}
	}
}
