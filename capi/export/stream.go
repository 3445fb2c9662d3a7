package export

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"sar/core/session"
)

// errVisit ends a stream whose caller asked for it.
var errVisit = session.Invalid("the visit of a stream was broken off")

//export sar_stream_run
func sar_stream_run(h C.sar_handle, what *C.sar_const_stream, agreed *C.uint32_t) C.sar_status {
	return guard("sar_stream_run", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		var w C.sar_stream
		if err := copyIn("what", unsafe.Pointer(&w), unsafe.Pointer(what), C.sizeof_sar_stream); err != nil {
			return err
		}
		if err := give("agreed", agreed, 0); err != nil {
			return err
		}
		if w.visit == nil {
			return invalid("visit is NULL: there is nothing to call")
		}
		s, err := stream(&w)
		if err != nil {
			return err
		}
		// Visits run on the thread that called, whose state (as the state of an
		// interpreter) they need.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		v := newVisitor(&w)
		defer v.free()
		s.Visit = v.visit
		flags, err := g.Stream(s)
		*agreed = C.uint32_t(flags)
		return err
	})
}

// stream reads the description of a stream.
func stream(w *C.sar_stream) (session.Stream, error) {
	s := session.Stream{Relation: int(w.relation), Flags: uint32(w.flags)}
	if w.num_fields < 0 || w.num_fields > 0 && w.fields == nil {
		return s, invalid("there are %d fields, or none are given", w.num_fields)
	}
	n := int(w.num_fields)
	fields := unsafe.Slice((*C.sar_const_tensor)(w.fields), n)
	var home []uint8
	if w.home != nil {
		home = unsafe.Slice((*uint8)(unsafe.Pointer(w.home)), n)
	}
	var grads []C.DLTensor
	if w.grads != nil {
		grads = unsafe.Slice(w.grads, n)
	}
	s.Fields = make([]session.StreamField, n)
	for i := range fields {
		name := fmt.Sprintf("fields[%d]", i)
		v, err := view(name, &fields[i])
		if err != nil {
			return s, err
		}
		f := &s.Fields[i]
		if f.N, f.Bytes, err = v.rows(); err != nil {
			return s, err
		}
		f.Data = v.bytes()
		f.Bytes *= v.itemSize()
		if home == nil || home[i] == 0 {
			continue
		}
		if v.dtype != float32Type && v.dtype != float64Type {
			return s, wrongType("%s is %s: gradients return to the owner in float32 or float64", name, v.dtype)
		}
		f.Float = v.itemSize()
		if grads == nil || grads[i].data == nil {
			continue
		}
		grad, err := sameType(fmt.Sprintf("grads[%d]", i), constant(&grads[i]), v)
		if err != nil {
			return s, err
		}
		f.Grad = grad.bytes()
	}
	var err error
	if s.Src, err = vector[int64]("src", constant(w.src), int64Type); err != nil {
		return s, err
	}
	if s.Dst, err = vector[int64]("dst", constant(w.dst), int64Type); err != nil {
		return s, err
	}
	if w.edge != nil {
		s.Edge, err = vector[int64]("edge", constant(w.edge), int64Type)
	}
	return s, err
}

// visitor calls the visit function with a block that lies in C's memory.
type visitor struct {
	call  C.sar_stream_visit
	user  unsafe.Pointer
	block *C.sar_stream_block
	rows  []unsafe.Pointer // by field, as block has them
	grads []unsafe.Pointer
}

func newVisitor(w *C.sar_stream) *visitor {
	n := int(w.num_fields)
	pointers := (*unsafe.Pointer)(C.calloc(C.size_t(2*n+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	v := &visitor{call: w.visit, user: w.user, block: (*C.sar_stream_block)(C.calloc(1, C.sizeof_sar_stream_block))}
	all := unsafe.Slice(pointers, 2*n+1)
	v.rows, v.grads = all[:n:n], all[n:2*n]
	v.block.size = C.sizeof_sar_stream_block
	v.block.rows = pointers
	v.block.grads = unsafe.SliceData(all[n:])
	return v
}

func (v *visitor) free() {
	C.free(unsafe.Pointer(v.block.rows))
	C.free(unsafe.Pointer(v.block))
}

func (v *visitor) visit(b *session.StreamBlock) error {
	for f := range v.rows {
		v.rows[f], v.grads[f] = address(b.Rows[f]), address(b.Grad[f])
	}
	v.block.peer, v.block.num_rows, v.block.num_edges = C.int32_t(b.Peer), C.int64_t(b.N), C.int64_t(b.Edges)
	if C.call_visit(v.call, v.user, v.block) != 1 {
		return errVisit
	}
	return nil
}

func address(b []byte) unsafe.Pointer {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(b))
}
