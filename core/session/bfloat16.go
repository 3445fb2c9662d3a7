package session

import (
	"sar/core/exchange"
	"sar/core/expr"
	"sar/core/kernel"
	"sar/core/mem"
)

// halves is the tensors of a call that its caller has in bfloat16: copies are computed with where nothing reads or
// writes such tensors where they lie. Free it.
type halves[T Float] struct {
	rounds, frees []func()
}

func (h *halves[T]) make(n int) ([]T, error) {
	made, err := mem.Workspace[T](n)
	h.frees = append(h.frees, made.Free)
	return made.Data, err
}

// read is what x has, as numbers of T.
func (h *halves[T]) read(x Rows[T]) ([]T, error) {
	if x.Half == nil {
		return x.Data, nil
	}
	made, err := h.make(len(x.Half))
	if err == nil {
		kernel.Widen(pool, made, x.Half)
	}
	return made, err
}

// write is numbers of T that x gets when they are rounded.
func (h *halves[T]) write(x Rows[T]) ([]T, error) {
	if x.Half == nil {
		return x.Data, nil
	}
	if wide, tail := mem.Widened[T](x.Half); wide != nil {
		h.frees = append(h.frees, tail.Free)
		h.rounds = append(h.rounds, func() { kernel.NarrowInPlace(pool, wide) })
		return wide, nil
	}
	made, err := h.make(len(x.Half))
	h.rounds = append(h.rounds, func() { kernel.Narrow(pool, x.Half, made) })
	return made, err
}

// round rounds what was written.
func (h *halves[T]) round() {
	for _, f := range h.rounds {
		f()
	}
}

func (h *halves[T]) free() {
	for _, f := range h.frees {
		f()
	}
}

// bindOut gives a forward its result.
func (h *halves[T]) bindOut(x *expr.Run[T], out Rows[T]) (err error) {
	if out.Half != nil && exchange.RoundsSums(x) {
		x.HalfOut = out.Half
		return nil
	}
	x.Out, err = h.write(out)
	return err
}

// readsHalfGrad tells whether the sweeps of a backward read the gradient of the result in bfloat16, as it was given.
func readsHalfGrad[T Float](x *expr.Run[T], gradOut Rows[T]) bool {
	_, plain := x.Program.PlainSum()
	return gradOut.Half != nil && !plain && x.Program.TakesHalf()
}

// bindGradients gives a backward the gradient of the result, the result, and places for gradients of operands.
func (h *halves[T]) bindGradients(x *expr.Run[T], plan *expr.GradientPlan, out, gradOut Rows[T],
	grads []*Rows[T]) (err error) {
	p := x.Program
	sum, plain := p.PlainSum()
	if plan.Result && out.Half != nil && p.ReadsHalf() {
		x.HalfKept = out.Half
	} else if plan.Result {
		if x.Out, err = h.read(out); err != nil {
			return err
		}
	}
	switch {
	case plain && plan.Operands&^(1<<sum.Rows) == 0:
		x.Grad, x.HalfGrad = gradOut.Data, gradOut.Half
	case x.HalfGrad == nil:
		if x.Grad, err = h.read(gradOut); err != nil {
			return err
		}
	}
	x.Grads, x.HalfGrads = make([][]T, len(grads)), make([][]kernel.BFloat16, len(grads))
	for i, grad := range grads {
		switch {
		case grad == nil:
		case grad.Half != nil && exchange.RoundsGradient(x, i):
			x.HalfGrads[i] = grad.Half
		default:
			if x.Grads[i], err = h.write(*grad); err != nil {
				return err
			}
		}
	}
	return nil
}
