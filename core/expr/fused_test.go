package expr

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sar/core/graph"
	"sar/core/kernel"
)

// writer makes random programs.
type writer struct {
	rng   *rand.Rand
	heads int
	d     int
	text  struct {
		Operands []map[string]any `json:"operands"`
		Code     []map[string]any `json:"code"`
		Result   int              `json:"result"`
		Reduce   string           `json:"reduce"`
	}
	code []map[string]any
}

func (w *writer) pick(names ...string) string { return names[w.rng.IntN(len(names))] }

// operand is one that the program has, where it has one that fits, or a new one.
func (w *writer) operand(side string, s shape) int {
	for i, o := range w.text.Operands {
		if o["side"] == side && s.equal(o["shape"].(shape)) && w.rng.IntN(2) == 0 {
			return i
		}
	}
	w.text.Operands = append(w.text.Operands, map[string]any{"side": side, "shape": s})
	return len(w.text.Operands) - 1
}

// op adds an instruction. Registers of instructions are written as their negative number, since
// how many operands there will be is not known yet.
func (w *writer) op(name string, alpha float64, s shape, args ...int) int {
	c := map[string]any{"op": name, "alpha": alpha}
	for i, a := range args {
		c[[]string{"a", "b"}[i]] = a
	}
	if s != nil {
		c["shape"] = s
	}
	w.code = append(w.code, c)
	return -len(w.code)
}

// wide is an expression of the width of a row, narrow one of a number a head.
func (w *writer) wide(depth int) int {
	s := shape{w.heads, w.d}
	if depth == 0 {
		return w.operand(w.pick("u", "u", "v", "e", "p"), s)
	}
	switch w.rng.IntN(5) {
	case 0:
		return w.op(w.pick("leaky_relu", "scale", "elu"), 0.2, nil, w.wide(depth-1))
	case 1:
		return w.op(w.pick("tanh", "sigmoid", "softplus", "neg"), 0, nil, w.wide(depth-1))
	case 2:
		return w.op("mul", 0, nil, w.wide(depth-1), w.narrow(depth-1))
	}
	return w.op(w.pick("add", "sub", "mul"), 0, nil, w.wide(depth-1), w.wide(depth-1))
}

func (w *writer) narrow(depth int) int {
	s := shape{w.heads, 1}
	if depth == 0 {
		return w.operand(w.pick("u", "v", "v", "e"), s)
	}
	switch w.rng.IntN(6) {
	case 0:
		return w.op("dot", 0, nil, w.wide(depth-1), w.wide(depth-1))
	case 1:
		return w.op("total", 0, s, w.wide(depth-1))
	case 2: // the logits of GATv2
		sum := w.op("add", 0, nil, w.operand(w.pick("u", "v"), shape{w.heads, w.d}),
			w.operand(w.pick("u", "v"), shape{w.heads, w.d}))
		made := w.op("mul", 0, nil, w.op("leaky_relu", 0.3, nil, sum), w.operand(w.pick("p", "p", "v"), shape{w.heads, w.d}))
		return w.op("total", 0, s, made)
	case 3:
		return w.op(w.pick("leaky_relu", "scale"), 0.2, nil, w.narrow(depth-1))
	}
	return w.op(w.pick("add", "mul"), 0, nil, w.narrow(depth-1), w.narrow(depth-1))
}

func (w *writer) write() string {
	weights := w.op("tanh", 0, nil, w.narrow(1+w.rng.IntN(2)))
	for range 1 + w.rng.IntN(2) {
		weights = w.op("softmax", 0, nil, weights)
		if w.rng.IntN(3) == 0 {
			weights = w.op("dropout", 0.4, nil, weights)
		}
		if w.rng.IntN(3) > 0 {
			break
		}
	}
	result := w.op("mul", 0, nil, w.wide(w.rng.IntN(2)), weights)
	for _, c := range w.code {
		for _, name := range []string{"a", "b"} {
			if v, ok := c[name].(int); ok && v < 0 {
				c[name] = len(w.text.Operands) - v - 1
			}
		}
	}
	w.text.Code, w.text.Result, w.text.Reduce = w.code, len(w.text.Operands)-result-1,
		w.pick("sum", "sum", "mean", "max", "min", "max_shared", "min_shared")
	made, err := json.Marshal(w.text)
	if err != nil {
		panic(err)
	}
	return string(made)
}

