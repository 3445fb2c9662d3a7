// Package export is the C ABI of SAR: the functions of ../sar.h. It is linked
// into libsar.so and, by a blank import, into the Python extension, so that a
// process holds one Go runtime whichever way it calls.
package export

/*
#include "abi.h"
*/
import "C"

import (
	"sar/core/session"
)

// Version is the version of the engine and of the Python package.
const Version = "0.1.0"

// version is Version as C sees it, made once and never freed.
var version = C.CString(Version)

//export sar_abi_version
func sar_abi_version() C.uint32_t { return C.SAR_ABI_VERSION }

//export sar_version
func sar_version() *C.sar_const_char { return (*C.sar_const_char)(version) }

//export sar_memory_stats
func sar_memory_stats(json **C.char) C.sar_status {
	return guard("sar_memory_stats", func(*call) { giveJSON(json, session.MemoryStats()) })
}

//export sar_reset_peaks
func sar_reset_peaks() { session.ResetPeaks() }
