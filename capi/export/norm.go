package export

/*
#include "abi.h"
*/
import "C"

import "sar/core/session"

//export sar_column_moments
func sar_column_moments(x *C.sar_const_tensor, out *C.DLTensor) C.sar_status {
	return guard("sar_column_moments", func(*call) error {
		xv, width, err := rowsOfFloats("x", x)
		if err != nil {
			return err
		}
		found, err := columnSums(out, width)
		if err != nil {
			return err
		}
		if xv.dtype == float32Type {
			session.ColumnMoments(elements[float32](xv), width, found[:width], found[width:])
		} else {
			session.ColumnMoments(elements[float64](xv), width, found[:width], found[width:])
		}
		return nil
	})
}

//export sar_checksum
func sar_checksum(x *C.sar_const_tensor, out *C.uint64_t) C.sar_status {
	return guard("sar_checksum", func(*call) error {
		v, err := view("x", x)
		if err != nil {
			return err
		}
		return give("out", out, C.uint64_t(session.Checksum(v.bytes())))
	})
}

//export sar_normalize
func sar_normalize(x, columns *C.sar_const_tensor, relu C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_normalize", func(*call) error {
		xv, width, err := rowsOfFloats("x", x)
		if err != nil {
			return err
		}
		numbers, err := ofColumns(columns, 3, width, xv)
		if err != nil {
			return err
		}
		to, err := likeX("out", constant(out), xv)
		if err != nil {
			return err
		}
		if xv.dtype == float32Type {
			session.Normalize(elements[float32](to), elements[float32](xv), standard[float32](numbers, width, relu))
		} else {
			session.Normalize(elements[float64](to), elements[float64](xv), standard[float64](numbers, width, relu))
		}
		return nil
	})
}

//export sar_normalize_sums
func sar_normalize_sums(grad, x, columns *C.sar_const_tensor, relu C.int32_t, out *C.DLTensor) C.sar_status {
	return guard("sar_normalize_sums", func(*call) error {
		xv, width, err := rowsOfFloats("x", x)
		if err != nil {
			return err
		}
		g, err := likeX("grad", grad, xv)
		if err != nil {
			return err
		}
		numbers, err := ofColumns(columns, 3, width, xv)
		if err != nil {
			return err
		}
		found, err := columnSums(out, width)
		if err != nil {
			return err
		}
		if xv.dtype == float32Type {
			session.NormalizeSums(elements[float32](g), elements[float32](xv), standard[float32](numbers, width, relu), found[:width], found[width:])
		} else {
			session.NormalizeSums(elements[float64](g), elements[float64](xv), standard[float64](numbers, width, relu), found[:width], found[width:])
		}
		return nil
	})
}

//export sar_normalize_grad
func sar_normalize_grad(grad, x, columns *C.sar_const_tensor, relu C.int32_t, gradX *C.DLTensor) C.sar_status {
	return guard("sar_normalize_grad", func(*call) error {
		xv, width, err := rowsOfFloats("x", x)
		if err != nil {
			return err
		}
		g, err := likeX("grad", grad, xv)
		if err != nil {
			return err
		}
		numbers, err := ofColumns(columns, 5, width, xv)
		if err != nil {
			return err
		}
		to, err := likeX("grad_x", constant(gradX), xv)
		if err != nil {
			return err
		}
		if xv.dtype == float32Type {
			normalizeGrad[float32](to, g, xv, width, numbers, relu)
		} else {
			normalizeGrad[float64](to, g, xv, width, numbers, relu)
		}
		return nil
	})
}

func normalizeGrad[T session.Float](to, g, x tensor, width int, numbers tensor, relu C.int32_t) {
	more := elements[T](numbers)[3*width:]
	session.NormalizeGrad(elements[T](to), elements[T](g), elements[T](x),
		session.Gradient[T]{Standard: standard[T](numbers, width, relu), Times: more[:width], Plus: more[width:]})
}

// rowsOfFloats views a tensor [n, width] of floats.
func rowsOfFloats(name string, t *C.sar_const_tensor) (v tensor, width int, err error) {
	if v, err = view(name, t); err != nil {
		return v, 0, err
	}
	if v.dtype != float32Type && v.dtype != float64Type {
		return v, 0, notFloat(v)
	}
	_, width, err = v.rows()
	return v, width, err
}

// likeX views a tensor of the type and shape of x.
func likeX(name string, t *C.sar_const_tensor, x tensor) (tensor, error) {
	v, err := sameType(name, t, x)
	if err == nil && v.shapeString() != x.shapeString() {
		err = invalid("%s has shape %s, and x %s: they must be the same", name, v.shapeString(), x.shapeString())
	}
	return v, err
}

// ofColumns views a tensor [count, width] of numbers of each column.
func ofColumns(t *C.sar_const_tensor, count, width int, x tensor) (tensor, error) {
	v, err := sameType("columns", t, x)
	if err != nil {
		return v, err
	}
	if n, w, err := v.rows(); err != nil {
		return v, err
	} else if n != count || w != width {
		return v, invalid("columns has shape %s: x of shape %s needs [%d, %d]", v.shapeString(), x.shapeString(), count, width)
	}
	return v, nil
}

// columnSums views a tensor [2, width] of float64.
func columnSums(t *C.DLTensor, width int) ([]float64, error) {
	v, err := view("out", constant(t))
	if err != nil {
		return nil, err
	}
	if err := v.must(float64Type); err != nil {
		return nil, err
	}
	if n, w, err := v.rows(); err != nil {
		return nil, err
	} else if n != 2 || w != width {
		return nil, invalid("out has shape %s, and must be [2, %d]", v.shapeString(), width)
	}
	return elements[float64](v), nil
}

func standard[T session.Float](numbers tensor, width int, relu C.int32_t) session.Standard[T] {
	n := elements[T](numbers)
	return session.Standard[T]{About: n[:width], Scale: n[width : 2*width], Shift: n[2*width : 3*width], Gate: relu != 0}
}
