package disk

import (
	"bytes"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sar/core/mem"
)

// What is not in the page cache is read from the disk, to the same place in a line, and what was written to is not.
// A file that became shorter shows before it is read.
func TestReadOfMappedFeature(t *testing.T) {
	const page, size, start = 4096, 9*4096 + 128, 192
	content := make([]byte, start+size)
	rand.New(rand.NewSource(3)).Read(content)
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	open := &File{Name: path, OS: f, Size: start + size}
	array, err := mem.Map[byte](mem.Mapped, f, start, size)
	if err != nil {
		t.Fatal(err)
	}
	m := newMappedFeature(array, open, start, "numbers")
	defer m.Close()
	drop := func() {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			time.Sleep(5 * time.Millisecond) // looking for a page had it read ahead, and pages that are being read stay
			if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
				t.Fatal(err)
			}
			if !resident(t, m.Data) {
				return
			}
		}
	}
	read := func(first, n int64, want bool) {
		t.Helper()
		window := make([]byte, n+2*directAlign)
		at, err := m.Read(first, n, window)
		for range 50 { // what was read ahead may come in after it was dropped
			if !want || at >= 0 || err != nil {
				break
			}
			drop()
			at, err = m.Read(first, n, window)
		}
		switch {
		case err != nil:
			t.Error(err)
		case at >= 0 != want:
			t.Errorf("bytes %d to %d were read: %v", first, first+n, at >= 0)
		case want && !bytes.Equal(window[at:at+n], content[start+first:start+first+n]):
			t.Errorf("bytes %d to %d: others were read", first, first+n)
		case want && (uintptr(unsafe.Pointer(&window[at]))-uintptr(unsafe.Pointer(&m.Data[first])))%MapAlign != 0:
			t.Errorf("bytes %d to %d begin elsewhere in a line", first, first+n)
		}
	}
	read(0, size, false) // it was just written
	drop()
	if resident(t, m.Data) {
		t.Skip("files here are always in memory")
	}
	for _, part := range [][2]int64{{0, size}, {64, 64}, {page, 3 * page}, {size - 64, 64}} {
		drop()
		read(part[0], part[1], true)
	}
	if m.direct != nil {
		// where the file system refuses to read past its cache, it is read through it
		m.direct.Close()
		m.direct = nil
		drop()
		read(64, 3*page, true)
	}
	for i := 0; i < size; i += page { // then the map has no pages of the file left
		m.Data[i] ^= 1
	}
	m.Data[size-1] ^= 1
	left := true
	for range 200 {
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		if left = m.cached(0, size); !left { // to ask has it read ahead, so once is enough
			break
		}
		time.Sleep(time.Millisecond)
	}
	if left {
		t.Error("pages are left in the cache")
	}
	read(0, size, false)
	if err := os.Truncate(path, start+size-1); err != nil {
		t.Fatal(err)
	}
	var damage *FormatError
	if _, err := m.Read(0, 64, nil); !errors.As(err, &damage) || damage.Offset != start+size-1 {
		t.Error(err)
	}
}

// resident tells whether memory has a page of a map. To ask for one by reading would have others read ahead.
func resident(t *testing.T, data []byte) bool {
	t.Helper()
	const page = 4096
	lead := uintptr(unsafe.Pointer(unsafe.SliceData(data))) % page
	pages := make([]byte, (int(lead)+len(data)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(data)))-lead,
		lead+uintptr(len(data)), uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, p := range pages {
		if p&1 != 0 {
			return true
		}
	}
	return false
}
