package export

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"encoding/json"
	"unsafe"
)

// Structs that cross the ABI begin with their size as the caller compiled
// them. A caller with an older, shorter struct gets the fields it knows, and
// those that it does not know read as zero.

// copyOut writes the first bytes of src, size bytes long, over dst, as many as
// dst says it has. The size field of dst stays.
func copyOut(dst, src unsafe.Pointer, size uintptr) {
	const head = unsafe.Sizeof(C.size_t(0))
	n := min(uintptr(*(*C.size_t)(dst)), size)
	if n > head {
		copy(unsafe.Slice((*byte)(dst), n)[head:], unsafe.Slice((*byte)(src), n)[head:])
	}
}

// copyIn reads a struct of the caller's.
func copyIn[T any](name string, src *T) (dst T) {
	if src == nil {
		refuse("%s is NULL", name)
	}
	n := uintptr(*(*C.size_t)(unsafe.Pointer(src)))
	if n < unsafe.Sizeof(C.size_t(0)) {
		refuse("%s.size is %d: set it to sizeof the struct", name, n)
	}
	n = min(n, unsafe.Sizeof(dst))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&dst)), n), unsafe.Slice((*byte)(unsafe.Pointer(src)), n))
	return dst
}

// giveJSON hands v to the caller, who frees it with sar_free_string.
func giveJSON(out **C.char, v any) {
	give("json", out, nil)
	*out = C.CString(string(must(json.Marshal(v))))
}

// readJSON reads what the caller says in JSON.
func readJSON[T any](name string, s *C.sar_const_char) (v T) {
	if err := json.Unmarshal([]byte(text(s)), &v); err != nil {
		refuse("%s: %v", name, err)
	}
	return v
}

// give writes a result through a pointer of the caller's.
func give[T any](name string, out *T, v T) {
	if out == nil {
		refuse("%s is NULL: there is nowhere to put the result", name)
	}
	*out = v
}

// text reads a string of the caller's; NULL reads as "".
func text(s *C.sar_const_char) string { return C.GoString((*C.char)(unsafe.Pointer(s))) }

//export sar_free_string
func sar_free_string(s *C.char) { C.free(unsafe.Pointer(s)) }
