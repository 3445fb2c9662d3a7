package export

/*
#include "abi.h"
*/
import "C"

import "sar/core/session"

func aggregation(what *C.sar_aggregate) session.Aggregation {
	a := copyIn("what", what)
	if bits := a.need_grad | a.agreed; bits&^(C.SAR_GRAD_U|C.SAR_GRAD_E|C.SAR_FUSED) != 0 {
		refuse("need_grad and agreed have the bits %#x: there are SAR_GRAD_U (%d), SAR_GRAD_E (%d) and SAR_FUSED (%d)",
			bits, C.SAR_GRAD_U, C.SAR_GRAD_E, C.SAR_FUSED)
	}
	return session.Aggregation{
		Relation: int(a.relation), Message: session.Message(a.message), Reduce: session.Reduction(a.reduce),
		NeedGrad: uint32(a.need_grad), Agreed: uint32(a.agreed),
	}
}

//export sar_aggregate_forward
func sar_aggregate_forward(
	h C.sar_handle, what *C.sar_const_aggregate, u, e *C.sar_const_tensor, out *C.DLTensor, agreed *C.uint32_t,
) C.sar_status {
	return guard("sar_aggregate_forward", func(c *call) {
		g, a, x := use(c, h, graphs), aggregation(what), view("u", u)
		give("agreed", agreed, 0)
		*agreed = C.uint32_t(must(byFloat(x, forward[float32], forward[float64])(g, a, x, e, out)))
	})
}

func forward[T session.Float](g *session.Graph, a session.Aggregation, u tensor, e, out *C.DLTensor) (uint32, error) {
	return session.Forward(g, a, matrix[T](u), matrixLike[T]("e", e, u), matrix[T](view("out", out).like(u)))
}

//export sar_aggregate_backward
func sar_aggregate_backward(
	h C.sar_handle, what *C.sar_const_aggregate, u, e, gradOut *C.sar_const_tensor, gradU, gradE *C.DLTensor,
) C.sar_status {
	return guard("sar_aggregate_backward", func(c *call) {
		g, a, out := use(c, h, graphs), aggregation(what), view("grad_out", gradOut)
		need(byFloat(out, backward[float32], backward[float64])(g, a, out, gradTensors{u, e, gradU, gradE}))
	})
}

// gradTensors are those of backward that may be NULL.
type gradTensors struct{ u, e, gradU, gradE *C.DLTensor }

func backward[T session.Float](g *session.Graph, a session.Aggregation, out tensor, t gradTensors) error {
	return session.Backward(g, a, session.Gradients[T]{
		U: matrixLike[T]("u", t.u, out), E: matrixLike[T]("e", t.e, out), Out: matrix[T](out),
		GradU: matrixLike[T]("grad_u", t.gradU, out), GradE: matrixLike[T]("grad_e", t.gradE, out),
	})
}
