// Package export is the C ABI of SAR: the functions of ../sar.h. It is linked
// into libsar.so and, by a blank import, into the Python extension, so that a
// process holds one Go runtime whichever way it calls.
package export

/*
#include "abi.h"
*/
import "C"

import (
	"sync"

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

//export sar_set_num_threads
func sar_set_num_threads(n C.int32_t) C.sar_status {
	return guard("sar_set_num_threads", func(*call) {
		demand(n >= 1, "%d threads: at least 1 is needed", n)
		session.SetThreads(int(n))
	})
}

//export sar_get_num_threads
func sar_get_num_threads() C.int32_t { return C.int32_t(session.Threads()) }

// simdNames holds the C strings that sar_simd has returned, which live as long
// as the process.
var simdNames sync.Map

//export sar_simd
func sar_simd() *C.sar_const_char {
	name := session.SIMD()
	if s, ok := simdNames.Load(name); ok {
		return (*C.sar_const_char)(s.(*C.char))
	}
	s, _ := simdNames.LoadOrStore(name, C.CString(name)) // a race leaks a few bytes, once
	return (*C.sar_const_char)(s.(*C.char))
}
