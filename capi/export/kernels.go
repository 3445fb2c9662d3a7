package export

/*
#include "abi.h"
*/
import "C"

import (
	"math"
	"slices"
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
	n, w := v.rows()
	demand(n == a.Rows() && w == width, "%s has shape %s: %d rows of indptr and x of shape %s need [%d, %d]",
		v, v.shape, a.Rows(), x.shape, a.Rows(), width)
	return elements[T](v)
}

// headsOf is h of a tensor [slots] or [slots, h] of one number per slot and head.
func headsOf(v tensor, slots int, x tensor) int {
	n, heads := v.rows()
	demand(n == slots && len(v.shape) <= 2, "tensor %s has shape %s: indices of length %d need [%d] or [%d, h]",
		v, v.shape, slots, slots, slots)
	_, width := x.rows()
	demand(heads >= 1 && width%heads == 0,
		"tensor %s has shape %s: its %d heads do not divide the %d columns of x, whose shape is %s",
		v, v.shape, heads, width, x.shape)
	return heads
}

// sparse reads a CSR matrix with the given number of columns, which bound says
// to the user. Kernels trust the structure, so all of it is checked here; that
// reads it once.
func sparse(indptr, indices *C.DLTensor, columns int, bound string) session.CSR {
	ptr, col := vector[int64]("indptr", indptr), vector[int32]("indices", indices)
	demand(len(ptr) > 0 && ptr[0] == 0 && ptr[len(ptr)-1] == int64(len(col)),
		"indptr must begin with 0 and end with %d, the length of indices", len(col))
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

//export sar_matrix_create
func sar_matrix_create(
	indptr, indices *C.sar_const_tensor, numCols C.int64_t, out *C.sar_handle,
) C.sar_status {
	return guard("sar_matrix_create", func(c *call) {
		demand(numCols >= 0 && numCols <= math.MaxInt32, "num_cols is %d: indices are int32", numCols)
		create(c, matrices, out, func() (*session.Matrix, error) {
			return session.NewMatrix(sparse(indptr, indices, int(numCols), "the matrix has %d columns"), int(numCols))
		})
	})
}

//export sar_matrix_spmm
func sar_matrix_spmm(h C.sar_handle, w, x *C.sar_const_tensor, y *C.DLTensor) C.sar_status {
	return guard("sar_matrix_spmm", func(c *call) {
		m, v := use(c, h, matrices), view("x", x)
		rows, _ := v.rows()
		demand(rows == m.Cols, "x has shape %s: a matrix of %d columns needs as many rows", v.shape, m.Cols)
		byFloat(v, spmm[float32], spmm[float64])(m.CSR(), v, w, y)
	})
}

//export sar_matrix_free
func sar_matrix_free(h C.sar_handle) C.sar_status {
	return guard("sar_matrix_free", func(*call) { need(drop(h, matrices)) })
}

//export sar_column_moments
func sar_column_moments(x *C.sar_const_tensor, out *C.DLTensor) C.sar_status {
	return guard("sar_column_moments", func(*call) {
		v := view("x", x)
		byFloat(computedIn(v), columnMoments[float32], columnMoments[float64])(v, out)
	})
}

func columnMoments[T session.Float](v tensor, out *C.DLTensor) {
	_, width := v.rows()
	mean, squares := columnSums(out, width)
	session.ColumnMoments(numbers[T](v), width, mean, squares)
}

//export sar_checksum
func sar_checksum(x *C.sar_const_tensor, out *C.uint64_t) C.sar_status {
	return guard("sar_checksum", func(*call) {
		give("out", out, C.uint64_t(session.Checksum(view("x", x).bytes())))
	})
}

// norm is the arguments of sar_normalize and its gradients, but for x.
type norm struct {
	grad, columns, out *C.DLTensor
	relu               bool
	dropout            *C.sar_const_dropout
}

// of is an export of that name, in the precision that rows x are computed in.
func (a norm) of(name string, x *C.sar_const_tensor, single, double func(v tensor, a norm)) C.sar_status {
	return guard(name, func(*call) {
		v := view("x", x)
		byFloat(computedIn(v), single, double)(v, a)
	})
}

//export sar_normalize
func sar_normalize(x, columns *C.sar_const_tensor, relu C.int32_t, dropout *C.sar_const_dropout, out *C.DLTensor,
) C.sar_status {
	a := norm{nil, columns, out, relu != 0, dropout}
	return a.of("sar_normalize", x, normalize[float32], normalize[float64])
}

func normalize[T session.Float](v tensor, a norm) {
	if a.columns == nil {
		demand(!a.relu, "relu is set, and columns is NULL")
		n, width := v.rows()
		session.Drop(shaped[T]("out", a.out, v), numbers[T](v), width, a.drop(n))
		return
	}
	s, _ := standard[T](a, 3, v)
	session.Normalize(shaped[T]("out", a.out, v), numbers[T](v), s)
}

//export sar_normalize_back
func sar_normalize_back(grad, x, columns *C.sar_const_tensor, relu C.int32_t, dropout *C.sar_const_dropout,
	out *C.DLTensor,
) C.sar_status {
	a := norm{grad, columns, out, relu != 0, dropout}
	return a.of("sar_normalize_back", x, normalizeBack[float32], normalizeBack[float64])
}

func normalizeBack[T session.Float](v tensor, a norm) {
	s, _ := standard[T](a, 3, v)
	session.NormalizeBack(shaped[T]("out", a.out, v), shaped[T]("grad", a.grad, v), numbers[T](v), s)
}

//export sar_normalize_sums
func sar_normalize_sums(grad, x, columns *C.sar_const_tensor, relu C.int32_t, dropout *C.sar_const_dropout,
	out *C.DLTensor,
) C.sar_status {
	a := norm{grad, columns, out, relu != 0, dropout}
	return a.of("sar_normalize_sums", x, normalizeSums[float32], normalizeSums[float64])
}

func normalizeSums[T session.Float](v tensor, a norm) {
	s, _ := standard[T](a, 3, v)
	plain, along := columnSums(a.out, len(s.About))
	session.NormalizeSums(shaped[T]("grad", a.grad, v), numbers[T](v), s, plain, along)
}

//export sar_normalize_grad
func sar_normalize_grad(grad, x, columns *C.sar_const_tensor, relu C.int32_t, dropout *C.sar_const_dropout,
	gradX *C.DLTensor,
) C.sar_status {
	a := norm{grad, columns, gradX, relu != 0, dropout}
	return a.of("sar_normalize_grad", x, normalizeGrad[float32], normalizeGrad[float64])
}

func normalizeGrad[T session.Float](v tensor, a norm) {
	s, more := standard[T](a, 5, v)
	width := len(s.About)
	session.NormalizeGrad(shaped[T]("grad_x", a.out, v), shaped[T]("grad", a.grad, v), numbers[T](v),
		session.Gradient[T]{Standard: s, Times: more[:width], Plus: more[width:]})
}

// drop reads what is dropped of n rows.
func (a norm) drop(n int) session.Dropout {
	if a.dropout == nil {
		return session.Dropout{}
	}
	d := copyIn("dropout", a.dropout)
	share, keys := float64(d.share), optional[int64]("dropout.keys", d.keys)
	demand(share >= 0 && share <= 1, "dropout.share is %v: it is from 0 to 1", share)
	demand(keys == nil || len(keys) == n, "dropout.keys has %d entries, and x %d rows", len(keys), n)
	return session.Dropout{Share: share, Seed: uint64(d.seed), Keys: keys, KeyBase: int64(d.key_base)}
}

// numbers are those of a tensor that is of T, or bfloat16.
func numbers[T session.Float](v tensor) session.Numbers[T] {
	if v.dtype == session.BFloat16 {
		return session.Numbers[T]{Half: halves(v)}
	}
	return session.Numbers[T]{Data: elements[T](v)}
}

// shaped reads a tensor of the shape of x.
func shaped[T session.Float](name string, t *C.DLTensor, x tensor) session.Numbers[T] {
	v := view(name, t)
	demand(slices.Equal(v.shape, x.shape), "%s has shape %s, and x %s: they must be the same", v, v.shape, x.shape)
	return numbers[T](v)
}

// standard reads count numbers of each column of x: those of Standard, and the rest.
func standard[T session.Float](a norm, count int, x tensor) (s session.Standard[T], more []T) {
	rows, width := x.rows()
	n := sized[T]("columns", a.columns, count, width)
	return session.Standard[T]{
		About: n[:width], Scale: n[width : 2*width], Shift: n[2*width : 3*width], Gate: a.relu, Drop: a.drop(rows),
	}, n[3*width:]
}

// columnSums reads a tensor [2, width] of float64.
func columnSums(t *C.DLTensor, width int) (first, second []float64) {
	sums := sized[float64]("out", t, 2, width)
	return sums[:width], sums[width:]
}

// sized reads a tensor [n, width].
func sized[T session.Float](name string, t *C.DLTensor, n, width int) []T {
	v := view(name, t)
	x := matrix[T](v)
	demand(x.N == n && x.Width == width, "%s has shape %s, and must be [%d, %d]", v, v.shape, n, width)
	return x.Data
}
