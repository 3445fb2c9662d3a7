package export

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"sar/core/session"
)

//export sar_comm_create
func sar_comm_create(h C.sar_handle, name *C.sar_const_char, comm *C.int32_t) C.sar_status {
	return guard("sar_comm_create", func(c *call) error {
		s, err := useSession(c, h)
		if err != nil {
			return err
		}
		if err := give("comm", comm, -1); err != nil {
			return err
		}
		id, err := s.NewComm(text(name))
		if err != nil {
			return err
		}
		*comm = C.int32_t(id)
		return nil
	})
}

//export sar_all_reduce
func sar_all_reduce(h C.sar_handle, comm C.int32_t, t *C.DLTensor, op C.int32_t) C.sar_status {
	return guard("sar_all_reduce", func(c *call) error {
		comm, v, err := commAndTensor(c, h, comm, t)
		if err != nil {
			return err
		}
		dtype, err := session.ParseDType(v.dtype.String())
		if err != nil {
			return err
		}
		reduce, err := session.ParseReduceOp(int(op))
		if err != nil {
			return err
		}
		return comm.AllReduce(v.bytes(), dtype, reduce)
	})
}

//export sar_broadcast
func sar_broadcast(h C.sar_handle, comm C.int32_t, t *C.DLTensor, root C.int32_t) C.sar_status {
	return guard("sar_broadcast", func(c *call) error {
		comm, v, err := commAndTensor(c, h, comm, t)
		if err != nil {
			return err
		}
		return comm.Broadcast(v.bytes(), int(root))
	})
}

//export sar_barrier
func sar_barrier(h C.sar_handle, comm C.int32_t) C.sar_status {
	return guard("sar_barrier", func(c *call) error {
		comm, err := useComm(c, h, comm)
		if err != nil {
			return err
		}
		return comm.Barrier()
	})
}

//export sar_all_to_all
func sar_all_to_all(h C.sar_handle, comm C.int32_t, send *C.sar_const_tensor, recv *C.DLTensor, n C.int32_t) C.sar_status {
	return guard("sar_all_to_all", func(c *call) error {
		comm, err := useComm(c, h, comm)
		if err != nil {
			return err
		}
		out, err := memories("send", send, n)
		if err != nil {
			return err
		}
		in, err := memories("recv", constant(recv), n)
		if err != nil {
			return err
		}
		return comm.AllToAll(out, in)
	})
}

// memories views an array of n tensors.
func memories(name string, first *C.sar_const_tensor, n C.int32_t) ([][]byte, error) {
	if n < 0 || first == nil && n > 0 {
		return nil, invalid("%s is an array of %d tensors at %p", name, n, first)
	}
	out := make([][]byte, n)
	for i, t := range unsafe.Slice((*C.DLTensor)(unsafe.Pointer(first)), n) {
		v, err := view(name, constant(&t))
		if err != nil {
			return nil, err
		}
		out[i] = v.bytes()
	}
	return out, nil
}

//export sar_exchange_pair
func sar_exchange_pair(h C.sar_handle, comm, to C.int32_t, send *C.sar_const_tensor, from C.int32_t, recv *C.DLTensor) C.sar_status {
	return guard("sar_exchange_pair", func(c *call) error {
		comm, err := useComm(c, h, comm)
		if err != nil {
			return err
		}
		var out, in []byte
		if to >= 0 {
			v, err := view("send", send)
			if err != nil {
				return err
			}
			out = v.bytes()
		}
		if from >= 0 {
			v, err := view("recv", constant(recv))
			if err != nil {
				return err
			}
			in = v.bytes()
		}
		return comm.ExchangePair(int(to), out, int(from), in)
	})
}

func useComm(c *call, h C.sar_handle, id C.int32_t) (*session.Communicator, error) {
	s, err := useSession(c, h)
	if err != nil {
		return nil, err
	}
	return s.Comm(int(id))
}

func commAndTensor(c *call, h C.sar_handle, id C.int32_t, t *C.DLTensor) (*session.Communicator, tensor, error) {
	comm, err := useComm(c, h, id)
	if err != nil {
		return nil, tensor{}, err
	}
	v, err := view("tensor", constant(t))
	return comm, v, err
}
