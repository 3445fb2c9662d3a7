package store

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"sar/core/mem"
	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// Every feature is mapped as it would be read, wherever it lies in the file, and outlives the partition.
func TestMapFeature(t *testing.T) {
	path := writeRandom(t, 500, 10, 1)
	p := mustOpen(t, path, 0)
	before := mem.Stats()[mem.Mapped].Live
	copies := 0
	for _, of := range p.Features(false) {
		a := p.files.Features(false)[of.Name]
		if a.Len == 0 {
			continue
		}
		want := make([]byte, a.Bytes())
		if err := p.Read(false, of.Name, want, of.DType, of.Shape); err != nil {
			t.Fatal(err)
		}
		m, err := p.MapFeature(false, of.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.Data, want) {
			t.Errorf("%s: other bytes", of.Name)
		}
		if uintptr(unsafe.Pointer(&m.Data[0]))%disk.MapAlign != 0 {
			t.Errorf("%s begins at %p", of.Name, &m.Data[0])
		}
		if a.Offset%disk.MapAlign != 0 {
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

// Damage shows when a feature is mapped.
func TestMapFeatureOfDamagedFiles(t *testing.T) {
	path := writeRandom(t, 500, 10, 1)
	file := filepath.Join(filepath.Dir(path), "part0", "node_feat.dgl")
	p := mustOpen(t, path, 0)
	for name, a := range p.files.Features(false) {
		if a.Len == 0 {
			continue
		}
		storetest.Change(t, file, a.Offset, 0x77, 0x78)
		var damage *disk.FormatError
		if _, err := p.MapFeature(false, name); !errors.As(err, &damage) || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
