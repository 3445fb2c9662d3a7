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
	return guard("sar_program_create", func(*call) error {
		if err := give("program", out, 0); err != nil {
			return err
		}
		p, err := session.NewProgram(text(json))
		if err != nil {
			return err
		}
		*out = register(kindProgram, p, nil)
		return nil
	})
}

//export sar_program_info
func sar_program_info(h C.sar_handle, json **C.char) C.sar_status {
	return guard("sar_program_info", func(c *call) error {
		p, err := use[session.Program](c, h, kindProgram)
		if err != nil {
			return err
		}
		return giveJSON(json, p.Info())
	})
}

//export sar_program_free
func sar_program_free(h C.sar_handle) C.sar_status {
	return guard("sar_program_free", func(*call) error {
		_, err := remove(h, kindProgram) // runs in progress keep what they use
		return err
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

func (c *call) program(g, p C.sar_handle, what *C.sar_const_program_call, operands, state array) (r programCall, err error) {
	if r.program, err = use[session.Program](c, p, kindProgram); err != nil {
		return r, err
	}
	if r.graph, err = useGraph(c, g); err != nil {
		return r, err
	}
	if err = copyIn("what", unsafe.Pointer(&r.what), unsafe.Pointer(what), C.sizeof_sar_program_call); err != nil {
		return r, err
	}
	if r.what.num_seeds < 0 || r.what.num_seeds > 0 && r.what.seeds == nil {
		return r, invalid("num_seeds is %d, and seeds must point at as many", r.what.num_seeds)
	}
	if r.what.keys != nil {
		if r.keys, err = vector[int64]("keys", constant(r.what.keys), int64Type); err != nil {
			return r, err
		}
	}
	if r.operands, err = operands.views(); err != nil {
		return r, err
	}
	r.state, err = state.views()
	return r, err
}

// array is one of n tensors.
type array struct {
	name  string
	first *C.sar_const_tensor
	n     C.int32_t
}

func (a array) views() ([]tensor, error) {
	if a.n < 0 || a.n > 0 && a.first == nil {
		return nil, invalid("there are %d tensors for %s, and the array is NULL", a.n, a.name)
	}
	out := make([]tensor, a.n)
	for i := range out {
		t := (*C.sar_const_tensor)(unsafe.Add(unsafe.Pointer(a.first), i*C.sizeof_DLTensor))
		var err error
		if out[i], err = view(a.name, t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ofRun makes the arguments of a run of float type T.
func ofRun[T session.Float](r programCall, like tensor) (out session.ProgramCall[T], err error) {
	out = session.ProgramCall[T]{
		Relation: int(r.what.relation), Keys: r.keys, KeyBase: int64(r.what.key_base),
		Seeds: unsafe.Slice((*uint64)(unsafe.Pointer(r.what.seeds)), int(r.what.num_seeds)),
	}
	for _, t := range r.operands {
		rows, err := floatRows[T](t, like)
		if err != nil {
			return out, err
		}
		out.Operands = append(out.Operands, rows)
	}
	for _, t := range r.state {
		if t.dtype == int32Type {
			out.Winner = elements[int32](t)
			continue
		}
		rows, err := floatRows[T](t, like)
		if err != nil {
			return out, err
		}
		out.State = append(out.State, rows)
	}
	return out, nil
}

func floatRows[T session.Float](t, like tensor) (session.Rows[T], error) {
	if t.dtype != like.dtype {
		return session.Rows[T]{}, wrongType("tensor %s is %s, and %s is %s: all must be the same", t.name, t.dtype, like.name, like.dtype)
	}
	n, w, err := t.rows()
	return session.Rows[T]{Data: elements[T](t), N: n, Width: w}, err
}

//export sar_program_forward
func sar_program_forward(graph, program C.sar_handle, what *C.sar_const_program_call, operands *C.sar_const_tensor, n C.int32_t,
	state *C.DLTensor, states C.int32_t, out *C.DLTensor, agreed, saves *C.uint32_t) C.sar_status {
	return guard("sar_program_forward", func(c *call) error {
		r, err := c.program(graph, program, what, array{"operand", operands, n}, array{"state", constant(state), states})
		if err != nil {
			return err
		}
		if err := give("agreed", agreed, 0); err != nil {
			return err
		}
		if err := give("saves", saves, 0); err != nil {
			return err
		}
		o, err := view("out", constant(out))
		if err != nil {
			return err
		}
		switch o.dtype {
		case float32Type:
			return programForward[float32](r, o, agreed, saves)
		case float64Type:
			return programForward[float64](r, o, agreed, saves)
		}
		return notFloat(o)
	})
}

func programForward[T session.Float](r programCall, out tensor, agreed, saves *C.uint32_t) error {
	run, err := ofRun[T](r, out)
	if err != nil {
		return err
	}
	if run.Out, err = floatRows[T](out, out); err != nil {
		return err
	}
	a, s, err := session.ProgramForward(r.graph, r.program, run, uint32(r.what.need_grad))
	*agreed, *saves = C.uint32_t(a), C.uint32_t(s)
	return err
}

//export sar_program_backward
func sar_program_backward(graph, program C.sar_handle, what *C.sar_const_program_call, operands *C.sar_const_tensor, n C.int32_t,
	state *C.DLTensor, states C.int32_t, out, gradOut *C.sar_const_tensor, grads *C.DLTensor, numGrads C.int32_t) C.sar_status {
	return guard("sar_program_backward", func(c *call) error {
		r, err := c.program(graph, program, what, array{"operand", operands, n}, array{"state", constant(state), states})
		if err != nil {
			return err
		}
		o, err := view("out", out)
		if err != nil {
			return err
		}
		g, err := view("grad_out", gradOut)
		if err != nil {
			return err
		}
		targets, err := array{"grad", constant(grads), numGrads}.views()
		if err != nil {
			return err
		}
		switch g.dtype {
		case float32Type:
			return programBackward[float32](r, o, g, targets)
		case float64Type:
			return programBackward[float64](r, o, g, targets)
		}
		return notFloat(g)
	})
}

func programBackward[T session.Float](r programCall, out, gradOut tensor, grads []tensor) error {
	run, err := ofRun[T](r, gradOut)
	if err != nil {
		return err
	}
	if run.Out, err = floatRows[T](out, gradOut); err != nil {
		return err
	}
	grad, err := floatRows[T](gradOut, gradOut)
	if err != nil {
		return err
	}
	targets := make([]*session.Rows[T], len(grads))
	for i, t := range grads {
		if r.what.need_grad>>i&1 == 0 {
			continue
		}
		rows, err := floatRows[T](t, gradOut)
		if err != nil {
			return err
		}
		targets[i] = &rows
	}
	return session.ProgramBackward(r.graph, r.program, run, uint32(r.what.agreed), grad, targets)
}
