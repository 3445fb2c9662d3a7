package export

/*
#include "abi.h"
*/
import "C"

import "sar/core/session"

// fetchRows views a tensor as rows of bytes.
func fetchRows(v tensor) session.FetchRows {
	n, w := v.rows()
	return session.FetchRows{Data: v.bytes(), N: n, Bytes: w * v.itemSize()}
}

//export sar_graph_in_edges
func sar_graph_in_edges(
	h C.sar_handle, relation C.int32_t, rows *C.sar_const_tensor, indptr, columns, edges *C.DLTensor,
) C.sar_status {
	return guard("sar_graph_in_edges", func(c *call) {
		need(use(c, h, graphs).InEdges(int(relation), vector[int64]("rows", rows), vector[int64]("indptr", indptr),
			optional[int64]("columns", columns), optional[int64]("edges", edges)))
	})
}

//export sar_graph_columns
func sar_graph_columns(h C.sar_handle, relation C.int32_t, owner, row *C.DLTensor) C.sar_status {
	return guard("sar_graph_columns", func(c *call) {
		need(use(c, h, graphs).Columns(int(relation), optional[int64]("owner", owner), optional[int64]("row", row)))
	})
}

//export sar_fetch_forward
func sar_fetch_forward(
	h C.sar_handle, relation C.int32_t, columns *C.sar_const_tensor, flags C.uint32_t, x *C.sar_const_tensor,
	out *C.DLTensor, agreed *C.uint32_t,
) C.sar_status {
	return guard("sar_fetch_forward", func(c *call) {
		g, cols, from := use(c, h, graphs), vector[int64]("columns", columns), view("x", x)
		give("agreed", agreed, 0)
		demand(flags>>16 == 0, "flags are %#x: a fetch has 16 of them", flags)
		to := view("out", out).like(from)
		*agreed = C.uint32_t(must(g.FetchForward(int(relation), cols, uint16(flags), fetchRows(from), fetchRows(to))))
	})
}

//export sar_fetch_backward
func sar_fetch_backward(
	h C.sar_handle, relation C.int32_t, columns, gradOut *C.sar_const_tensor, gradX *C.DLTensor,
) C.sar_status {
	return guard("sar_fetch_backward", func(c *call) {
		g, cols, from := use(c, h, graphs), vector[int64]("columns", columns), view("grad_out", gradOut).isFloat()
		var to *session.FetchRows
		if gradX != nil {
			rows := fetchRows(view("grad_x", gradX).like(from))
			to = &rows
		}
		need(g.FetchBackward(int(relation), cols, from.itemSize(), fetchRows(from), to))
	})
}
