package store

import (
	"bytes"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"sar/core/mem"
)

// Every feature is mapped as it would be read, wherever it lies in the file, and outlives the partition.
func TestMapFeature(t *testing.T) {
	path := writeRandom(t, 500, 10, 1)
	p := mustOpen(t, path, 0)
	before := mem.Stats()[mem.Mapped].Live
	copies := 0
	for _, of := range p.NodeFeatures() {
		a := p.nodeFeats[of.Name]
		if a.n == 0 {
			continue
		}
		want := make([]byte, a.bytes())
		if err := p.ReadFeature(false, of.Name, want); err != nil {
			t.Fatal(err)
		}
		m, err := p.MapFeature(false, of.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.Data, want) {
			t.Errorf("%s: other bytes", of.Name)
		}
		if uintptr(unsafe.Pointer(&m.Data[0]))%mapAlign != 0 {
			t.Errorf("%s begins at %p", of.Name, &m.Data[0])
		}
		if a.off%mapAlign != 0 {
			copies++
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if copies == 0 {
		t.Error("every feature lies on a multiple of 64 bytes")
	}
	if _, err := p.MapFeature(false, "_N/none"); err == nil {
		t.Error("a feature that is not there was mapped")
	}
	if live := mem.Stats()[mem.Mapped].Live; live != before {
		t.Errorf("%d bytes are still mapped", live-before)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "part0", "*"))
	if err != nil || len(left) != 4 {
		t.Errorf("files: %q, %v", left, err)
	}
}

// Damage shows when a feature is mapped, and a file that became shorter before it is read.
func TestMapFeatureOfDamagedFiles(t *testing.T) {
	path := writeRandom(t, 500, 10, 1)
	file := filepath.Join(filepath.Dir(path), "part0", nodeFile)
	p := mustOpen(t, path, 0)
	for name, a := range p.nodeFeats {
		if a.n == 0 {
			continue
		}
		change(t, file, a.off, 0x77, 0x78)
		var damage *FormatError
		if _, err := p.MapFeature(false, name); !errors.As(err, &damage) || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("%s: %v", name, err)
		}
	}

	path = writeRandom(t, 500, 10, 1)
	file = filepath.Join(filepath.Dir(path), "part0", nodeFile)
	p = mustOpen(t, path, 0)
	m, err := p.files[1].mapped(64, 64, "numbers")
	if err != nil {
		t.Fatal(err)
	}
	cut := &MappedFeature{Array: m, file: p.files[1], start: 64, end: 128, what: "numbers"}
	defer cut.Free()
	if _, err := cut.Read(0, 64, make([]byte, 64+2*directAlign)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 127); err != nil {
		t.Fatal(err)
	}
	var damage *FormatError
	if _, err := cut.Read(0, 64, nil); !errors.As(err, &damage) || damage.Offset != 127 {
		t.Error(err)
	}
}

// What is not in the page cache is read from the disk, to the same place in a line, and what was written to is not.
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
	open := &file{name: path, os: f, size: start + size}
	array, err := mem.Map[byte](mem.Mapped, f, start, size)
	if err != nil {
		t.Fatal(err)
	}
	m := newMappedFeature(array, open, start, "numbers")
	defer m.Close()
	read := func(first, n int64, want bool) {
		t.Helper()
		window := make([]byte, n+2*directAlign)
		at, err := m.Read(first, n, window)
		switch {
		case err != nil:
			t.Error(err)
		case at >= 0 != want:
			t.Errorf("bytes %d to %d were read: %v", first, first+n, at >= 0)
		case want && !bytes.Equal(window[at:at+n], content[start+first:start+first+n]):
			t.Errorf("bytes %d to %d: others were read", first, first+n)
		case want && (uintptr(unsafe.Pointer(&window[at]))-uintptr(unsafe.Pointer(&m.Data[first])))%mapAlign != 0:
			t.Errorf("bytes %d to %d begin elsewhere in a line", first, first+n)
		}
	}
	read(0, size, false) // it was just written
	drop := func() {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
	}
	drop()
	if m.cached(0, size) {
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
	drop()
	if m.cached(0, size) {
		t.Error("pages are left in the cache")
	}
	read(0, size, false)
}
