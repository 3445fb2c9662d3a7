package expr

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sar/core/graph"
	"sar/core/internal/vec"
	"sar/core/internal/view"
	"sar/core/kernel"

	"golang.org/x/sys/unix"
)

// benchRelation is a random graph on one worker.
func benchRelation(b testing.TB, n, edges int) *graph.Relation {
	return communities(b, n, edges, 1)
}

// communities is a graph on one worker in which four of five edges stay within one of
// so many communities, whose nodes have no numbers in common.
func communities(b testing.TB, n, edges, count int) *graph.Relation {
	return relationOf(b, n, edges, func(rng *rand.Rand, _ int) (src, dst int64) {
		src, dst = int64(rng.IntN(n)), int64(rng.IntN(n))
		if count > 1 && rng.IntN(5) > 0 {
			dst = src%int64(count) + int64(rng.IntN(n/count)*count)
		}
		return src, dst
	})
}

// relationOf is a graph of n nodes on one worker whose i-th edge a function draws.
func relationOf(b testing.TB, n, edges int, draw func(rng *rand.Rand, i int) (src, dst int64)) *graph.Relation {
	rng := rand.New(rand.NewPCG(1, 1))
	src, dst := make([]int64, edges), make([]int64, edges)
	for i := range src {
		src[i], dst[i] = draw(rng, i)
	}
	start := []int64{0, int64(n)}
	book, err := graph.HomogeneousBook(start)
	if err != nil {
		b.Fatal(err)
	}
	source, err := graph.FromEdges(start, 0, graph.Ends{Src: src, Dst: dst})
	if err != nil {
		b.Fatal(err)
	}
	defer source.Free()
	rels, err := graph.Build(book, 0, source, graph.BuildOptions{EdgeOrder: true, Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(rels[0].Free)
	return &graph.Relation{Structure: rels[0]}
}

var benchPrograms = map[string]string{
	"gat": `{"operands":[{"side":"u","shape":[4,1]},{"side":"v","shape":[4,1]},{"side":"u","shape":[4,32]}],
		"code":[{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":3,"alpha":0.2},{"op":"softmax","a":4},{"op":"mul","a":2,"b":5}],"result":6,"reduce":"sum"}`,
	"gat_odd": `{"operands":[{"side":"u","shape":[3,1]},{"side":"v","shape":[3,1]},{"side":"u","shape":[3,7]}],
		"code":[{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":3,"alpha":0.2},{"op":"softmax","a":4},{"op":"mul","a":2,"b":5}],"result":6,"reduce":"sum"}`,
	"gatv2": `{"operands":[{"side":"u","shape":[4,32]},{"side":"v","shape":[4,32]},{"side":"p","shape":[4,32]}],
		"code":[{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":3,"alpha":0.2},{"op":"dot","a":4,"b":2},{"op":"softmax","a":5},{"op":"mul","a":0,"b":6}],"result":7,"reduce":"sum"}`,
	"dot": `{"operands":[{"side":"u","shape":[4,32]},{"side":"v","shape":[4,32]},{"side":"u","shape":[4,32]}],
		"code":[{"op":"dot","a":0,"b":1},{"op":"scale","a":3,"alpha":0.2},{"op":"softmax","a":4},{"op":"mul","a":2,"b":5}],"result":6,"reduce":"sum"}`,
	"max": `{"operands":[{"side":"u","shape":[128]}],"code":[],"result":0,"reduce":"max"}`,
	"add": `{"operands":[{"side":"u","shape":[128]},{"side":"v","shape":[128]}],
		"code":[{"op":"add","a":0,"b":1}],"result":2,"reduce":"sum"}`,
	"relu": `{"operands":[{"side":"u","shape":[128]},{"side":"e","shape":[128]}],
		"code":[{"op":"add","a":0,"b":1},{"op":"relu","a":2}],"result":3,"reduce":"sum"}`,
	"gat_dropout": `{"operands":[{"side":"u","shape":[4,1]},{"side":"v","shape":[4,1]},{"side":"u","shape":[4,32]}],
		"code":[{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":3,"alpha":0.2},{"op":"softmax","a":4},{"op":"dropout","a":5,"alpha":0.5},{"op":"mul","a":2,"b":6}],"result":7,"reduce":"sum"}`,
}

// attention is a layer's sparse half, as bench/attention.py has it.
func attention(form string, heads, width int) string {
	row, narrow := fmt.Sprintf("[%d,%d]", heads, width), fmt.Sprintf("[%d,1]", heads)
	last := func(at int) string {
		return fmt.Sprintf(`{"op":"softmax","a":%d},{"op":"mul","a":0,"b":%d}],"result":%d,"reduce":"sum"}`, at, at+1, at+2)
	}
	switch form {
	case "additive":
		return `{"operands":[{"side":"u","shape":` + row + `},{"side":"u","shape":` + narrow + `},
			{"side":"v","shape":` + narrow + `}],
			"code":[{"op":"add","a":1,"b":2},{"op":"leaky_relu","a":3,"alpha":0.2},` + last(4)
	case "dot":
		return `{"operands":[{"side":"u","shape":` + row + `},{"side":"u","shape":` + row + `},
			{"side":"v","shape":` + row + `}],
			"code":[{"op":"dot","a":1,"b":2},{"op":"scale","a":3,"alpha":0.2},` + last(4)
	case "cosine":
		return `{"operands":[{"side":"u","shape":` + row + `},{"side":"u","shape":` + row + `},
			{"side":"v","shape":` + row + `},{"side":"p","shape":[1]}],
			"code":[{"op":"dot","a":1,"b":2},{"op":"mul","a":4,"b":3},` + last(5)
	case "gatv2":
		return `{"operands":[{"side":"u","shape":` + row + `},{"side":"v","shape":` + row + `},
			{"side":"p","shape":` + row + `}],
			"code":[{"op":"add","a":0,"b":1},{"op":"leaky_relu","a":3,"alpha":0.2},{"op":"mul","a":4,"b":2},
			{"op":"total","a":5,"shape":` + narrow + `},` + last(6)
	}
	panic(form)
}

const benchNodes, benchEdges = 40000, 1600000

func newRun(b testing.TB, rel *graph.Relation, text string) *Run[float32] {
	p, err := Parse(text)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(2, 1))
	fresh := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = rng.Float32() - 0.5
		}
		return x
	}
	r := &Run[float32]{Program: p, Rel: rel, Pool: kernel.NewPool(1), Seeds: make([]uint64, p.Seeds)}
	var grads [][]float32
	for _, o := range p.Operands {
		n := map[Side]int{U: rel.NumSrc, V: rel.NumDst, E: int(rel.NumEdges), P: 1}[o.Side] * o.Width
		x, stored := fresh(n), []vec.BFloat16(nil)
		if o.Storage == BFloat16 {
			stored = make([]vec.BFloat16, n)
			vec.Get[float32]().Narrow(stored, x)
		}
		r.Operands, grads = append(r.Operands, x), append(grads, make([]float32, n))
		r.Stored = append(r.Stored, view.Bytes(stored))
	}
	for _, w := range p.Softmaxes() {
		r.Most, r.Inv = append(r.Most, make([]float32, rel.NumDst*w)), append(r.Inv, make([]float32, rel.NumDst*w))
	}
	if p.KeepsWinner() {
		r.Winner = make([]int32, rel.NumDst*p.Width())
	}
	r.Out, r.Grad, r.Grads = make([]float32, rel.NumDst*p.Width()), fresh(rel.NumDst*p.Width()), grads
	if stored(r) {
		r.HalfGrad = make([]vec.BFloat16, len(r.Grad))
		vec.Get[float32]().Narrow(r.HalfGrad, r.Grad)
		r.Grad = nil
	}
	return r
}

