package expr

import (
	"sar/core/internal/vec"
	"sar/core/internal/view"
	"sar/core/mem"
)

// Backward is the sweeps that compute the gradients of a plan.
type Backward[T Float] struct {
	run *Run[T]

	// Deltas come first, one after the other.
	Deltas []Phase[T]
	// Own makes gradients of operands of side U, by columns, for own rows, and Peers
	// the same for boundary rows. Target makes the others, by rows. Each is nil where
	// there is nothing to make.
	Own, Peers, Target *Sweep[T]

	source   *calls[T] // what Own, Peers and the sweep over edges into rows of peers run
	pushed   *Sweep[T] // or nil
	separate []separate[T]
}

// separate is what Peers adds up for destinations while Own may run too, and where it goes in the end.
type separate[T Float] struct{ from, to []T }

// Differentiate plans the gradients of the operands in a set.
func (r *Run[T]) Differentiate(operands uint32) *GradientPlan {
	if r.plain {
		return r.Program.Differentiate(operands, 0, r.HalfGrad != nil)
	}
	return r.Program.Differentiate(operands, view.Size[T](), r.HalfGrad != nil)
}

// Backward prepares the gradients of a plan. They are cleared first.
func (r *Run[T]) Backward(plan *GradientPlan) (*Backward[T], error) {
	p := r.Program
	for i, o := range p.Operands {
		if !wanted(plan.Operands, i) || r.HalfGradOf(i) != nil {
			continue
		}
		if r.Grads[i] == nil {
			made, err := r.make(RowsOfSide(r.Rel, o.Side) * o.Width)
			if err != nil {
				return nil, err
			}
			r.Grads[i] = made
			continue
		}
		clear(r.Grads[i])
	}
	if err := r.prepare(plan); err != nil {
		return nil, err
	}
	b := &Backward[T]{run: r}
	for _, c := range plan.deltas {
		sweep := newSweep(compile[T](c, r.plain), r)
		for n, k := range c.sinks {
			sweep.targets[n] = r.own(k.of)
		}
		b.Deltas = append(b.Deltas, Phase[T]{Sources: c.values() & p.sources(), Sweep: sweep, Finish: func() {}})
	}
	if plan.target != nil {
		b.Target = b.sweep(compile[T](plan.target, r.plain))
	}
	if plan.source == nil {
		return b, nil
	}
	b.source = compile[T](plan.source, r.plain)
	b.Own = b.sweep(b.source)
	if r.Rel.Parts == 1 {
		return b, b.joinNarrow(b.Own)
	}
	b.Peers = b.sweep(b.source)
	return b, b.joinNarrow(b.Own, b.Peers)
}

func (b *Backward[T]) sweep(k *calls[T]) *Sweep[T] {
	s := newSweep(k, b.run)
	for n, k := range k.sinks {
		s.targets[n] = rows[T]{data: b.run.Grads[k.of], stride: b.run.Program.Operands[k.of].Width}
	}
	return s
}

// Pushed is the sweep over edges into rows of peers. It adds to the gradients of own
// sources, and to those of parameters when b finishes.
func (b *Backward[T]) Pushed() *Sweep[T] {
	b.pushed = b.sweep(b.source)
	return b.pushed
}

// Concurrent prepares Own and Peers to run at the same time, whichever is first: what
// Peers adds up for destinations goes to rows of its own until Finish, so that sums have
// the same bits every time. It is false, and changes nothing, where those would be
// wider than scatterMost: then Own has to come first. Own lets Peers and whatever else
// computes go first. The phases of Deltas must have ended.
func (b *Backward[T]) Concurrent() (bool, error) {
	if b.Own == nil || b.Peers == nil {
		return false, nil
	}
	width := 0
	for _, k := range b.source.sinks {
		if k.kind == sinkScatter {
			width += b.source.nodes[k.reg].width
		}
	}
	if width > scatterMost {
		return false, nil
	}
	for n, k := range b.source.sinks {
		if k.kind != sinkScatter {
			continue
		}
		to := &b.Peers.targets[n]
		made, err := b.run.make(len(to.data))
		if err != nil {
			return false, err
		}
		b.separate = append(b.separate, separate[T]{made, to.data})
		to.data = made
	}
	b.Own.idle = true
	b.Own.fillNarrow()
	b.Peers.fillNarrow()
	return true, nil
}

