package mem

import (
	"bytes"
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

// What is mapped for writers has the bytes of its part of the file. What is written to it does not
// reach the file.
func TestMapped(t *testing.T) {
	content := make([]byte, 5*page+11)
	for i := range content {
		content[i] = byte(i * 7 >> 3)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	before, total := Stats()[Mapped].Live, Total().Live
	size := int64(len(content))
	for _, part := range [][2]int64{{0, 1}, {0, size}, {page, page}, {page + 3, 2 * page}, {size - 1, 1}} {
		off, n := part[0], part[1]
		m, err := Map[byte](Mapped, f, off, int(n))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.Data, content[off:off+n]) {
			t.Errorf("%d bytes from %d on: other bytes", n, off)
		}
		if !FileBacked(m.Data) || FileBacked(content) {
			t.Error("the map is not known, or another array is")
		}
		if live := Stats()[Mapped].Live - before; live < n || live >= n+2*page || Total().Live != total {
			t.Errorf("%d bytes count as %d, and the total moved by %d", n, live, Total().Live-total)
		}
		if Written(m.Data) {
			t.Error("written to before it was")
		}
		m.Data[0] ^= 0xff
		if at := off % page; !Written(m.Data) || n > 2*page && Written(m.Data[page-at:]) {
			t.Error("what was written to is not known")
		}
		b := m.Data
		m.Free()
		m.Free()
		if FileBacked(b) || Stats()[Mapped].Live != before {
			t.Error("it is still counted")
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
		t.Errorf("the file has changed, or %v", err)
	}
	if _, err := Map[byte](Mapped, f, 0, 10); err == nil {
		t.Error("a closed file was mapped")
	}
}
