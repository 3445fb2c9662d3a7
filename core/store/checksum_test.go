package store

import (
	"encoding/json"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// writeRandom writes a random graph in parts and returns the description.
func writeRandom(t testing.TB, nodes, edges, parts int) string {
	t.Helper()
	r := rand.New(rand.NewSource(12))
	assign := make([]int32, nodes)
	for i := range assign {
		assign[i] = int32(r.Intn(parts))
	}
	dir := t.TempDir()
	if err := writeSingle(randomGraph(r, nodes, edges),
		Partitioning{Assignment: assign, Parts: parts, Dir: dir, Name: "g", Method: "random"}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "g.json")
}

// TestDamagedBlocks damages arrays of several blocks: readers refuse what is
// damaged, by its place, and read the rest; Verify lists every place.
func TestDamagedBlocks(t *testing.T) {
	path := writeRandom(t, 200_000, 10, 1)
	feats := filepath.Join(filepath.Dir(path), "part0", "node_feat.dgl")
	p := mustOpen(t, path, 0)
	labels := p.files.Features(false)["_N/labels"]
	block := int64(disk.Batch * 8)
	for _, at := range []int64{2*block + 77, 3 * block, 6*block + 5} {
		storetest.Change(t, feats, labels.Offset+at, 0x55)
	}
	half := p.files.Features(false)["_N/half"]
	storetest.Change(t, feats, half.Offset+half.Bytes()-1, 0x56)
	reports, err := Verify(path, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	type place struct {
		file      string
		from, end int64
	}
	var found []place
	for _, r := range reports {
		if !r.Summed || r.Bytes == 0 {
			t.Errorf("%+v", r)
		}
		for _, e := range r.Damage {
			var damage *disk.FormatError
			if !errors.As(e, &damage) || damage.File != r.File {
				t.Fatalf("%s: %v", r.File, e)
			}
			found = append(found, place{filepath.Base(r.File), damage.Offset, damage.End})
		}
	}
	lastHalf := half.Offset + (half.Bytes()-1)/(2*disk.Batch)*(2*disk.Batch)
	want := []place{
		{"node_feat.dgl", lastHalf, half.Offset + half.Bytes()},
		{"node_feat.dgl", labels.Offset + 2*block, labels.Offset + 4*block},
		{"node_feat.dgl", labels.Offset + 6*block, labels.Offset + labels.Bytes()},
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}

	p = mustOpen(t, path, 0) // headers are whole
	readAll(t, p, false, "_N/features")
	err = p.Read(false, "_N/labels", make([]byte, labels.Bytes()), labels.DType, labels.Shape)
	if err == nil || !strings.Contains(err.Error(), `feature "_N/labels"`) ||
		!strings.Contains(err.Error(), feats+" at bytes ") {
		t.Errorf("labels: %v", err)
	}
}

// TestWithoutChecksums loads what older versions and DGL wrote, and what was edited.
func TestWithoutChecksums(t *testing.T) {
	path := writeRandom(t, 60, 300, 2)
	want, err := loadPartition(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	raw := storetest.MustRead(t, path)
	edit := func(change func(top map[string]any)) {
		t.Helper()
		var top map[string]any
		if err := json.Unmarshal(raw, &top); err != nil {
			t.Fatal(err)
		}
		change(top)
		b, _ := json.Marshal(top)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same := func(what string) {
		t.Helper()
		if got, err := loadPartition(path, 1); err != nil || got != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	edit(func(map[string]any) {})
	same("other spaces and another order of keys")
	edit(func(top map[string]any) { top["part_method"] = "metis" })
	if _, err := loadPartition(path, 1); err == nil ||
		!strings.Contains(err.Error(), `if it was edited on purpose, remove the key "checksum"`) {
		t.Errorf("an edited description: %v", err)
	}
	edit(func(top map[string]any) { top["num_parts"] = 1 })
	var damage *disk.FormatError
	if _, err := loadPartition(path, 1); !errors.As(err, &damage) {
		t.Errorf("a damaged number of parts: %v", err)
	}
	edit(func(top map[string]any) { top["part_method"] = "metis"; delete(top, "checksum") })
	same("without the description's own checksum")
	sums := filepath.Join(filepath.Dir(path), "part1", "checksums.crc")
	if err := os.Rename(sums, sums+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := loadPartition(path, 1); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), sums) {
		t.Errorf("without the file of checksums: %v", err)
	}
	edit(func(top map[string]any) {
		delete(top, "checksum")
		delete(top["part-1"].(map[string]any), "checksums")
	})
	same("without checksums")
	reports, err := Verify(path, 1, 0)
	if err != nil || len(reports) != 4 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	for _, r := range reports {
		if r.Summed || len(r.Damage) != 0 {
			t.Errorf("without checksums: %+v", r)
		}
	}
}