// Finish writes the gradients of parameters, and completes those of destinations.
func (b *Backward[T]) Finish() {
	for _, s := range []*Sweep[T]{b.Own, b.Peers, b.Target, b.pushed} {
		if s != nil {
			s.finishParams()
		}
	}
	for _, x := range b.separate {
		inShares(b.run.Pool, len(x.to), 1<<16, func(from, end int) { b.Peers.ops.Add(x.to[from:end], x.from[from:end]) })
	}
}

// make is cleared memory of the run's own.
func (r *Run[T]) make(n int) ([]T, error) {
	made, err := mem.ZeroWorkspace[T](n)
	if err == nil {
		r.scratch = append(r.scratch, made)
	}
	return made.Data, err
}

// prepare makes what derived code loads: the gradient of the messages and, for the
// softmax that forward computed with the sum, Σ over in-edges of weight times gradient,
// which is that of the result times the result.
func (r *Run[T]) prepare(plan *GradientPlan) (err error) {
	p, grad := r.Program, r.Grad
	w := p.Width()
	r.grad, r.deltas = grad, make([][]T, len(p.softmaxes))
	for s, x := range p.softmaxes {
		if r.deltas[s], err = r.make(r.Rel.NumDst * x.width); err != nil {
			return err
		}
	}
	if plan.Result && p.online >= 0 {
		r.weightedSums()
	}
	divide := defsOf[T]().reduces[p.Reduce].divide
	if divide == nil {
		return nil
	}
	divided, err := r.make(len(grad))
	if err != nil {
		return err
	}
	r.grad = divided
	ptr := r.Rel.RowPtr.Data
	r.rowwise(func(i int) {
		var out []T
		if len(r.Out) > 0 {
			out = r.Out[i*w : (i+1)*w]
		}
		divide(divided[i*w:(i+1)*w], grad[i*w:(i+1)*w], out, r.won(i), ptr[i+1]-ptr[i])
	})
	return nil
}

// halfRows are widened at a time.
const halfRows = 16

// ReadsHalf tells whether backward takes the result in bfloat16, and TakesHalf whether it takes the gradient of it so.
func (p *Program) ReadsHalf() bool { return p.online >= 0 }
func (p *Program) TakesHalf() bool { return p.Reduce == Sum }

// weightedSums computes the delta of the softmax that forward computed with the sum:
// products of the result and its gradient, summed over the elements of each head.
func (r *Run[T]) weightedSums() {
	p := r.Program
	w, width, delta, d := p.Width(), p.softmaxes[p.online].width, r.deltas[p.online], p.runOfHeads()
	ops := vec.Get[T]()
	r.shares(func(r0, r1 int) {
		step := r1 - r0
		if r.HalfKept != nil || r.HalfGrad != nil {
			step = min(step, halfRows)
		}
		read := func(x []T, half []vec.BFloat16, room *[]T, n int) []T {
			if half == nil {
				return x[r0*w : (r0+n)*w]
			}
			if *room == nil {
				*room = make([]T, step*w)
			}
			ops.Widen((*room)[:n*w], half[r0*w:])
			return (*room)[:n*w]
		}
		var outs, grads []T
		one := make([]int32, step)
		for k := range one {
			one[k] = int32(k)
		}
		for ; r0 < r1; r0 += step {
			n := min(step, r1-r0)
			out, of := read(r.Out, r.HalfKept, &outs, n), read(r.Grad, r.HalfGrad, &grads, n)
			to := delta[r0*width : (r0+n)*width]
			if d > 0 {
				ops.DotPairs(&vec.Pairs[T]{Out: to, X: out, Y: of, StrideX: w, StrideY: w, IX: one[:n], IY: one[:n],
					Heads: width, D: d})
				continue
			}
			for j, h := range p.heads {
				for i := range n {
					to[i*width+int(h)] += of[i*w+j] * out[i*w+j]
				}
			}
		}
	})
}

// finishParams adds what the sweep has summed to the gradients of parameters.
func (s *Sweep[T]) finishParams() {
	for n, k := range s.sinks {
		if k.kind == sinkParam {
			for j, v := range s.paramSums[n] {
				s.targets[n].data[j] += T(v)
			}
		}
	}
}
