package export

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"sar/capi/foreign"
)

//export sar_transport_register
func sar_transport_register(transport *C.sar_const_transport) C.sar_status {
	return guard("sar_transport_register", func(*call) error {
		if err := foreign.Register(unsafe.Pointer(transport)); err != nil {
			return invalid("%v", err)
		}
		return nil
	})
}
