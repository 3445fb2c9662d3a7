package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

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
		if err := m.WillRead(0, int64(len(m.Data))); err != nil {
			t.Error(err)
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
	cut := &MappedFeature{m, p.files[1], 128, "numbers"}
	defer cut.Free()
	if err := cut.WillRead(0, 64); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 127); err != nil {
		t.Fatal(err)
	}
	var damage *FormatError
	if err := cut.WillRead(0, 64); !errors.As(err, &damage) || damage.Offset != 127 {
		t.Error(err)
	}
}
