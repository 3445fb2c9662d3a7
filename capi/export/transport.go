package export

/*
#include "abi.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"sar/capi/foreign"
	"sar/capi/library"
)

func init() {
	if err := errors.Join(foreign.Register(library.UCX()), foreign.Register(library.MPI())); err != nil {
		panic(err) // tables of ours
	}
}

//export sar_transport_register
func sar_transport_register(transport *C.sar_const_transport) C.sar_status {
	return guard("sar_transport_register", func(*call) { needValue(foreign.Register(unsafe.Pointer(transport))) })
}

//export sar_transport_library
func sar_transport_library(name, file *C.sar_const_char) C.sar_status {
	return guard("sar_transport_library", func(*call) {
		demand(library.Further(text(name), text(file)), "%q is not a transport that is a library: ucx and mpi are",
			text(name))
	})
}

//export sar_transport_probe
func sar_transport_probe(name *C.sar_const_char, uses **C.char) C.sar_status {
	return guard("sar_transport_probe", func(*call) {
		give("uses", uses, nil)
		found, err := foreign.Probe(text(name))
		needValue(err)
		*uses = C.CString(found)
	})
}

// needValue is need where any error is SAR_ERR_VALUE.
func needValue(err error) {
	if err != nil {
		refuse("%v", err)
	}
}
