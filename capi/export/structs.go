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

// copyIn reads the caller's struct src into dst, size bytes long.
func copyIn(name string, dst, src unsafe.Pointer, size uintptr) error {
	if src == nil {
		return invalid("%s is NULL", name)
	}
	n := uintptr(*(*C.size_t)(src))
	if n < unsafe.Sizeof(C.size_t(0)) {
		return invalid("%s.size is %d: set it to sizeof the struct", name, n)
	}
	n = min(n, size)
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
	return nil
}

// giveJSON hands v to the caller, who frees it with sar_free_string.
func giveJSON(out **C.char, v any) error {
	if out == nil {
		return invalid("json is NULL: there is nowhere to put the result")
	}
	*out = nil
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	*out = C.CString(string(text))
	return nil
}

// give writes a result through a pointer of the caller's.
func give[T any](name string, out *T, v T) error {
	if out == nil {
		return invalid("%s is NULL: there is nowhere to put the result", name)
	}
	*out = v
	return nil
}

// text reads a string of the caller's; NULL reads as "".
func text(s *C.sar_const_char) string { return C.GoString((*C.char)(unsafe.Pointer(s))) }

//export sar_free_string
func sar_free_string(s *C.char) { C.free(unsafe.Pointer(s)) }
