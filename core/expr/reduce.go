package expr

import (
	"math"
	"slices"

	"sar/core/internal/vec"
)

// Reduce is what becomes of the messages of a destination.
type Reduce uint8

const (
	None Reduce = iota // the result is a value per edge
	Sum
	Mean
	Max // as DGL has it: NaN never wins, infinite results are 0, and one message gets the gradient
	Min
	MaxShared // as PyG has it: NaN wins, infinite results stay, and equal messages share the gradient
	MinShared
	numReduces
)

func (r Reduce) String() string { return defs64.reduces[r].name }

// reduceDef is a way to reduce messages: its name, how it is computed, its gradient, and what tests compare it
// with. Functions are called for one destination; those that are nil are not needed.
type reduceDef[T Float] struct {
	name string
	// sum: messages are added up, by the loops that sums of gradients use. Else step takes one into best, what
	// the destination has so far, and won, what Run.Winner has of it, unless the result is a value per edge.
	sum  bool
	step func(ops *vec.Ops[T], best, x []T, won []int32, edge int32)
	// merge takes in what other edges of the destination came to.
	merge func(ops *vec.Ops[T], best, x []T, won, others []int32)
	// start and startWon are what a destination has before its first message.
	start    T
	startWon int32
	// finish makes the result of what a destination with so many edges has come to.
	finish func(row []T, won []int32, edges int32)

	// divide makes what every message of a destination gets of the gradient of the result.
	divide func(to, grad, out []T, won []int32, edges int32)
	// readsResult: that takes out, or gradient does.
	readsResult bool
	// gradient writes down the gradient of a message from that of its destination.
	gradient func(g *gradients, message, grad int) int

	// oracle is the definition: the result of one destination's messages, at least one.
	oracle func(messages []float64) float64
}

func defineReduces[T Float]() [numReduces]reduceDef[T] {
	return [numReduces]reduceDef[T]{
		None: {name: "none"},
		Sum:  {name: "sum", sum: true, oracle: total},
		Mean: {
			name: "mean", sum: true,
			finish: func(row []T, _ []int32, edges int32) {
				scale := 1 / T(max(1, edges))
				for j := range row {
					row[j] *= scale
				}
			},
			divide: func(to, grad, _ []T, _ []int32, edges int32) {
				scale := 1 / T(max(1, edges))
				for j, g := range grad {
					to[j] = g * scale
				}
			},
			oracle: func(m []float64) float64 { return total(m) / float64(len(m)) },
		},
		Max:       extremum[T]("max", false),
		Min:       extremum[T]("min", true),
		MaxShared: shared[T]("max_shared", false),
		MinShared: shared[T]("min_shared", true),
	}
}

// extremum keeps the greatest (least) number of each element and the edge that it is of. Of equal ones it keeps the
// first edge's, whatever the order in which they come. (DGL keeps the first too, but for float32 on CPUs with AVX-512,
// where libxsmm computes, the last.)
func extremum[T Float](name string, least bool) reduceDef[T] {
	d := reduceDef[T]{
		name: name, start: worst[T](least), startWon: -1,
		step: func(ops *vec.Ops[T], best, x []T, won []int32, edge int32) { ops.Win(best, x, won, edge, least) },
		finish: func(row []T, won []int32, _ int32) { // no edge, or none that is finite
			for j, v := range row {
				if math.IsInf(float64(v), 0) {
					row[j], won[j] = 0, -1
				}
			}
		},
		gradient: func(g *gradients, _, grad int) int { return g.make(opWinner, grad, -1) },
		oracle:   extremumOracle(least),
	}
	d.merge = func(_ *vec.Ops[T], best, x []T, won, others []int32) {
		for j, edge := range others {
			v, better := x[j], x[j] > best[j]
			if least {
				better = v < best[j]
			}
			if edge >= 0 && (better || v == best[j] && edge < won[j]) {
				best[j], won[j] = v, edge
			}
		}
	}
	return d
}

// shared keeps the greatest (least) number of each element and how many messages are equal to it.
func shared[T Float](name string, least bool) reduceDef[T] {
	return reduceDef[T]{
		name: name, start: worst[T](least), readsResult: true,
		step: func(_ *vec.Ops[T], best, x []T, won []int32, _ int32) { winAll(best, x, won, 1, least) },
		merge: func(_ *vec.Ops[T], best, x []T, won, others []int32) {
			for j, n := range others {
				winAll(best[j:j+1], x[j:j+1], won[j:j+1], n, least)
			}
		},
		finish: func(row []T, _ []int32, edges int32) {
			if edges == 0 {
				clear(row)
			}
		},
		divide: func(to, grad, out []T, won []int32, _ int32) {
			for j, g := range grad {
				n := won[j]
				if out[j] == 0 {
					n++ // torch counts the 0 that a result begins with
				}
				to[j] = g / T(n) // infinite where the result is NaN
			}
		},
		gradient: func(g *gradients, message, grad int) int {
			return g.add(node{op: opBest, a: grad, b: message, shape: g.nodes[message].shape, arg: -1})
		},
		oracle: extremumOracle(least),
	}
}

func total(messages []float64) (sum float64) {
	for _, x := range messages {
		sum += x
	}
	return sum
}

func worst[T Float](least bool) T {
	if least {
		return T(math.Inf(1))
	}
	return T(math.Inf(-1))
}

func extremumOracle(least bool) func(m []float64) float64 {
	if least {
		return func(m []float64) float64 { return slices.Min(m) }
	}
	return func(m []float64) float64 { return slices.Max(m) }
}

// winAll: where x[j] > best[j] (least: <), best[j] becomes x[j] and won[j] n; where they are equal, n is added.
// NaN stays, and nothing equals it.
func winAll[T Float](best, x []T, won []int32, n int32, least bool) {
	best, won = best[:len(x)], won[:len(x)]
	for j, v := range x {
		switch {
		case v == best[j]:
			won[j] += n
		case !least && v > best[j], least && v < best[j]:
			best[j], won[j] = v, n
		case v != v:
			best[j], won[j] = v, 0
		}
	}
}

// reduceNamed is the way of a name.
func reduceNamed(name string) (Reduce, bool) {
	i := slices.Index(Reducers(), name)
	return Reduce(max(0, i)), i >= 0
}

// Reducers are the names of all ways to reduce.
func Reducers() (names []string) {
	for _, d := range defs64.reduces {
		names = append(names, d.name)
	}
	return names
}

// ReduceOracle is the definition of a way to reduce, for tests: the result of one destination's messages, of which
// there is at least one. It is nil where the result is a value per edge.
func ReduceOracle(name string) func(messages []float64) float64 {
	r, _ := reduceNamed(name)
	return defs64.reduces[r].oracle
}

// reduce is how the program reduces messages, as far as that does not depend on the element type.
func (p *Program) reduce() *reduceDef[float64] { return &defs64.reduces[p.Reduce] }

// KeepsWinner tells whether a run needs Winner.
func (p *Program) KeepsWinner() bool { return p.reduce().step != nil }

// step takes the messages of a block into what their destinations have so far.
func (t *task[T]) step(a *sum[T]) {
	w, x, def, target := a.width, t.reg(a.from), &t.s.defs.reduces[t.s.p.Reduce], t.target(a)
	for k, i := range t.rows[:t.m] {
		best, won := target.row(i)[:w], t.s.run.Winner[int(i)*w:]
		if t.own != nil {
			won = t.own.winner
		}
		def.step(t.s.ops, best, x[k*w:(k+1)*w], won[:w], t.edge[k])
	}
}
