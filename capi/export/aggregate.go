package export

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"sar/core/session"
)

func aggregation(what *C.sar_const_aggregate) (session.Aggregation, error) {
	var a C.sar_aggregate
	if err := copyIn("what", unsafe.Pointer(&a), unsafe.Pointer(what), C.sizeof_sar_aggregate); err != nil {
		return session.Aggregation{}, err
	}
	if bits := a.need_grad | a.agreed; bits&^(C.SAR_GRAD_U|C.SAR_GRAD_E|C.SAR_FUSED) != 0 {
		return session.Aggregation{}, invalid("need_grad and agreed have the bits %#x: there are SAR_GRAD_U (%d), SAR_GRAD_E (%d) and SAR_FUSED (%d)", bits, C.SAR_GRAD_U, C.SAR_GRAD_E, C.SAR_FUSED)
	}
	return session.Aggregation{Relation: int(a.relation), Message: int(a.message), Reduce: int(a.reduce), NeedGrad: uint32(a.need_grad), Agreed: uint32(a.agreed)}, nil
}

//export sar_aggregate_forward
func sar_aggregate_forward(h C.sar_handle, what *C.sar_const_aggregate, u, e *C.sar_const_tensor, out *C.DLTensor, agreed *C.uint32_t) C.sar_status {
	return guard("sar_aggregate_forward", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		a, err := aggregation(what)
		if err != nil {
			return err
		}
		if err := give("agreed", agreed, 0); err != nil {
			return err
		}
		uv, err := view("u", u)
		if err != nil {
			return err
		}
		var got uint32
		switch uv.dtype {
		case float32Type:
			got, err = forward[float32](g, a, uv, e, out)
		case float64Type:
			got, err = forward[float64](g, a, uv, e, out)
		default:
			err = notFloat(uv)
		}
		*agreed = C.uint32_t(got)
		return err
	})
}

func forward[T session.Float](g *session.Graph, a session.Aggregation, uv tensor, e *C.sar_const_tensor, out *C.DLTensor) (uint32, error) {
	r := matrices[T]{like: uv}
	u, weights, y := r.view(uv), r.optional("e", e), r.required("out", constant(out))
	if r.err != nil {
		return 0, r.err
	}
	return session.Forward(g, a, u, weights, y)
}

//export sar_aggregate_backward
func sar_aggregate_backward(h C.sar_handle, what *C.sar_const_aggregate, u, e, gradOut *C.sar_const_tensor, gradU, gradE *C.DLTensor) C.sar_status {
	return guard("sar_aggregate_backward", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		a, err := aggregation(what)
		if err != nil {
			return err
		}
		gv, err := view("grad_out", gradOut)
		if err != nil {
			return err
		}
		switch gv.dtype {
		case float32Type:
			return backward[float32](g, a, gv, gradTensors{u, e, constant(gradU), constant(gradE)})
		case float64Type:
			return backward[float64](g, a, gv, gradTensors{u, e, constant(gradU), constant(gradE)})
		}
		return notFloat(gv)
	})
}

// gradTensors are those of backward that may be NULL.
type gradTensors struct{ u, e, gradU, gradE *C.sar_const_tensor }

func backward[T session.Float](g *session.Graph, a session.Aggregation, gv tensor, t gradTensors) error {
	r := matrices[T]{like: gv}
	grads := session.Gradients[T]{
		U: r.optional("u", t.u), E: r.optional("e", t.e), Out: r.view(gv),
		GradU: r.optional("grad_u", t.gradU), GradE: r.optional("grad_e", t.gradE),
	}
	if r.err != nil {
		return r.err
	}
	return session.Backward(g, a, grads)
}

// matrices views tensors of one float type as [n, w]. It keeps the first error.
type matrices[T session.Float] struct {
	like tensor
	err  error
}

func (r *matrices[T]) view(v tensor) session.Rows[T] {
	n, w, err := v.rows()
	if err != nil && r.err == nil {
		r.err = err
	}
	return session.Rows[T]{Data: elements[T](v), N: n, Width: w}
}

func (r *matrices[T]) required(name string, t *C.sar_const_tensor) session.Rows[T] {
	v, err := sameType(name, t, r.like)
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return session.Rows[T]{}
	}
	return r.view(v)
}

func (r *matrices[T]) optional(name string, t *C.sar_const_tensor) *session.Rows[T] {
	if t == nil {
		return nil
	}
	m := r.required(name, t)
	return &m
}