// computed is one program, forward and backward.
type computed struct {
	out   []float64
	grads [][]float64
}

func compute(t *testing.T, rel *graph.Relation, text string, threads int, plain bool) computed {
	p, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if plain {
		p.online = -1
	}
	rng := rand.New(rand.NewPCG(3, 1))
	fresh := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		return x
	}
	r := &Run[float64]{Program: p, Rel: rel, Pool: kernel.NewPool(threads), Seeds: make([]uint64, p.Seeds), plain: plain}
	var made computed
	for _, o := range p.Operands {
		n := map[Side]int{U: rel.NumSrc, V: rel.NumDst, E: int(rel.NumEdges), P: 1}[o.Side] * o.Width
		r.Operands, made.grads = append(r.Operands, fresh(n)), append(made.grads, make([]float64, n))
	}
	for _, w := range p.Softmaxes() {
		r.Most, r.Inv = append(r.Most, make([]float64, rel.NumDst*w)), append(r.Inv, make([]float64, rel.NumDst*w))
	}
	if p.KeepsWinner() {
		r.Winner = make([]int32, rel.NumDst*p.Width())
	}
	made.out = make([]float64, rel.NumDst*p.Width())
	r.Out, r.Grad, r.Grads = made.out, fresh(len(made.out)), made.grads
	forward(r)
	if err := backwardWhole(r); err != nil {
		t.Fatal(err)
	}
	return made
}

// TestFusedIsUnfused: whatever is read in place, summed in other sweeps or never made, random
// programs come out as where every register of every edge is made; and a number of
// threads changes no bit.
func TestFusedIsUnfused(t *testing.T) { fusedIsUnfused(t, benchRelation(t, 200, 9000), 72) }

// TestHubs is the same where a row and a column have so many edges that each is several tasks.
func TestHubs(t *testing.T) {
	rel := relationOf(t, 50, 70000, func(rng *rand.Rand, i int) (src, dst int64) {
		src, dst = int64(rng.IntN(50)), int64(rng.IntN(50))
		if i%5 < 2 {
			dst = 7
		} else if i%5 < 4 {
			src = 9
		}
		return src, dst
	})
	p, err := Parse(benchPrograms["gat"])
	if err != nil {
		t.Fatal(err)
	}
	s := newSweep(compile[float64](p.forwardCodes()[0], false),
		&Run[float64]{Program: p, Rel: rel, Pool: kernel.NewPool(1), Operands: make([][]float64, 3), Most: [][]float64{nil},
			Inv: [][]float64{nil}})
	if units := s.units(rel.RowPtr.Data, 0, 50, false, func(i int) (int32, int64, int64) {
		return int32(i), int64(rel.RowPtr.Data[i]), int64(rel.RowPtr.Data[i+1])
	}); !slices.ContainsFunc(units, func(u unit[float64]) bool { return u.own != nil }) {
		t.Fatal("no row is cut: the test needs a larger hub")
	}
	fusedIsUnfused(t, rel, 12)
}

func fusedIsUnfused(t *testing.T, rel *graph.Relation, programs int) {
	if testing.Short() { // under the race detector each takes half a second and more
		programs /= 12
	}
	for seed := range uint64(programs) {
		w := &writer{rng: rand.New(rand.NewPCG(seed, 9)), heads: []int{1, 3, 4, 8}[seed%4], d: []int{8, 16, 5}[seed%3]}
		text := w.write()
		if len(w.text.Operands) > MaxOperands {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { sameAsUnfused(t, rel, text) })
	}
}

