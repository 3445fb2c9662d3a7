package export

/*
#include "abi.h"
*/
import "C"

import (
	"encoding/json"
	"unsafe"

	"sar/core/session"
)

//export sar_dataset_write_parts
func sar_dataset_write_parts(h C.sar_handle, assignment *C.sar_const_tensor, parts C.int32_t, dir, options *C.sar_const_char,
	progress C.sar_progress, user unsafe.Pointer) C.sar_status {
	return guard("sar_dataset_write_parts", func(c *call) error {
		d, a, err := datasetAndAssignment(c, h, assignment)
		if err != nil {
			return err
		}
		var o session.WriteOptions
		if err := json.Unmarshal([]byte(text(options)), &o); err != nil {
			return invalid("options: %v", err)
		}
		return d.WriteParts(a, int(parts), text(dir), o, teller(progress, user))
	})
}

//export sar_dataset_least_memory
func sar_dataset_least_memory(h C.sar_handle, parts C.int32_t, format *C.sar_const_char, bytes *C.int64_t) C.sar_status {
	return guard("sar_dataset_least_memory", func(c *call) error {
		d, err := useDataset(c, h)
		if err != nil {
			return err
		}
		least, err := d.LeastMemory(int(parts), text(format))
		if err != nil {
			return err
		}
		return give("bytes", bytes, C.int64_t(least))
	})
}
