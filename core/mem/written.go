package mem

import (
	"encoding/binary"
	"os"
	"unsafe"
)

// Written says whether pages of b, which lies in a mapped file, are private copies, because they
// were written to. Where the system does not tell, it says so too.
func Written(b []byte) bool {
	const (
		entryBytes = 8
		present    = 3 << 62 // in memory or in swap
		ofFile     = 1 << 61 // and still the file's
	)
	pagemap, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return true
	}
	defer pagemap.Close()
	begin := int64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	first, end := begin/page, (begin+int64(len(b))+page-1)/page
	entries := make([]byte, entryBytes*min(end-first, 8192))
	for first < end {
		entries = entries[:min(int64(len(entries)), entryBytes*(end-first))]
		if _, err := pagemap.ReadAt(entries, entryBytes*first); err != nil {
			return true
		}
		for i := 0; i < len(entries); i += entryBytes {
			if e := binary.NativeEndian.Uint64(entries[i:]); e&present != 0 && e&ofFile == 0 {
				return true
			}
		}
		first += int64(len(entries)) / entryBytes
	}
	return false
}