// bothEnds weighs sums of rows of both ends, with a gradient that goes through several functions: the weights are read
// by a sum long after they were made.
const bothEnds = `{"operands":[{"side":"u","shape":[4,8]},{"side":"v","shape":[4,8]},{"side":"u","shape":[4,1]},
	{"side":"v","shape":[4,1]}],"code":[{"op":"add","a":2,"b":3},{"op":"tanh","a":4},{"op":"sigmoid","a":5},{"op":"tanh","a":6},{"op":"softmax","a":7},
	{"op":"add","a":0,"b":1},{"op":"mul","a":9,"b":8}],"result":10,"reduce":"sum"}`

// madeBefore has GATv2's logits of rows that were made a register for a function, which is not read any more by then.
const madeBefore = `{"operands":[{"side":"u","shape":[4,16]},{"side":"v","shape":[4,16]},{"side":"p","shape":[4,16]}],
	"code":[{"op":"sigmoid","a":0},{"op":"tanh","a":3},{"op":"tanh","a":4},{"op":"add","a":0,"b":1},
	{"op":"leaky_relu","a":6,"alpha":0.2},{"op":"mul","a":7,"b":2},{"op":"total","a":8,"shape":[4,1]},
	{"op":"softmax","a":9},{"op":"mul","a":5,"b":10}],"result":11,"reduce":"sum"}`

// madeAndNot has a gradient of destinations that is the sum of rows that are made and of slopes that are not.
const madeAndNot = `{"operands":[{"side":"u","shape":[4,8]},{"side":"v","shape":[4,8]},{"side":"p","shape":[4,8]}],
	"code":[{"op":"tanh","a":1},{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":4,"alpha":0.2},{"op":"mul","a":5,"b":2},
	{"op":"total","a":6,"shape":[4,1]},{"op":"softmax","a":7},{"op":"mul","a":0,"b":8},{"op":"mul","a":9,"b":3}],
	"result":10,"reduce":"sum"}`

// The forms of attention that there are patterns for, by name.
func TestAttentionIsUnfused(t *testing.T) {
	rel := benchRelation(t, 200, 9000)
	sameAsUnfused(t, rel, bothEnds)
	sameAsUnfused(t, rel, madeBefore)
	sameAsUnfused(t, rel, madeAndNot)
	for fi, form := range []string{"additive", "dot", "cosine", "gatv2"} {
		for si, shape := range [][2]int{{1, 16}, {4, 8}, {3, 5}} {
			if testing.Short() && si != fi%3 {
				continue
			}
			text := attention(form, shape[0], shape[1])
			sameAsUnfused(t, rel, text)
			sameAsUnfused(t, rel, strings.ReplaceAll(text, `"a":0,"b":1`, `"a":1,"b":0`)) // the destination first
		}
	}
}

func sameAsUnfused(t *testing.T, rel *graph.Relation, text string) {
	t.Helper()
	fused, unfused := compute(t, rel, text, 1, false), compute(t, rel, text, 1, true)
	near := func(name string, x, y []float64) {
		scale := 1.0
		for _, v := range y {
			scale = max(scale, math.Abs(v))
		}
		for i := range x {
			if d := math.Abs(x[i] - y[i]); !(d <= 1e-11*scale) {
				t.Fatalf("%s: %s[%d] is %v, unfused %v", text, name, i, x[i], y[i])
			}
		}
	}
	near("out", fused.out, unfused.out)
	for i := range fused.grads {
		near(fmt.Sprint("gradient ", i), fused.grads[i], unfused.grads[i])
	}
	threads := compute(t, rel, text, 5, false)
	if !slices.Equal(threads.out, fused.out) {
		t.Fatalf("%s: out differs with five threads", text)
	}
	for i := range fused.grads {
		if !slices.Equal(threads.grads[i], fused.grads[i]) {
			t.Fatalf("%s: gradient %d differs with five threads", text, i)
		}
	}
}
