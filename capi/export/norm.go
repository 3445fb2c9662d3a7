package export

/*
#include "abi.h"
*/
import "C"

import "sar/core/session"

//export sar_column_moments
func sar_column_moments(x *C.sar_const_tensor, out *C.DLTensor) C.sar_status {
	return guard("sar_column_moments", func(*call) {
		v := view("x", x)
		byFloat(v, columnMoments[float32], columnMoments[float64])(v, out)
	})
}

func columnMoments[T session.Float](v tensor, out *C.DLTensor) {
	x := matrix[T](v)
	mean, squares := columnSums(out, x.Width)
	session.ColumnMoments(x.Data, x.Width, mean, squares)
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
}

//export sar_normalize
func sar_normalize(x, columns *C.sar_const_tensor, relu C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_normalize", func(*call) {
		v := view("x", x)
		byFloat(v, normalize[float32], normalize[float64])(v, norm{columns: columns, out: out, relu: relu != 0})
	})
}

func normalize[T session.Float](v tensor, a norm) {
	x := matrix[T](v)
	s, _ := standard[T](a, 3, x.Width)
	session.Normalize(shaped[T]("out", a.out, v), x.Data, s)
}

//export sar_normalize_sums
func sar_normalize_sums(grad, x, columns *C.sar_const_tensor, relu C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_normalize_sums", func(*call) {
		v := view("x", x)
		byFloat(v, normalizeSums[float32], normalizeSums[float64])(v, norm{grad, columns, out, relu != 0})
	})
}

func normalizeSums[T session.Float](v tensor, a norm) {
	x := matrix[T](v)
	plain, along := columnSums(a.out, x.Width)
	s, _ := standard[T](a, 3, x.Width)
	session.NormalizeSums(shaped[T]("grad", a.grad, v), x.Data, s, plain, along)
}

//export sar_normalize_grad
func sar_normalize_grad(grad, x, columns *C.sar_const_tensor, relu C.int32_t, gradX *C.DLTensor) C.sar_status {
	return guard("sar_normalize_grad", func(*call) {
		v := view("x", x)
		byFloat(v, normalizeGrad[float32], normalizeGrad[float64])(v, norm{grad, columns, gradX, relu != 0})
	})
}

func normalizeGrad[T session.Float](v tensor, a norm) {
	x := matrix[T](v)
	s, more := standard[T](a, 5, x.Width)
	session.NormalizeGrad(shaped[T]("grad_x", a.out, v), shaped[T]("grad", a.grad, v), x.Data,
		session.Gradient[T]{Standard: s, Times: more[:x.Width], Plus: more[x.Width:]})
}

// shaped reads a tensor of the shape of x.
func shaped[T session.Float](name string, t *C.DLTensor, x tensor) []T {
	v := view(name, t).like(x)
	if join(v.shape) != join(x.shape) {
		refuse("%s has shape %s, and x %s: they must be the same", v, join(v.shape), join(x.shape))
	}
	return elements[T](v)
}

// standard reads count numbers of each column: those of Standard, and the rest.
func standard[T session.Float](a norm, count, width int) (s session.Standard[T], more []T) {
	n := sized[T]("columns", a.columns, count, width)
	return session.Standard[T]{
		About: n[:width], Scale: n[width : 2*width], Shift: n[2*width : 3*width], Gate: a.relu,
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
	if x.N != n || x.Width != width {
		refuse("%s has shape %s, and must be [%d, %d]", v, join(v.shape), n, width)
	}
	return x.Data
}
