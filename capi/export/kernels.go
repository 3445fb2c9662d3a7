package export

/*
#include "abi.h"
*/
import "C"

import (
	"sar/core/session"
	"sync/atomic"
)

//export sar_kernel_spmm
func sar_kernel_spmm(indptr, indices, w, x *C.sar_const_tensor, y *C.DLTensor) C.sar_status {
	return guard("sar_kernel_spmm", func(*call) error {
		return product(x, w, y, func(_ tensor, rows int) (session.CSR, error) {
			return sparse(indptr, indices, rows, "x has %d rows")
		})
	})
}

// product is y = A·x, where matrix gives the A that fits the rows of x.
func product(x, w *C.sar_const_tensor, y *C.DLTensor, matrix func(x tensor, rows int) (session.CSR, error)) error {
	xv, err := view("x", x)
	if err != nil {
		return err
	}
	if xv.dtype != float32Type && xv.dtype != float64Type {
		return notFloat(xv)
	}
	rows, width, err := xv.rows()
	if err != nil {
		return err
	}
	csr, err := matrix(xv, rows)
	if err != nil {
		return err
	}
	if xv.dtype == float32Type {
		return spmm[float32](xv, width, csr, w, y)
	}
	return spmm[float64](xv, width, csr, w, y)
}

func spmm[T session.Float](x tensor, width int, csr session.CSR, w *C.sar_const_tensor, y *C.DLTensor) error {
	out, err := sameType("y", constant(y), x)
	if err != nil {
		return err
	}
	if n, d, err := out.rows(); err != nil {
		return err
	} else if n != csr.Rows() || d != width {
		return invalid("y has shape %s: %d rows of indptr and x of shape %s need [%d, %d]", out.shapeString(), csr.Rows(), x.shapeString(), csr.Rows(), width)
	}
	var weights []T
	heads := 1
	if w != nil {
		wv, err := sameType("w", w, x)
		if err != nil {
			return err
		}
		if heads, err = headsOf(wv, len(csr.Col), width, x); err != nil {
			return err
		}
		weights = elements[T](wv)
	}
	session.SpMM(elements[T](out), session.Product[T]{A: csr, X: elements[T](x), Width: width, W: weights, Heads: heads})
	return nil
}

//export sar_kernel_sddmm
func sar_kernel_sddmm(indptr, indices, x, g *C.sar_const_tensor, out *C.DLTensor) C.sar_status {
	return guard("sar_kernel_sddmm", func(*call) error {
		xv, err := view("x", x)
		if err != nil {
			return err
		}
		switch xv.dtype {
		case float32Type:
			return sddmm[float32](xv, indptr, indices, g, out)
		case float64Type:
			return sddmm[float64](xv, indptr, indices, g, out)
		}
		return notFloat(xv)
	})
}

func sddmm[T session.Float](x tensor, indptr, indices, g *C.sar_const_tensor, out *C.DLTensor) error {
	sources, width, err := x.rows()
	if err != nil {
		return err
	}
	csr, err := sparse(indptr, indices, sources, "x has %d rows")
	if err != nil {
		return err
	}
	gv, err := sameType("g", g, x)
	if err != nil {
		return err
	}
	if n, d, err := gv.rows(); err != nil {
		return err
	} else if n != csr.Rows() || d != width {
		return invalid("g has shape %s: %d rows of indptr and x of shape %s need [%d, %d]", gv.shapeString(), csr.Rows(), x.shapeString(), csr.Rows(), width)
	}
	dw, err := sameType("out", constant(out), x)
	if err != nil {
		return err
	}
	heads, err := headsOf(dw, len(csr.Col), width, x)
	if err != nil {
		return err
	}
	session.SDDMM(elements[T](dw), elements[T](gv), session.Product[T]{A: csr, X: elements[T](x), Width: width, Heads: heads})
	return nil
}

func notFloat(v tensor) error {
	return wrongType("tensor %s is %s, and must be float32 or float64", v.name, v.dtype)
}

// sameType views a tensor that must have the type of x.
func sameType(name string, t *C.sar_const_tensor, x tensor) (tensor, error) {
	v, err := view(name, t)
	if err != nil {
		return tensor{}, err
	}
	if v.dtype != x.dtype {
		return tensor{}, wrongType("tensor %s is %s and %s is %s: they must be the same", name, v.dtype, x.name, x.dtype)
	}
	return v, nil
}

// headsOf is h of a tensor [slots] or [slots, h] of one number per slot and head.
func headsOf(v tensor, slots, width int, x tensor) (int, error) {
	n, heads, err := v.rows()
	if err != nil {
		return 0, err
	}
	if n != slots || len(v.shape) > 2 {
		return 0, invalid("tensor %s has shape %s: indices of length %d need [%d] or [%d, h]", v.name, v.shapeString(), slots, slots, slots)
	}
	if heads < 1 || width%heads != 0 {
		return 0, invalid("tensor %s has shape %s: its %d heads do not divide the %d columns of x, whose shape is %s", v.name, v.shapeString(), heads, width, x.shapeString())
	}
	return heads, nil
}

// sparse reads a CSR matrix with the given number of columns, which bound says
// to the user. Kernels trust the structure, so all of it is checked here; that
// reads it once.
func sparse(indptr, indices *C.sar_const_tensor, columns int, bound string) (session.CSR, error) {
	ptr, err := vector[int64]("indptr", indptr, int64Type)
	if err != nil {
		return session.CSR{}, err
	}
	col, err := vector[int32]("indices", indices, int32Type)
	if err != nil {
		return session.CSR{}, err
	}
	if len(ptr) == 0 || ptr[0] != 0 || ptr[len(ptr)-1] != int64(len(col)) {
		return session.CSR{}, invalid("indptr must begin with 0 and end with %d, the length of indices", len(col))
	}
	for i := 1; i < len(ptr); i++ {
		if ptr[i] < ptr[i-1] {
			return session.CSR{}, invalid("indptr[%d] is %d, below indptr[%d], which is %d", i, ptr[i], i-1, ptr[i-1])
		}
	}
	if i := outside(col, columns); i >= 0 {
		return session.CSR{}, invalid("indices[%d] is %d: "+bound, i, col[i], columns)
	}
	return session.CSR{Ptr: ptr, Col: col}, nil
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
