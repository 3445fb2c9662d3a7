package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a process left that was killed is removed; what another one writes is not touched.
func TestScratchDir(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, ".g.partial", "part0")
	if err := os.MkdirAll(left, 0o775); err != nil {
		t.Fatal(err)
	}
	s, err := newScratch(dir, "g")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what was left is still there: %v", err)
	}
	mine := filepath.Join(s.path, "mine")
	if err := os.WriteFile(mine, nil, 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := newScratch(dir, "g"); err == nil ||
		!strings.Contains(err.Error(), "another process is writing parts of g") {
		t.Errorf("a second writer: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	other, err := newScratch(dir, "h")
	if err != nil {
		t.Fatal(err)
	}
	other.remove()
	s.remove()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	again, err := newScratch(dir, "g")
	if err != nil {
		t.Fatal(err)
	}
	again.remove()
}
