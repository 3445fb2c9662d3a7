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

	Operands [][]T    // nil where Values does not ask for it
	Seeds    []uint64 // of dropout instructions
	Keys     []int64  // of edges, in the users' order, for dropout; nil: KeyBase and the position
	KeyBase  int64

	// What forward leaves for backward: of each softmax what its arguments were taken
	// relative to, which is about the greatest, and the inverse of the sum [NumDst, width]; the winning edges of max and min [NumDst, Width].
	Most, Inv [][]T
	Winner    []int32

	plain bool // every register is made and every destination summed by rows: what tests compare with

	out, grad []T   // [NumDst or NumEdges, Width]
	deltas    [][]T // by softmax
	scratch   []mem.Array[T]
	packed    map[string]*packed[T]
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
	return p.Seeds > 0 || p.Reduce == None || p.Reduce == Max || p.Reduce == Min
}

// Phase is one sweep over all edges.
type Phase[T Float] struct {
	Sources uint32 // operands of side U whose rows it reads
	Sweep   *Sweep[T]
	Finish  func() // once all edges were seen
}

// Forward prepares the sweeps that compute out, to be run one after the other.
// out is [NumDst, Width], or [NumEdges, Width] without a reducer.
func (r *Run[T]) Forward(out []T) []Phase[T] {
	p := r.Program
	r.out = out
	for s := range p.softmaxes {
		fillWith(r.Most[s], T(math.Inf(-1)))
		clear(r.Inv[s])
	}
	clear(out)
	switch p.Reduce {
	case Max:
		fillWith(out, T(math.Inf(-1)))
	case Min:
		fillWith(out, T(math.Inf(1)))
	}
	for i := range r.Winner {
		r.Winner[i] = -1
	}
	var phases []Phase[T]
	for _, c := range p.forwardCodes() {
		sweep := newSweep(c, r)
		phase := Phase[T]{Sources: p.Sources(c.values()), Sweep: sweep}
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
		row := r.out[i*w : (i+1)*w]
		switch p.Reduce {
		case Max, Min: // no edge, or none that is finite
			for j, v := range row {
				if math.IsInf(float64(v), 0) {
					row[j], r.Winner[i*w+j] = 0, -1
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

func fillWith[T Float](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}

// Backward is the sweeps that compute gradients.
type Backward[T Float] struct {
	run *Run[T]

	// Deltas come first, one after the other.
	Deltas []Phase[T]
	// Own makes gradients of operands of side U, by columns, for own rows, and Peers
	// the same for boundary rows. Target makes the others, by rows. Each is nil
	// where there is nothing to make.
	Own, Peers, Target *Sweep[T]

	beside []beside[T]
	pushed *Sweep[T] // over edges into rows of peers, or nil
}

// Plan is what moves in backward where all ranks together want the gradients of the
// operands in set: the operands of side U whose values are read, and those whose
// gradients go home.
func (p *Program) Plan(set uint32) (values, home uint32) {
	b := p.backwardCodes(set, 0)
	for _, c := range []*code{b.source, b.target} {
		if c != nil {
			values |= p.Sources(c.values())
		}
	}
	if b.source != nil {
		home = p.Sources(set)
	}
	return values, home
}

// Saves are the operands that backward reads, and whether it reads the result.
func (p *Program) Saves(set uint32) (values uint32, result bool) {
	return p.backwardCodes(set, 0).values(), set != 0 && p.online >= 0
}

// Backward prepares the gradients of the operands in own, which go to grads, from grad,
// that of the result, and out, the result where Saves asks for it. All gradients are
// cleared first. agreed are the operands that any rank wants a gradient of. apart:
// values of sources are not read again, so edges and parameters have no part in
// what Own and Peers do.
func (r *Run[T]) Backward(agreed, own uint32, out, grad []T, grads [][]T, apart bool) (*Backward[T], error) {
	p := r.Program
	b := &Backward[T]{run: r}
	for i := range grads {
		if wanted(own, i) {
			clear(grads[i])
		}
	}
	if err := r.prepare(out, grad); err != nil {
		return nil, err
	}
	for _, c := range p.backwardCodes(agreed, 0).deltas {
		sweep := newSweep(c, r)
		for n, k := range c.sinks {
			s := (k.slot - len(p.Operands) - 1) / 3
			sweep.targets[n] = rows[T]{data: r.deltas[s], stride: p.softmaxes[s].width}
		}
		b.Deltas = append(b.Deltas, Phase[T]{Sources: p.Sources(c.values()), Sweep: sweep, Finish: func() {}})
	}
	size := 0
	if !r.plain && !apart && p.Sources(own) == p.Sources(agreed) {
		size = sizeOf[T]()
	}
	mine := p.backwardCodes(own, size)
	b.Own, b.Target = b.sweep(mine.source, grads), b.sweep(mine.target, grads)
	if r.Rel.Parts > 1 {
		all := p.Sources(agreed)
		if size > 0 {
			all = own
		}
		b.Peers = b.sweep(p.backwardCodes(all, size).source, grads)
	}
	for _, s := range []*Sweep[T]{b.Own, b.Peers} {
		if s != nil {
			if err := s.pack(); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

func (b *Backward[T]) sweep(c *code, grads [][]T) *Sweep[T] {
	if c == nil {
		return nil
	}
	s := newSweep(c, b.run)
	for n, k := range c.sinks {
		s.targets[n] = rows[T]{data: grads[k.slot], stride: b.run.Program.Operands[k.slot].Width}
	}
	return s
}

// Finish writes the gradients of parameters, and completes those of destinations.
func (b *Backward[T]) Finish() {
	for _, s := range []*Sweep[T]{b.Own, b.Peers, b.Target, b.pushed} {
		if s != nil {
			s.params()
		}
	}
	b.join()
}

// prepare makes what derived code loads: the gradient of the messages and, for the
// softmax that forward computed with the sum, Σ over in-edges of weight times gradient,
// which is that of the result times the result.
func (r *Run[T]) prepare(out, grad []T) error {
	p := r.Program
	w := p.Width()
	r.grad, r.deltas = grad, make([][]T, len(p.softmaxes))
	for s, x := range p.softmaxes {
		delta, err := mem.Make[T](mem.Scratch, r.Rel.NumDst*x.width)
		if err != nil {
			return err
		}
		r.scratch = append(r.scratch, delta)
		r.deltas[s] = delta.Data
	}
	if p.online >= 0 {
		r.weightedSums(out, grad)
	}
	if p.Reduce != Mean {
		return nil
	}
	scaled, err := mem.Make[T](mem.Scratch, len(grad))
	if err != nil {
		return err
	}
	r.scratch, r.grad = append(r.scratch, scaled), scaled.Data
	ptr := r.Rel.RowPtr.Data
	r.rowwise(func(i int) {
		scale := 1 / T(max(1, ptr[i+1]-ptr[i]))
		for j := i * w; j < (i+1)*w; j++ {
			scaled.Data[j] = grad[j] * scale
		}
	})
	return nil
}

// weightedSums computes the delta of the softmax that forward computed with the sum:
// products of out and grad, summed over the elements of each head.
func (r *Run[T]) weightedSums(out, grad []T) {
	p := r.Program
	w, width, delta := p.Width(), p.softmaxes[p.online].width, r.deltas[p.online]
	if d := p.runOfHeads(); d > 0 {
		ops := vec.Get[T]()
		r.shares(func(r0, r1 int) {
			one := make([]int32, r1-r0)
			for k := range one {
				one[k] = int32(k)
			}
			ops.DotPairs(&vec.Pairs[T]{Out: delta[r0*width : r1*width], X: out[r0*w : r1*w], Y: grad[r0*w : r1*w],
				StrideX: w, StrideY: w, IX: one, IY: one, Heads: width, D: d})
		})
		return
	}
	r.rowwise(func(i int) {
		to := delta[i*width:]
		for j, h := range p.heads {
			to[h] += grad[i*w+j] * out[i*w+j]
		}
	})
}

// runOfHeads is how many elements of the result belong to one element of the online softmax,
// where they lie side by side; else 0.
func (p *Program) runOfHeads() int {
	heads := p.softmaxes[p.online].width
	if heads == 0 || len(p.heads)%heads != 0 {
		return 0
	}
	d := len(p.heads) / heads
	for j, h := range p.heads {
		if int(h) != j/d {
			return 0
		}
	}
	return d
}

// params adds what the sweep has summed to the gradients of parameters.
func (s *Sweep[T]) params() {
	for n, k := range s.code.sinks {
		if k.kind == sinkParam {
			for j, v := range s.sums[n] {
				s.targets[n].data[j] += T(v)
			}
		}
	}
}

// Close frees what the run has made for itself.
func (r *Run[T]) Close() {
	for i := range r.scratch {
		r.scratch[i].Free()
	}
	r.scratch, r.packed = nil, nil
}
