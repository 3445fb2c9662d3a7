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
	Seeds    []uint64 // of dropout instructions
	Keys     []int64  // of edges, in the users' order, for dropout; nil: KeyBase and the position
	KeyBase  int64

	// What forward leaves for backward: of each softmax what its arguments were taken
	// relative to, which is about the greatest, and the inverse of the sum [NumDst, width]; the winning edges of max and min [NumDst, Width],
	// or how many equal messages won.
	Most, Inv [][]T
	Winner    []int32

	// Out is the result [NumDst or NumEdges, Width]: forward fills it, and backward reads
	// it where the plan says so.
	Out []T
	// Of backward: the gradient of the result, and for each operand of the plan where its
	// gradient goes. One that is nil is computed all the same, for the peers.
	Grad  []T
	Grads [][]T

	plain bool // every register is made and every destination summed by rows: what tests compare with

	grad    []T   // of the messages, before they are weighed and summed
	deltas  [][]T // by softmax
	scratch []mem.Array[T]
}

// RowsOfSide is how many rows operands of a side have on this worker.
func RowsOfSide(rel *graph.Relation, side Side) int {
	return [...]int{U: rel.NumSrc, V: rel.NumDst, E: int(rel.NumEdges), P: 1}[side]
}

// rows is where a load finds its rows.
func (r *Run[T]) rows(slot int) rows[T] {
	p := r.Program
	if slot < len(p.Operands) {
		return rows[T]{data: r.Operands[slot], stride: p.Operands[slot].Width}
	}
	if slot == p.slotGrad() {
		return rows[T]{data: r.grad, stride: p.Width()}
	}
	s := (slot - len(p.Operands) - 1) / 3
	out := rows[T]{stride: p.softmaxes[s].width}
	switch slot {
	case p.slotMost(s):
		out.data = r.Most[s]
	case p.slotInv(s):
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
	return p.Seeds > 0 || p.Reduce == None || p.Reduce.Extremum()
}

// noWinner is what Run.Winner has where there is no edge.
func (p *Program) noWinner() int32 {
	if p.Reduce.shared() {
		return 0
	}
	return -1
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
	for s := range p.softmaxes {
		fillWith(r.Most[s], T(math.Inf(-1)))
		clear(r.Inv[s])
	}
	clear(out)
	switch p.Reduce {
	case Max, MaxShared:
		fillWith(out, T(math.Inf(-1)))
	case Min, MinShared:
		fillWith(out, T(math.Inf(1)))
	}
	fillWith(r.Winner, p.noWinner())
	var phases []Phase[T]
	for _, c := range p.forwardCodes() {
		sweep := newSweep(c, r)
		phase := Phase[T]{Sources: c.values() & p.mask(U), Sweep: sweep}
		var weighed []int
		for n, k := range c.sinks {
			if k.kind == sinkWeights {
				weighed = append(weighed, k.slot)
			} else {
				sweep.targets[n] = rows[T]{data: out, stride: p.Width()}
			}
		}
		phase.Finish = func() {
			for _, s := range weighed {
				r.invert(s)
			}
			if len(weighed) == 0 {
				r.finish()
			}
		}
		phases = append(phases, phase)
	}
	return phases
}

// invert turns the sums of a softmax into their inverses, 0 where there are no edges.
func (r *Run[T]) invert(s int) {
	w, ptr, inv := r.Program.softmaxes[s].width, r.Rel.RowPtr.Data, r.Inv[s]
	for i := range r.Rel.NumDst {
		if ptr[i] == ptr[i+1] {
			continue
		}
		for h := i * w; h < (i+1)*w; h++ {
			inv[h] = 1 / inv[h]
		}
	}
}

// finish makes the result of what was added up.
func (r *Run[T]) finish() {
	p := r.Program
	w := p.Width()
	if p.online >= 0 {
		r.invert(p.online)
	}
	if p.Reduce == None || p.Reduce == Sum && p.online < 0 {
		return
	}
	ptr, ops, d := r.Rel.RowPtr.Data, vec.Get[T](), 0
	if p.online >= 0 {
		d = p.runOfHeads()
	}
	r.rowwise(func(i int) {
		row := r.Out[i*w : (i+1)*w]
		switch p.Reduce {
		case MaxShared, MinShared:
			if ptr[i] == ptr[i+1] {
				clear(row)
			}
			return
		case Max, Min: // no edge, or none that is finite
			for j, v := range row {
				if math.IsInf(float64(v), 0) {
					row[j], r.Winner[i*w+j] = 0, p.noWinner()
				}
			}
			return
		case Mean:
			scale := 1 / T(max(1, ptr[i+1]-ptr[i]))
			for j := range row {
				row[j] *= scale
			}
		}
		if p.online >= 0 {
			n := p.softmaxes[p.online].width
			inv := r.Inv[p.online][i*n : (i+1)*n]
			if d > 0 {
				ops.TimesEach(row, row, inv, d)
				return
			}
			for j, h := range p.heads {
				row[j] *= inv[h]
			}
		}
	})
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
func (r *Run[T]) shares(f func(r0, r1 int)) {
	const share = 4096
	n := r.Rel.NumDst
	r.Pool.Run((n+share-1)/share, func(t int) { f(t*share, min(n, (t+1)*share)) })
}

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
