package export

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"sar/core/session"
)

// errVisit ends a stream whose caller asked for it.
var errVisit = session.Invalid("the visit of a stream was broken off")

//export sar_stream_run
func sar_stream_run(h C.sar_handle, what *C.sar_const_stream, agreed *C.uint32_t) C.sar_status {
	return guard("sar_stream_run", func(c *call) {
		g, w := use(c, h, graphs), copyIn("what", what)
		give("agreed", agreed, 0)
		demand(w.visit != nil, "visit is NULL: there is nothing to call")
		demand(w.flags>>16 == 0, "flags are %#x: a stream has 16 of them", uint32(w.flags))
		s := stream(&w)
		// Visits run on the thread that called, whose state (as the state of an
		// interpreter) they need.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		v := newVisitor(&w)
		defer v.free()
		s.Visit = v.visit
		*agreed = C.uint32_t(must(g.Stream(int(w.relation), s)))
	})
}

// stream reads the description of a stream.
func stream(w *C.sar_stream) session.Stream {
	fields := views("fields", w.fields, w.num_fields)
	s := session.Stream{
		Flags: uint16(w.flags), Fields: make([]session.StreamField, len(fields)),
		Src: vector[int64]("src", w.src), Dst: vector[int64]("dst", w.dst), Edge: optional[int64]("edge", w.edge),
	}
	var home []C.uint8_t
	if w.home != nil {
		home = unsafe.Slice(w.home, len(fields))
	}
	var grads []C.DLTensor
	if w.grads != nil {
		grads = unsafe.Slice(w.grads, len(fields))
	}
	for i, v := range fields {
		f := &s.Fields[i]
		f.Data = v.bytes()
		f.N, f.Bytes = v.rows()
		f.Bytes *= v.itemSize()
		if home == nil || home[i] == 0 {
			continue
		}
		f.Float = v.isFloat().itemSize()
		if grads != nil && grads[i].data != nil {
			f.Grad = viewAt("grads", i, &grads[i]).like(v).bytes()
		}
	}
	return s
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
