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

	pushed *Sweep[T] // or nil
	apart  []apart[T]
}

// Differentiate plans the gradients of the operands in a set.
func (r *Run[T]) Differentiate(operands uint32) *GradientPlan {
	if r.plain {
		return r.Program.Differentiate(operands, 0)
	}
	return r.Program.Differentiate(operands, view.Size[T]())
}

// Backward prepares the gradients of a plan. They are cleared first.
func (r *Run[T]) Backward(plan *GradientPlan) (*Backward[T], error) {
	p := r.Program
	for i, o := range p.Operands {
		if !wanted(plan.Operands, i) {
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
		sweep := newSweep(c, r)
		for n, k := range c.sinks {
			s := (k.slot - len(p.Operands) - 1) / 3
			sweep.targets[n] = rows[T]{data: r.deltas[s], stride: p.softmaxes[s].width}
		}
		b.Deltas = append(b.Deltas, Phase[T]{Sources: c.values() & p.mask(U), Sweep: sweep, Finish: func() {}})
	}
	b.Own, b.Target = b.sweep(plan.source), b.sweep(plan.target)
	if r.Rel.Parts > 1 {
		b.Peers = b.sweep(plan.source)
	}
	switch {
	case b.Peers != nil:
		return b, b.pack(b.Own, b.Peers)
	case b.Own != nil:
		return b, b.pack(b.Own)
	}
	return b, nil
}

func (b *Backward[T]) sweep(c *code) *Sweep[T] {
	if c == nil {
		return nil
	}
	s := newSweep(c, b.run)
	for n, k := range c.sinks {
		s.targets[n] = rows[T]{data: b.run.Grads[k.slot], stride: b.run.Program.Operands[k.slot].Width}
	}
	return s
}

// Pushed is the sweep over edges into rows of peers. It adds to the gradients of own
// sources, and to those of parameters when b finishes.
func (b *Backward[T]) Pushed(plan *GradientPlan) *Sweep[T] {
	b.pushed = b.sweep(plan.source)
	return b.pushed
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

// make is cleared memory of the run's own.
func (r *Run[T]) make(n int) ([]T, error) {
	made, err := mem.Make[T](mem.Scratch, n)
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
		r.weightedSums(r.Out, grad)
	}
	if p.Reduce != Mean && !p.Reduce.shared() {
		return nil
	}
	scaled, err := r.make(len(grad))
	if err != nil {
		return err
	}
	r.grad = scaled
	ptr := r.Rel.RowPtr.Data
	r.rowwise(func(i int) {
		if p.Reduce.shared() {
			for j := i * w; j < (i+1)*w; j++ {
				n := r.Winner[j]
				if r.Out[j] == 0 {
					n++ // torch counts the 0 that a result begins with
				}
				scaled[j] = grad[j] / T(n) // infinite where the result is NaN
			}
			return
		}
		scale := 1 / T(max(1, ptr[i+1]-ptr[i]))
		for j := i * w; j < (i+1)*w; j++ {
			scaled[j] = grad[j] * scale
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