// stored tells whether operands are in bfloat16.
func stored(r *Run[float32]) bool {
	return slices.ContainsFunc(r.Program.Operands, func(o Operand) bool { return o.Storage == BFloat16 })
}

func forward[T Float](r *Run[T]) {
	for _, phase := range r.Forward() {
		phase.Sweep.Rows(nil, 0, int32(r.Rel.NumCols()))
		phase.Finish()
	}
}

// BenchmarkPrograms are the usual expressions, beside a plain product of the same width.
func BenchmarkPrograms(b *testing.B) {
	rel := communities(b, benchNodes, benchEdges, 64)
	bench := func(name string, f func() func()) { timed(b, name, rel, f()) }
	x, y := make([]float32, rel.NumSrc*128), make([]float32, rel.NumDst*128)
	for i := range x {
		x[i] = float32(i % 97)
	}
	pool, csr := kernel.NewPool(1), kernel.CSR{Ptr32: rel.RowPtr.Data, Col: rel.Col.Data, Edge: rel.RowEdge.Data}
	csr.Order = kernel.Order{Rows: rel.Order.Data, Before32: rel.RowsBefore.Data}
	bench("spmm", func() func() {
		return func() { kernel.SpMM(pool, y, kernel.Product[float32]{A: csr, X: x, Width: 128, Heads: 1}) }
	})
	bench("spmm_heads", func() func() {
		w := make([]float32, rel.NumEdges*4)
		return func() { kernel.SpMM(pool, y, kernel.Product[float32]{A: csr, X: x, Width: 128, W: w, Heads: 4}) }
	})
	for _, name := range []string{"gat", "gat_dropout", "gatv2", "dot", "max", "add", "relu"} {
		r := newRun(b, rel, benchPrograms[name])
		bench(name+"/forward", func() func() { return func() { forward(r) } })
		bench(name+"/backward", func() func() {
			forward(r)
			return func() {
				if err := backwardWhole(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAttention is attention of several shapes, 4 x 47 among them, a last layer's, with rows in float32 and in
// bfloat16.
func BenchmarkAttention(b *testing.B) {
	rel := communities(b, benchNodes, benchEdges, 64)
	for _, form := range []string{"additive", "dot", "cosine", "gatv2"} {
		for _, shape := range [][2]int{{1, 64}, {4, 32}, {8, 16}, {4, 47}} {
			name, text := fmt.Sprintf("%s/%dx%d", form, shape[0], shape[1]), attention(form, shape[0], shape[1])
			row := fmt.Sprintf(`"shape":[%d,%d]`, shape[0], shape[1])
			for _, r := range []*Run[float32]{
				newRun(b, rel, text), newRun(b, rel, strings.ReplaceAll(text, row, `"storage":"bfloat16",`+row)),
			} {
				if stored(r) {
					name += "/bfloat16"
				}
				timed(b, name+"/forward", rel, func() { forward(r) })
				forward(r)
				timed(b, name+"/backward", rel, func() {
					if err := backwardWhole(r); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	}
}

// timed reports processor time an edge.
func timed(b *testing.B, name string, rel *graph.Relation, step func()) {
	b.Run(name, func(b *testing.B) {
		var began int64
		for b.Loop() {
			if began == 0 {
				began = cpuTime()
			}
			step()
		}
		b.ReportMetric(float64(cpuTime()-began)/float64(b.N)/float64(rel.NumEdges), "cpu-ns/edge")
	})
}

func backwardWhole[T Float](r *Run[T]) error {
	back, err := r.Backward(r.Differentiate(1<<len(r.Grads) - 1))
	if err != nil {
		return err
	}
	defer r.Close()
	end := r.Rel.NumCols()
	for _, phase := range back.Deltas {
		phase.Sweep.Rows(nil, 0, int32(end))
	}
	if back.Own != nil {
		back.Own.Columns(0, end)
	}
	if back.Target != nil {
		back.Target.Rows(nil, 0, int32(end))
	}
	back.Finish()
	return nil
}

// cpuTime is the processor time of the process in nanoseconds: wall time says
// little on a machine with other work.
func cpuTime() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
