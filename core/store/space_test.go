package store

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/storetest"
)

// TestFullDisk: what would not fit is refused before anything is written, and
// what the writer takes is no more than it asked for.
func TestFullDisk(t *testing.T) {
	defer func(was func(string) (int64, error)) { disk.FreeBytes = was }(disk.FreeBytes)
	g := randomGraph(rand.New(rand.NewSource(8)), 60, 500)
	assign := make([]int32, 60)
	for i := range assign {
		assign[i] = int32(i % 3)
	}
	dir := t.TempDir()
	if free, err := disk.FreeBytes(dir); err != nil || free <= 0 {
		t.Fatalf("%d bytes free, %v", free, err)
	}
	var asked int64
	disk.FreeBytes = func(string) (int64, error) { return asked, nil }
	for asked = 1; ; asked *= 2 {
		err := writeSingle(g, Partitioning{Assignment: assign, Parts: 3, Dir: dir, Name: "g", Method: "random"})
		if err == nil {
			break
		}
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), dir) ||
			!strings.Contains(err.Error(), "the parts need") {
			t.Fatalf("%d bytes: %v", asked, err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Fatalf("%d bytes: %v are left", asked, left)
		}
	}
	var used int64
	files, err := filepath.Glob(filepath.Join(dir, "part*", "*"))
	for _, f := range files {
		st, e := os.Stat(f)
		if e != nil {
			t.Fatal(e)
		}
		used += st.Size()
	}
	if err != nil || len(files) != 12 || used > asked || asked > 4*used {
		t.Fatalf("%d bytes in %d files, and %d were enough: %v", used, len(files), asked, err)
	}

	disk.FreeBytes = func(string) (int64, error) { return 100, nil }
	n := 1 << 16
	d, err := input.OpenNPZ(disk.InMemory("memory", storetest.Zip(t, zip.Deflate, map[string][]byte{
		"edge_index": storetest.Array("<i4", "(2, 1)", make([]byte, 8)),
		"x":          storetest.Array("<i4", fmt.Sprintf("(%d,)", n), bytes.Repeat([]byte{1, 2, 3, 4}, n)),
	})))
	if err != nil {
		t.Fatal(err)
	}
	features := d.NodeTypes()[0].Arrays["features"]
	if err := features.ReadRows(0, make([]byte, 4*n)); !errors.Is(err, unix.ENOSPC) ||
		!strings.Contains(err.Error(), "TMPDIR") {
		t.Fatalf("inflating: %v", err)
	}
}
