package export

/*
#include "abi.h"
*/
import "C"

import (
	"sync/atomic"

	"sar/core/session"
)

//export sar_kernel_spmm
func sar_kernel_spmm(indptr, indices, w, x *C.sar_const_tensor, y *C.DLTensor) C.sar_status {
	return guard("sar_kernel_spmm", func(*call) {
		v := view("x", x)
		rows, _ := v.rows()
		byFloat(v, spmm[float32], spmm[float64])(sparse(indptr, indices, rows, "x has %d rows"), v, w, y)
	})
}

func spmm[T session.Float](a session.CSR, v tensor, w, y *C.DLTensor) {
	x := matrix[T](v)
	p := session.Product[T]{A: a, X: x.Data, Width: x.Width, Heads: 1}
	if w != nil {
		weights := view("w", w).like(v)
		p.W, p.Heads = elements[T](weights), headsOf(weights, len(a.Col), v)
	}
	session.SpMM(rowsOf[T]("y", y, a, v), p)
}

//export sar_kernel_sddmm
func sar_kernel_sddmm(indptr, indices, x, g *C.sar_const_tensor, out *C.DLTensor) C.sar_status {
	return guard("sar_kernel_sddmm", func(*call) {
		v := view("x", x)
		rows, _ := v.rows()
		byFloat(v, sddmm[float32], sddmm[float64])(sparse(indptr, indices, rows, "x has %d rows"), v, g, out)
	})
}

func sddmm[T session.Float](a session.CSR, v tensor, g, out *C.DLTensor) {
	x, dw := matrix[T](v), view("out", out).like(v)
	session.SDDMM(elements[T](dw), rowsOf[T]("g", g, a, v),
		session.Product[T]{A: a, X: x.Data, Width: x.Width, Heads: headsOf(dw, len(a.Col), v)})
}

// rowsOf reads a tensor that has a row of the width of x for each row of a.
func rowsOf[T session.Float](name string, t *C.DLTensor, a session.CSR, x tensor) []T {
	v := view(name, t).like(x)
	_, width := x.rows()
	if n, w := v.rows(); n != a.Rows() || w != width {
		refuse("%s has shape %s: %d rows of indptr and x of shape %s need [%d, %d]",
			v, join(v.shape), a.Rows(), join(x.shape), a.Rows(), width)
	}
	return elements[T](v)
}

// headsOf is h of a tensor [slots] or [slots, h] of one number per slot and head.
func headsOf(v tensor, slots int, x tensor) int {
	n, heads := v.rows()
	if n != slots || len(v.shape) > 2 {
		refuse("tensor %s has shape %s: indices of length %d need [%d] or [%d, h]", v, join(v.shape), slots, slots, slots)
	}
	if _, width := x.rows(); heads < 1 || width%heads != 0 {
		refuse("tensor %s has shape %s: its %d heads do not divide the %d columns of x, whose shape is %s",
			v, join(v.shape), heads, width, join(x.shape))
	}
	return heads
}

// sparse reads a CSR matrix with the given number of columns, which bound says
// to the user. Kernels trust the structure, so all of it is checked here; that
// reads it once.
func sparse(indptr, indices *C.DLTensor, columns int, bound string) session.CSR {
	ptr, col := vector[int64]("indptr", indptr), vector[int32]("indices", indices)
	if len(ptr) == 0 || ptr[0] != 0 || ptr[len(ptr)-1] != int64(len(col)) {
		refuse("indptr must begin with 0 and end with %d, the length of indices", len(col))
	}
	for i := 1; i < len(ptr); i++ {
		if ptr[i] < ptr[i-1] {
			refuse("indptr[%d] is %d, below indptr[%d], which is %d", i, ptr[i], i-1, ptr[i-1])
		}
	}
	if i := outside(col, columns); i >= 0 {
		refuse("indices[%d] is %d: "+bound, i, col[i], columns)
	}
	return session.CSR{Ptr: ptr, Col: col}
}

// outside returns the place of a number that is not in [0, n), or -1.
func outside(col []int32, n int) int {
	const block = 1 << 20
	var found atomic.Int64
	found.Store(-1)
	session.Parallel((len(col)+block-1)/block, func(t int) {
		begin := t * block
		part := col[begin:min(begin+block, len(col))]
		var most uint32 // a negative number reads as a large one
		for _, c := range part {
			most = max(most, uint32(c))
		}
		if int64(most) < int64(n) {
			return
		}
		for i, c := range part {
			if uint32(c) == most {
				found.Store(int64(begin + i))
				return
			}
		}
	})
	return int(found.Load())
}
