package expr

import (
	"math"

	"sar/core/graph"
	"sar/core/internal/vec"
	"sar/core/kernel"
	"sar/core/mem"
)

// Run is a program with what it works on. Rows of operands are contiguous.
type Run[T Float] struct {
	Program *Program
	Rel     *graph.Relation
	Pool    *kernel.Pool

	Operands [][]T    // nil in backward where the plan does not save it
	Stored   [][]byte // in place of them, where the storage is not Native
	Seeds    []uint64 // of dropout instructions
	Keys     []int64  // of edges, in the users' order, for dropout; nil: KeyBase and the position
	KeyBase  int64

	// What forward leaves for backward: of each softmax the reference and the inverse of the sum [NumDst, width];
	// and where Program.KeepsWinner, the winning edges [NumDst, Width], or how many equal messages won.
	Most, Inv [][]T
	Winner    []int32

	// Out is the result [NumDst or NumEdges, Width]: forward fills it, and backward reads
	// it where the plan says so, or HalfKept in place of it where ReadsHalf says so.
	Out      []T
	HalfKept []vec.BFloat16
	// Of backward: the gradient of the result, and for each operand of the plan where its
	// gradient goes. One that is nil is computed all the same, for the peers.
	Grad  []T
	Grads [][]T
	// Plain sums, and programs of which TakesHalf says so, read HalfGrad in place of Grad. On one worker plain sums round
	// what they make into HalfOut in place of Out, and all programs gradients of sources into those HalfGrads that are
	// there, in place of Grads.
	HalfGrad, HalfOut []vec.BFloat16
	HalfGrads         [][]vec.BFloat16

	slots bool // edges are numbered by their slots
	plain bool // every register is made and every destination summed by rows: what tests compare with

	grad    []T   // of the messages, before they are weighed and summed
	deltas  [][]T // by softmax
	scratch []mem.Array[T]
}

// HalfGradOf is where the gradient of an operand goes in bfloat16; nil: it goes to Grads.
func (r *Run[T]) HalfGradOf(operand int) []vec.BFloat16 {
	if r.HalfGrads == nil {
		return nil
	}
	return r.HalfGrads[operand]
}

// RowsOfSide is how many rows operands of a side have on this worker.
func RowsOfSide(rel *graph.Relation, side Side) int {
	return [...]int{U: rel.NumSrc, V: rel.NumDst, E: int(rel.NumEdges), P: 1}[side]
}

// input is where an input lies.
func (r *Run[T]) input(i int) rows[T] {
	if i < len(r.Program.Operands) {
		data, rowBytes := r.Bytes(i)
		return r.rowsOf(i, data, rowBytes, 0)
	}
	return r.own(i)
}

// own is an input of the run's own.
func (r *Run[T]) own(input int) rows[T] {
	p := r.Program
	switch input {
	case p.inputGrad():
		return rows[T]{data: r.grad, half: r.HalfGrad, stride: p.Width()}
	case p.inputResult():
		return rows[T]{data: r.Out, stride: p.Width()}
	}
	s := (input - len(p.Operands) - 1) / 3
	out := rows[T]{stride: p.softmaxes[s].width}
	switch input {
	case p.inputMost(s):
		out.data = r.Most[s]
	case p.inputInv(s):
		out.data = r.Inv[s]
	default:
		if s < len(r.deltas) { // in backward
			out.data = r.deltas[s]
		}
	}
	return out
}

// NeedsEdges tells whether the users' numbers of edges matter to the program.
func (p *Program) NeedsEdges() bool {
	for _, o := range p.Operands {
		if o.Side == E {
			return true
		}
	}
	return p.Seeds > 0 || p.Reduce == None || p.KeepsWinner()
}

// Rows is how many rows the result has on this worker.
func (p *Program) Rows(rel *graph.Relation) int {
	if p.Reduce == None {
		return int(rel.NumEdges)
	}
	return rel.NumDst
}

// Phase is one sweep over all edges.
type Phase[T Float] struct {
	Sources uint32 // operands of side U whose rows it reads
	Sweep   *Sweep[T]
	Finish  func() // once all edges were seen
}

// Forward prepares the sweeps that compute Out, to be run one after the other.
func (r *Run[T]) Forward() []Phase[T] {
	p, out := r.Program, r.Out
	r.start()
	var phases []Phase[T]
	for _, c := range p.forwardCodes() {
		sweep := newSweep(compile[T](c, r.plain), r)
		phase := Phase[T]{Sources: c.values() & p.sources(), Sweep: sweep, Finish: r.finish}
		for n, k := range c.sinks {
			if k.kind != sinkWeights {
				sweep.targets[n] = rows[T]{data: out, stride: p.Width()}
				continue
			}
			phase.Finish = func() {
				for _, k := range c.sinks {
					r.invert(k.of)
				}
			}
		}
		phases = append(phases, phase)
	}
	return phases
}

// start makes results and softmaxes those of destinations without edges.
func (r *Run[T]) start() {
	for s := range r.Program.softmaxes {
		fillWith(r.Most[s], T(math.Inf(-1)))
		clear(r.Inv[s])
	}
	def := &defsOf[T]().reduces[r.Program.Reduce]
	fillWith(r.Out, def.start)
	fillWith(r.Winner, def.startWon)
}

// finish makes the result of what destinations have come to.
func (r *Run[T]) finish() {
	p, finish := r.Program, defsOf[T]().reduces[r.Program.Reduce].finish
	if p.online >= 0 {
		r.invert(p.online)
	} else if finish == nil {
		return
	}
	w, ptr, ops, d := p.Width(), r.Rel.RowPtr.Data, vec.Get[T](), 0
	if p.online >= 0 {
		d = p.runOfHeads()
	}
	r.rowwise(func(i int) {
		row := r.Out[i*w : (i+1)*w]
		if finish != nil {
			finish(row, r.won(i), ptr[i+1]-ptr[i])
		}
		if p.online < 0 {
			return
		}
		n := p.softmaxes[p.online].width
		inv := r.Inv[p.online][i*n : (i+1)*n]
		if d > 0 {
			ops.TimesEach(row, row, inv, d)
			return
		}
		for j, h := range p.heads {
			row[j] *= inv[h]
		}
	})
}

// won is what Winner has of a destination.
func (r *Run[T]) won(i int) []int32 {
	if len(r.Winner) == 0 {
		return nil
	}
	w := r.Program.Width()
	return r.Winner[i*w : (i+1)*w]
}

// rowwise calls f for every own row, on all threads.
func (r *Run[T]) rowwise(f func(i int)) {
	r.shares(func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			f(i)
		}
	})
}

// shares calls f for runs of own rows, on all threads.
func (r *Run[T]) shares(f func(r0, r1 int)) { inShares(r.Pool, r.Rel.NumDst, 4096, f) }

func fillWith[T Float | int32](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}

// Close frees what the run has made for itself.
func (r *Run[T]) Close() {
	for i := range r.scratch {
		r.scratch[i].Free()
	}
	r.scratch = nil
}
