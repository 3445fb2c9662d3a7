package export

/*
#include "abi.h"
*/
import "C"

import (
	"sync"

	"sar/core/session"
)

// Threads is the number of kernel threads.
func Threads() int { return session.Threads() }

// SIMD is the instruction set that kernels use.
func SIMD() string { return session.SIMD() }

//export sar_set_num_threads
func sar_set_num_threads(n C.int32_t) C.sar_status {
	return guard("sar_set_num_threads", func(*call) {
		if n < 1 {
			refuse("%d threads: at least 1 is needed", n)
		}
		session.SetThreads(int(n))
	})
}

//export sar_get_num_threads
func sar_get_num_threads() C.int32_t { return C.int32_t(Threads()) }

// simdNames holds the C strings that sar_simd has returned, which live as long
// as the process.
var simdNames sync.Map

//export sar_simd
func sar_simd() *C.sar_const_char {
	name := SIMD()
	if s, ok := simdNames.Load(name); ok {
		return (*C.sar_const_char)(s.(*C.char))
	}
	s, _ := simdNames.LoadOrStore(name, C.CString(name)) // a race leaks a few bytes, once
	return (*C.sar_const_char)(s.(*C.char))
}
