package export

/*
#include "abi.h"
*/
import "C"

import "sar/core/session"

// fetchRows views a tensor as rows of bytes.
func fetchRows(v tensor) (session.FetchRows, error) {
	n, w, err := v.rows()
	return session.FetchRows{Data: v.bytes(), N: n, Bytes: w * v.itemSize()}, err
}

// optionalVector is vector, where NULL reads as nil and no elements do not.
func optionalVector[T any](name string, t *C.sar_const_tensor, want dtype) ([]T, error) {
	if t == nil {
		return nil, nil
	}
	return vector[T](name, t, want)
}

//export sar_graph_in_edges
func sar_graph_in_edges(h C.sar_handle, relation C.int32_t, rows *C.sar_const_tensor, indptr, columns, edges *C.DLTensor) C.sar_status {
	return guard("sar_graph_in_edges", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		var a [4][]int64
		for i, t := range []*C.sar_const_tensor{rows, constant(indptr), constant(columns), constant(edges)} {
			read := vector[int64]
			if i > 1 {
				read = optionalVector[int64]
			}
			if a[i], err = read([4]string{"rows", "indptr", "columns", "edges"}[i], t, int64Type); err != nil {
				return err
			}
		}
		return g.InEdges(int(relation), a[0], a[1], a[2], a[3])
	})
}

//export sar_graph_columns
func sar_graph_columns(h C.sar_handle, relation C.int32_t, owner, row *C.DLTensor) C.sar_status {
	return guard("sar_graph_columns", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		owners, err := optionalVector[int64]("owner", constant(owner), int64Type)
		if err != nil {
			return err
		}
		rows, err := optionalVector[int64]("row", constant(row), int64Type)
		if err != nil {
			return err
		}
		return g.Columns(int(relation), owners, rows)
	})
}

//export sar_fetch_forward
func sar_fetch_forward(h C.sar_handle, relation C.int32_t, columns *C.sar_const_tensor, flags C.uint32_t, x *C.sar_const_tensor, out *C.DLTensor, agreed *C.uint32_t) C.sar_status {
	return guard("sar_fetch_forward", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		if err := give("agreed", agreed, 0); err != nil {
			return err
		}
		if flags>>16 != 0 {
			return invalid("flags are %#x: a fetch has 16 of them", flags)
		}
		cols, err := vector[int64]("columns", columns, int64Type)
		if err != nil {
			return err
		}
		xv, err := view("x", x)
		if err != nil {
			return err
		}
		from, err := fetchRows(xv)
		if err != nil {
			return err
		}
		ov, err := sameType("out", constant(out), xv)
		if err != nil {
			return err
		}
		to, err := fetchRows(ov)
		if err != nil {
			return err
		}
		got, err := g.FetchForward(int(relation), cols, uint16(flags), from, to)
		*agreed = C.uint32_t(got)
		return err
	})
}

//export sar_fetch_backward
func sar_fetch_backward(h C.sar_handle, relation C.int32_t, columns, gradOut *C.sar_const_tensor, gradX *C.DLTensor) C.sar_status {
	return guard("sar_fetch_backward", func(c *call) error {
		g, err := useGraph(c, h)
		if err != nil {
			return err
		}
		cols, err := vector[int64]("columns", columns, int64Type)
		if err != nil {
			return err
		}
		gv, err := view("grad_out", gradOut)
		if err != nil {
			return err
		}
		if gv.dtype != float32Type && gv.dtype != float64Type {
			return notFloat(gv)
		}
		from, err := fetchRows(gv)
		if err != nil {
			return err
		}
		var to *session.FetchRows
		if gradX != nil {
			xv, err := sameType("grad_x", constant(gradX), gv)
			if err != nil {
				return err
			}
			rows, err := fetchRows(xv)
			if err != nil {
				return err
			}
			to = &rows
		}
		return g.FetchBackward(int(relation), cols, gv.itemSize(), from, to)
	})
}
