package mem

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// What is mapped from a file is read from it, wherever it begins, and is counted.
func TestMap(t *testing.T) {
	var content []byte
	for i := range 5000 {
		content = binary.LittleEndian.AppendUint32(content, uint32(i))
	}
	path := filepath.Join(t.TempDir(), "numbers")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	before := Stats()[Structure].Live
	a, err := Map[int32](Structure, f, 4400, 3000)
	if err != nil {
		t.Fatal(err)
	}
	empty, err := Map[int32](Structure, f, 20000, 0)
	if err != nil || empty.Data != nil {
		t.Fatal(err, empty)
	}
	for _, wrong := range [][2]int{{2, 1}, {-4, 1}, {20004, 0}, {0, 5001}, {20000, 1}, {0, -1}} {
		if _, err := Map[int32](Structure, f, int64(wrong[0]), wrong[1]); err == nil {
			t.Errorf("%d elements from byte %d on were mapped", wrong[1], wrong[0])
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if now := Stats()[Structure].Live; now-before < 12000 || now-before != a.Bytes() {
		t.Errorf("%d bytes counted, %d mapped", now-before, a.Bytes())
	}
	for range 2 {
		for i, v := range a.Data {
			if v != int32(1100+i) {
				t.Fatalf("element %d is %d", i, v)
			}
		}
		a.Forget()
	}
	a.Free()
	a.Free()
	if now := Stats()[Structure].Live; now != before || a.Data != nil {
		t.Errorf("%d bytes left", now-before)
	}
}
