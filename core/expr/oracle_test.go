package expr_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/expr"
	"sar/core/expr/exprtest"
	"sar/core/graph"
	"sar/core/kernel"
)

// oneWorker is a small graph with an isolated node, a self loop, parallel edges and a hub.
func oneWorker(t testing.TB, n, edges int) (*graph.Relation, *exprtest.Graph) {
	t.Helper()
	rng := rand.New(rand.NewPCG(4, 2))
	g := &exprtest.Graph{N: n, Src: []int64{1, 1, 2}, Dst: []int64{1, 2, 2}}
	for i := range edges {
		dst := int64(1 + rng.IntN(n-1))
		if i%4 == 0 {
			dst = 3
		}
		g.Src, g.Dst = append(g.Src, int64(rng.IntN(n))), append(g.Dst, dst)
	}
	start := []int64{0, int64(n)}
	book, err := graph.HomogeneousBook(start)
	if err != nil {
		t.Fatal(err)
	}
	source, err := graph.FromEdges(start, 0, graph.Ends{Src: g.Src, Dst: g.Dst})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Free()
	rels, err := graph.Build(book, 0, source, graph.BuildOptions{EdgeOrder: true, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rels[0].Free)
	return &graph.Relation{Structure: rels[0]}, g
}

// run computes a program, and the gradients of all operands, on one worker.
func run[T expr.Float](t testing.TB, rel *graph.Relation, g *exprtest.Graph, p *exprtest.Program, tensors [][]T,
	grad []T) (out []T, grads [][]T) {
	t.Helper()
	program, err := expr.Parse(p.String())
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	r := &expr.Run[T]{Program: program, Rel: rel, Pool: kernel.NewPool(2), Operands: tensors,
		Seeds: make([]uint64, program.Seeds)}
	defer r.Close()
	for _, w := range program.Softmaxes() {
		r.Most, r.Inv = append(r.Most, make([]T, rel.NumDst*w)), append(r.Inv, make([]T, rel.NumDst*w))
	}
	r.Out, r.Grad, r.Grads = make([]T, len(grad)), grad, make([][]T, len(tensors))
	if program.KeepsWinner() {
		r.Winner = make([]int32, len(grad))
	}
	for i, x := range tensors {
		r.Grads[i] = make([]T, len(x))
	}
	for _, phase := range r.Forward() {
		phase.Sweep.Rows(nil, 0, int32(rel.NumCols()))
		phase.Finish()
	}
	b, err := r.Backward(r.Differentiate(1<<len(tensors) - 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range b.Deltas {
		phase.Sweep.Rows(nil, 0, int32(rel.NumCols()))
	}
	if b.Own != nil {
		b.Own.Columns(0, rel.NumCols())
	}
	if b.Target != nil {
		b.Target.Rows(nil, 0, int32(rel.NumCols()))
	}
	b.Finish()
	return r.Out, r.Grads
}

// Random programs compute what the oracle does, and their gradients are its slopes along
// random directions.
func TestProgramsAgainstOracle(t *testing.T) {
	programs := 120
	if testing.Short() {
		programs = 15
	}
	rel, g := oneWorker(t, 30, 160)
	for seed := range uint64(programs) {
		rng := rand.New(rand.NewPCG(seed, 31))
		p := exprtest.Random(rng)
		random := func(n int) []float64 {
			x := make([]float64, n)
			for i := range x {
				x[i] = rng.Float64()*2 - 1
			}
			return x
		}
		var tensors [][]float64
		for _, o := range p.Operands {
			tensors = append(tensors, random(g.Rows(o.Side)*exprtest.Width(o.Shape)))
		}
		want := p.Run(g, tensors)
		grad := random(len(want))
		out, grads := run(t, rel, g, p, tensors, grad)
		for i, w := range want {
			if math.Abs(out[i]-w) > 1e-10*max(1, math.Abs(w)) {
				t.Fatalf("%s: out[%d] is %v, the oracle's %v", p, i, out[i], w)
			}
		}
		for i := range tensors {
			direction := random(len(tensors[i]))
			loss := func(step float64) (sum float64) {
				moved := slices.Clone(tensors)
				moved[i] = slices.Clone(tensors[i])
				for k, d := range direction {
					moved[i][k] += step * d
				}
				for k, v := range p.Run(g, moved) {
					sum += v * grad[k]
				}
				return sum
			}
			var slope, size float64
			for k, d := range direction {
				slope += d * grads[i][k]
				size += math.Abs(d * grads[i][k])
			}
			const step = 1e-6
			if diff := (loss(step) - loss(-step)) / (2 * step); !(math.Abs(slope-diff) <= 1e-5*(1+size)) {
				t.Fatalf("%s: the slope along a direction of operand %d is %v, by differences %v", p, i, slope, diff)
			}
		}
	}
}

// Every operation that works number by number computes what its oracle does, in both element
// types, and its gradient is the oracle's slope. Operations that are not in the table cannot be written.
func TestOperations(t *testing.T) {
	rel, g := oneWorker(t, 30, 300)
	for _, name := range expr.Operations() {
		if expr.Oracle(name) == nil {
			continue // dot, total, reshape and softmax: TestProgramsAgainstOracle; dropout: the users' tests
		}
		t.Run(name, func(t *testing.T) {
			operation[float64](t, rel, g, name, 1e-12)
			operation[float32](t, rel, g, name, 1e-5)
		})
	}
}

func operation[T expr.Float](t *testing.T, rel *graph.Relation, g *exprtest.Graph, name string, tol float64) {
	const alpha = 0.6
	f, gradTol := expr.Oracle(name), max(1e-6, 100*tol)
	p := &exprtest.Program{Operands: []exprtest.Operand{{Side: "e", Shape: []int{5}}, {Side: "e", Shape: []int{5}}},
		Result: 2, Reduce: "none",
		Code: []exprtest.Instruction{{Op: name, A: 0, B: 1, Alpha: alpha, Shape: []int{}}}}
	rng := rand.New(rand.NewPCG(8, 8))
	n := len(g.Src) * 5
	x, y, grad := make([]T, n), make([]T, n), make([]T, n)
	for i := range x {
		x[i], y[i], grad[i] = T(rng.Float64()*6-3), T(0.5+rng.Float64()), T(rng.Float64()+0.5)
	}
	out, grads := run(t, rel, g, p, [][]T{x, y}, grad)
	near := func(what string, i int, got T, want, tol float64) {
		if math.Abs(float64(got)-want) > tol*max(1, math.Abs(want)) {
			t.Fatalf("%T: %s at x %v, y %v is %v, and should be %v", got, what, x[i], y[i], got, want)
		}
	}
	compared := 0
	for i := range x {
		x, y, grad := float64(x[i]), float64(y[i]), float64(grad[i])
		if want := f(x, y, alpha); !math.IsNaN(want) {
			near("the value", i, out[i], want, tol)
			compared++
		}
		if math.Abs(x) < 0.01 || math.Abs(x-alpha) < 0.01 { // where slopes change
			continue
		}
		const step = 1e-6
		for k, slope := range []float64{(f(x+step, y, alpha) - f(x-step, y, alpha)) / (2 * step),
			(f(x, y+step, alpha) - f(x, y-step, alpha)) / (2 * step)} {
			if !math.IsNaN(slope) {
				near(fmt.Sprint("gradient ", k), i, grads[k][i], slope*grad, gradTol)
			}
		}
	}
	if compared < n/3 {
		t.Errorf("%d of %d numbers are in the domain", compared, n)
	}
}

// Extrema that share their gradient do with NaN, infinities, zeros and equal messages what torch's
// scatter_reduce does: m == out divides the gradient among as many, and 0 counts once more.
func TestSharedExtrema(t *testing.T) {
	rel, g := oneWorker(t, 200, 600000) // a hub that is cut into segments
	for n, reduce := range []string{"max_shared", "min_shared"} {
		t.Run(reduce, func(t *testing.T) {
			if n == 0 {
				sharedExtrema[float64](t, rel, g, reduce)
			} else {
				sharedExtrema[float32](t, rel, g, reduce)
			}
		})
	}
}

func sharedExtrema[T expr.Float](t *testing.T, rel *graph.Relation, g *exprtest.Graph, reduce string) {
	const w = 4 // columns: few numbers, NaN now and then, infinities alone, zeros at the end that wins
	p := &exprtest.Program{Operands: []exprtest.Operand{{Side: "e", Shape: []int{w}}}, Reduce: reduce}
	sign, rng := 1.0, rand.New(rand.NewPCG(12, 1))
	if reduce == "min_shared" {
		sign = -1
	}
	x, grad := make([]T, len(g.Src)*w), make([]T, g.N*w)
	few := [w][]float64{{1, 2, math.Inf(-1)}, {1, 2, math.Inf(-1)}, {math.Inf(-1)}, {0, -1}}
	for i := range x {
		if x[i] = T(sign * few[i%w][rng.IntN(len(few[i%w]))]); i%w == 1 && rng.IntN(1000) == 0 {
			x[i] = T(math.NaN())
		}
	}
	for i := range grad {
		grad[i] = T(1 + rng.IntN(9))
	}
	best, ties, seen := make([]T, len(grad)), make([]T, len(grad)), make([]bool, g.N)
	for e, v := range g.Dst {
		for j, m := range x[e*w : (e+1)*w] {
			to := &best[int(v)*w+j]
			switch {
			case !seen[v]:
				*to = m
			case sign > 0:
				*to = max(*to, m)
			default:
				*to = min(*to, m)
			}
		}
		seen[v] = true
	}
	won := func(e, j int) (n T) {
		if x[e*w+j] == best[int(g.Dst[e])*w+j] {
			n = 1
		}
		return n
	}
	for e, v := range g.Dst {
		for j := range w {
			ties[int(v)*w+j] += won(e, j)
		}
	}
	same := func(what string, i int, got, want T) {
		t.Helper()
		if got != want && (got == got || want == want) {
			t.Fatalf("%T: %s %d is %v, and should be %v", got, what, i, got, want)
		}
	}
	out, grads := run(t, rel, g, p, [][]T{x}, grad)
	for i, want := range best {
		if same("result", i, out[i], want); want == 0 {
			ties[i]++
		}
	}
	for i, got := range grads[0] {
		to := int(g.Dst[i/w])*w + i%w
		same("gradient", i, got, won(i/w, i%w)*(grad[to]/ties[to]))
	}
}

// Of equal messages the first edge's wins, whatever the element type, and where a destination has segments.
func TestTies(t *testing.T) {
	rel, g := oneWorker(t, 30, 400)
	hub, hubGraph := oneWorker(t, 4, 100000)
	for n, name := range []string{"max", "min"} {
		t.Run(name, func(t *testing.T) {
			ties[float64](t, rel, g, name, 3)
			ties[float32](t, rel, g, name, 3)
			if n == 0 {
				ties[float64](t, hub, hubGraph, name, 40)
			} else {
				ties[float32](t, hub, hubGraph, name, 40)
			}
		})
	}
}

func ties[T expr.Float](t *testing.T, rel *graph.Relation, g *exprtest.Graph, name string, width int) {
	p := &exprtest.Program{
		Operands: []exprtest.Operand{{Side: "e", Shape: []int{width}}}, Reduce: name, Shapes: [][]int{{width}},
	}
	rng := rand.New(rand.NewPCG(9, 9))
	x, grad := make([]T, len(g.Src)*width), make([]T, g.N*width)
	for i := range x {
		x[i] = T(rng.IntN(3) - 1)
	}
	for i := range grad {
		grad[i] = T(1 + i%5)
	}
	out, grads := run(t, rel, g, p, [][]T{x}, grad)
	given := make([]bool, len(out))
	for i, v := range x {
		to := int(g.Dst[i/width])*width + i%width
		want := T(0)
		if v == out[to] && !given[to] {
			given[to], want = true, grad[to]
		}
		if grads[0][i] != want {
			t.Fatalf("%T: the gradient of edge %d is %v, not %v", x, i/width, grads[0][i], want)
		}
	}
}

// Every way to reduce computes what its oracle does, in both element types, and in one of them with segments of a
// hub; and its gradient is the oracle's slope.
func TestReducers(t *testing.T) {
	rel, g := oneWorker(t, 30, 400)
	hub, hubGraph := oneWorker(t, 4, 100000)
	for n, name := range expr.Reducers() {
		t.Run(name, func(t *testing.T) {
			reducer[float64](t, rel, g, name, 3, 1e-12)
			reducer[float32](t, rel, g, name, 3, 1e-4)
			if n%2 == 0 {
				reducer[float64](t, hub, hubGraph, name, 40, 1e-11)
			} else {
				reducer[float32](t, hub, hubGraph, name, 40, 1e-3)
			}
		})
	}
}

func reducer[T expr.Float](t *testing.T, rel *graph.Relation, g *exprtest.Graph, name string, width int, tol float64) {
	p := &exprtest.Program{Operands: []exprtest.Operand{{Side: "e", Shape: []int{width}}}, Reduce: name,
		Shapes: [][]int{{width}}}
	rng := rand.New(rand.NewPCG(9, 9))
	x, wide := make([]T, len(g.Src)*width), make([]float64, len(g.Src)*width)
	for i := range x {
		x[i] = T(rng.NormFloat64())
		wide[i] = float64(x[i])
	}
	want := p.Run(g, [][]float64{wide})
	grad, loss := make([]T, len(want)), func(x []float64) (sum float64) {
		for i, v := range p.Run(g, [][]float64{x}) {
			sum += v * float64(1+i%5)
		}
		return sum
	}
	for i := range grad {
		grad[i] = T(1 + i%5)
	}
	out, grads := run(t, rel, g, p, [][]T{x}, grad)
	for i, w := range want {
		if math.Abs(float64(out[i])-w) > tol*max(1, math.Abs(w)) {
			t.Fatalf("%T: result %d is %v, the oracle's %v", x, i, out[i], w)
		}
	}
	if width > 3 { // as often as differences take would take long
		return
	}
	for range 5 { // of one message at a time
		const step = 1e-6
		i := rng.IntN(len(x))
		was := wide[i]
		wide[i] = was + step
		above := loss(wide)
		wide[i] = was - step
		slope := (above - loss(wide)) / (2 * step)
		wide[i] = was
		if got := float64(grads[0][i]); math.Abs(got-slope) > 1e-3*max(1, math.Abs(slope)) {
			t.Fatalf("%T: gradient %d is %v, by differences %v", x, i, got, slope)
		}
	}
}
