package export

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"sar/core/session"
)

//export sar_program_create
func sar_program_create(json *C.sar_const_char, out *C.sar_handle) C.sar_status {
	return guard("sar_program_create", func(c *call) {
		create(c, programs, out, func() (session.Program, error) { return session.NewProgram(text(json)) })
	})
}

//export sar_program_info
func sar_program_info(h C.sar_handle, json **C.char) C.sar_status {
	return guard("sar_program_info", func(c *call) { giveJSON(json, use(c, h, programs).Info()) })
}

//export sar_program_free
func sar_program_free(h C.sar_handle) C.sar_status {
	return guard("sar_program_free", func(*call) {
		_, err := remove(h, programs) // runs in progress keep what they use
		need(err)
	})
}

// programCall is the arguments of a run, whatever the float type.
type programCall struct {
	graph    *session.Graph
	program  session.Program
	what     C.sar_program_call
	operands []tensor
	state    []tensor
	keys     []int64
}

func (c *call) program(g, p C.sar_handle, what *C.sar_program_call, operands, state []tensor) programCall {
	r := programCall{
		program: use(c, p, programs), graph: use(c, g, graphs), what: copyIn("what", what),
		operands: operands, state: state,
	}
	demand(r.what.num_seeds == 0 || r.what.num_seeds > 0 && r.what.seeds != nil,
		"num_seeds is %d, and seeds must point at as many", r.what.num_seeds)
	r.keys = optional[int64]("keys", r.what.keys)
	return r
}

// ofRun makes the arguments of a run of float type T.
func ofRun[T session.Float](r programCall, like, result tensor) session.ProgramCall[T] {
	out := session.ProgramCall[T]{
		Relation: int(r.what.relation), Keys: r.keys, KeyBase: int64(r.what.key_base),
		Seeds: unsafe.Slice((*uint64)(unsafe.Pointer(r.what.seeds)), int(r.what.num_seeds)),
		Out:   stored[T](result, like),
	}
	for _, t := range r.operands {
		out.Operands = append(out.Operands, stored[T](t, like))
	}
	for _, t := range r.state {
		if t.dtype == session.DTypeFor[int32]() {
			out.Winner = elements[int32](t)
		} else {
			out.State = append(out.State, matrix[T](t.like(like)))
		}
	}
	return out
}

//export sar_program_forward
func sar_program_forward(
	graph, program C.sar_handle, what *C.sar_const_program_call, operands *C.sar_const_tensor, n C.int32_t,
	state *C.DLTensor, states C.int32_t, out *C.DLTensor, agreed, saves *C.uint32_t,
) C.sar_status {
	return guard("sar_program_forward", func(c *call) {
		r := c.program(graph, program, what, views("operands", operands, n), views("state", state, states))
		give("agreed", agreed, 0)
		give("saves", saves, 0)
		o := view("out", out)
		like := computedIn(o)
		a, s, err := byFloat(like, programForward[float32], programForward[float64])(r, o, like)
		*agreed, *saves = C.uint32_t(a), C.uint32_t(s)
		need(err)
	})
}

// programForward and programBackward compute in the type of like.
func programForward[T session.Float](r programCall, out, like tensor) (agreed, saves uint32, err error) {
	return session.ProgramForward(r.graph, r.program, ofRun[T](r, like, out), uint32(r.what.need_grad))
}

// computedIn is a tensor of the type that is computed in where the result is t, or its gradient.
func computedIn(t tensor) tensor {
	if t.dtype == session.BFloat16 {
		t.dtype = session.DTypeFor[float32]()
	}
	return t
}

//export sar_program_backward
func sar_program_backward(
	graph, program C.sar_handle, what *C.sar_const_program_call, operands *C.sar_const_tensor, n C.int32_t,
	state *C.DLTensor, states C.int32_t, out, gradOut *C.sar_const_tensor, grads *C.DLTensor, numGrads C.int32_t,
) C.sar_status {
	return guard("sar_program_backward", func(c *call) {
		r := c.program(graph, program, what, views("operands", operands, n), views("state", state, states))
		o, g, targets := view("out", out), view("grad_out", gradOut), views("grads", grads, numGrads)
		like := computedIn(g)
		need(byFloat(like, programBackward[float32], programBackward[float64])(r, o, g, like, targets))
	})
}

func programBackward[T session.Float](r programCall, out, gradOut, like tensor, grads []tensor) error {
	targets := make([]*session.Rows[T], len(grads))
	for i, t := range grads {
		if r.what.need_grad>>i&1 != 0 {
			rows := stored[T](t, like)
			targets[i] = &rows
		}
	}
	return session.ProgramBackward(
		r.graph, r.program, ofRun[T](r, like, out), uint32(r.what.agreed), stored[T](gradOut, like), targets)
}

// stored is a tensor that is of the type of like, or bfloat16.
func stored[T session.Float](t, like tensor) session.Rows[T] {
	if t.dtype == session.BFloat16 {
		n, w := t.rows()
		return session.Rows[T]{Half: halves(t), N: n, Width: w}
	}
	return matrix[T](t.like(like))
}
