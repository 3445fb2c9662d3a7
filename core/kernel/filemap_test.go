package kernel

import (
	"os"
	"path/filepath"
	"testing"

	"sar/core/internal/view"
	"sar/core/mem"
)

// Rows of a mapped file are never put into huge pages, however often they are read.
func TestMappedRowsStayInTheirFile(t *testing.T) {
	old := rereadLeast
	rereadLeast = 1 << 10
	defer func() { rereadLeast = old }()
	path := filepath.Join(t.TempDir(), "x")
	const n = 1 << 14
	if err := os.WriteFile(path, make([]byte, 4*n), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m, err := mem.Map[byte](mem.Mapped, file, 0, 4*n)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	p := NewPool(1)
	for _, x := range [][]float32{view.Numbers[float32](m.Data), make([]float32, n)} {
		willRead(p, x, 1, 1)
	}
	if len(p.known) != 1 {
		t.Errorf("known: %+v", p.known)
	}
}
