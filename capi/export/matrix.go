package export

/*
#include "abi.h"
*/
import "C"

import (
	"math"

	"sar/core/session"
)

//export sar_matrix_create
func sar_matrix_create(
	indptr, indices *C.sar_const_tensor, numCols C.int64_t, out *C.sar_handle,
) C.sar_status {
	return guard("sar_matrix_create", func(c *call) {
		if numCols < 0 || numCols > math.MaxInt32 {
			refuse("num_cols is %d: indices are int32", numCols)
		}
		create(c, matrices, out, func() (*session.Matrix, error) {
			return session.NewMatrix(sparse(indptr, indices, int(numCols), "the matrix has %d columns"), int(numCols))
		})
	})
}

//export sar_matrix_spmm
func sar_matrix_spmm(h C.sar_handle, w, x *C.sar_const_tensor, y *C.DLTensor) C.sar_status {
	return guard("sar_matrix_spmm", func(c *call) {
		m, v := use(c, h, matrices), view("x", x)
		if rows, _ := v.rows(); rows != m.Cols {
			refuse("x has shape %s: a matrix of %d columns needs as many rows", join(v.shape), m.Cols)
		}
		byFloat(v, spmm[float32], spmm[float64])(m.CSR(), v, w, y)
	})
}

//export sar_matrix_free
func sar_matrix_free(h C.sar_handle) C.sar_status {
	return guard("sar_matrix_free", func(*call) { need(drop(h, matrices)) })
}
