package export

/*
#include "abi.h"
*/
import "C"

import "sar/core/session"

func useComm(c *call, h C.sar_handle, id C.int32_t) *session.Communicator {
	return must(use(c, h, sessions).Comm(session.CommID(id)))
}

//export sar_comm_create
func sar_comm_create(h C.sar_handle, name *C.sar_const_char, comm *C.int32_t) C.sar_status {
	return guard("sar_comm_create", func(c *call) {
		s := use(c, h, sessions)
		give("comm", comm, -1)
		*comm = C.int32_t(must(s.NewComm(text(name))))
	})
}

//export sar_all_reduce
func sar_all_reduce(h C.sar_handle, comm C.int32_t, t *C.DLTensor, op C.int32_t) C.sar_status {
	return guard("sar_all_reduce", func(c *call) {
		comm, v := useComm(c, h, comm), view("tensor", t)
		need(comm.AllReduce(v.bytes(), v.dtype, must(session.ParseReduceOp(int(op)))))
	})
}

//export sar_broadcast
func sar_broadcast(h C.sar_handle, comm C.int32_t, t *C.DLTensor, root C.int32_t) C.sar_status {
	return guard("sar_broadcast", func(c *call) {
		need(useComm(c, h, comm).Broadcast(view("tensor", t).bytes(), int(root)))
	})
}

//export sar_barrier
func sar_barrier(h C.sar_handle, comm C.int32_t) C.sar_status {
	return guard("sar_barrier", func(c *call) { need(useComm(c, h, comm).Barrier()) })
}

//export sar_all_to_all
func sar_all_to_all(
	h C.sar_handle, comm C.int32_t, send *C.sar_const_tensor, recv *C.DLTensor, n C.int32_t,
) C.sar_status {
	return guard("sar_all_to_all", func(c *call) {
		need(useComm(c, h, comm).AllToAll(memories("send", send, n), memories("recv", recv, n)))
	})
}

func memories(name string, first *C.DLTensor, n C.int32_t) (out [][]byte) {
	for _, v := range views(name, first, n) {
		out = append(out, v.bytes())
	}
	return out
}

//export sar_exchange_pair
func sar_exchange_pair(
	h C.sar_handle, comm, to C.int32_t, send *C.sar_const_tensor, from C.int32_t, recv *C.DLTensor,
) C.sar_status {
	return guard("sar_exchange_pair", func(c *call) {
		comm := useComm(c, h, comm)
		var out, in []byte
		if to >= 0 {
			out = view("send", send).bytes()
		}
		if from >= 0 {
			in = view("recv", recv).bytes()
		}
		need(comm.ExchangePair(int(to), out, int(from), in))
	})
}
