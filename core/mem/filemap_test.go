package mem

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A map has the bytes of its part of the file. What is written to it does not reach the file.
func TestFileMap(t *testing.T) {
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
		m, err := MapFile(int(f.Fd()), off, n)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.Data, content[off:off+n]) {
			t.Errorf("%d bytes from %d on: other bytes", n, off)
		}
		m.Prefetch(0, n)
		m.Prefetch(n, 100) // nothing is there
		if !FileBacked(m.Data) || FileBacked(content) {
			t.Error("the map is not known, or another array is")
		}
		if live := Stats()[Mapped].Live - before; live < n || live >= n+2*page || Total().Live != total {
			t.Errorf("%d bytes count as %d, and the total moved by %d", n, live, Total().Live-total)
		}
		m.Data[0] ^= 0xff
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
	if m, err := MapFile(-1, 0, 10); err == nil {
		m.Free()
		t.Error("no file was mapped")
	}
}
