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
func sar_matrix_create(indptr, indices *C.sar_const_tensor, numCols C.int64_t, out *C.sar_handle) C.sar_status {
	return guard("sar_matrix_create", func(*call) error {
		if err := give("matrix", out, 0); err != nil {
			return err
		}
		if numCols < 0 || numCols > math.MaxInt32 {
			return invalid("num_cols is %d: indices are int32", numCols)
		}
		csr, err := sparse(indptr, indices, int(numCols), "the matrix has %d columns")
		if err != nil {
			return err
		}
		m, err := session.NewMatrix(csr, int(numCols))
		if err != nil {
			return err
		}
		*out = register(kindMatrix, m, nil)
		return nil
	})
}

//export sar_matrix_spmm
func sar_matrix_spmm(h C.sar_handle, w, x *C.sar_const_tensor, y *C.DLTensor) C.sar_status {
	return guard("sar_matrix_spmm", func(c *call) error {
		m, err := use[*session.Matrix](c, h, kindMatrix)
		if err != nil {
			return err
		}
		return product(x, w, y, func(xv tensor, rows int) (session.CSR, error) {
			if rows != m.Cols {
				return session.CSR{}, invalid("x has shape %s: a matrix of %d columns needs as many rows", xv.shapeString(), m.Cols)
			}
			return m.CSR(), nil
		})
	})
}

//export sar_matrix_free
func sar_matrix_free(h C.sar_handle) C.sar_status {
	return guard("sar_matrix_free", func(*call) error {
		e, err := remove(h, kindMatrix)
		if err != nil {
			return err
		}
		e.busy.Lock() // until the products that go on are done
		defer e.busy.Unlock()
		e.value.(*session.Matrix).Free()
		return nil
	})
}
