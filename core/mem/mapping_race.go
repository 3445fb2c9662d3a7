//go:build race

package mem

import "unsafe"

const lends = false // the race detector follows no memory of others

// mapPages returns n zeroed bytes of whole pages of the Go heap: the race
// detector follows no other memory.
func mapPages(n int) ([]byte, error) {
	b := make([]byte, n+page)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (page - 1)
	return b[skip : skip+n : skip+n], nil
}

// unmapPages leaves the memory to the collector. It writes to all of it first, by
// a copy onto itself, so that the race detector reports whoever still uses it.
func unmapPages(b []byte) { copy(b, b) }
