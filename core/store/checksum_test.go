package store

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	if err := writeSingle(randomGraph(r, nodes, edges), Partitioning{Assignment: assign, Parts: parts, Dir: dir, Name: "g", Method: "random"}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "g.json")
}

// change edits bytes of a file in place.
func change(t testing.TB, path string, off int64, b ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedBlocks damages arrays of several blocks: readers refuse what is
// damaged, by its place, and read the rest; Verify lists every place.
func TestDamagedBlocks(t *testing.T) {
	path := writeRandom(t, 200_000, 10, 1)
	feats := filepath.Join(filepath.Dir(path), "part0", nodeFile)
	p := mustOpen(t, path, 0)
	labels := p.nodeFeats["_N/labels"]
	block := int64(batch * 8)
	for _, at := range []int64{2*block + 77, 3 * block, 6*block + 5} {
		change(t, feats, labels.off+at, 0x55)
	}
	half := p.nodeFeats["_N/half"]
	change(t, feats, half.off+half.bytes()-1, 0x56)
	reports, err := Verify(path, 0, Options{})
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
			var damage *FormatError
			if !errors.As(e, &damage) || damage.File != r.File {
				t.Fatalf("%s: %v", r.File, e)
			}
			found = append(found, place{filepath.Base(r.File), damage.Offset, damage.End})
		}
	}
	lastHalf := half.off + (half.bytes()-1)/(2*batch)*(2*batch)
	want := []place{
		{nodeFile, lastHalf, half.off + half.bytes()},
		{nodeFile, labels.off + 2*block, labels.off + 4*block},
		{nodeFile, labels.off + 6*block, labels.off + labels.bytes()},
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}

	p = mustOpen(t, path, 0) // headers are whole
	readAll(t, p, false, "_N/features")
	err = p.ReadFeature(false, "_N/labels", make([]byte, labels.bytes()))
	if err == nil || !strings.Contains(err.Error(), `feature "_N/labels"`) || !strings.Contains(err.Error(), feats+" at bytes ") {
		t.Errorf("labels: %v", err)
	}
}

// TestCheckedReads reads ranges that fit no block, of a file with checksums and
// a damaged byte: what is read is right, and a read fails if and only if it
// touches the damaged block.
func TestCheckedReads(t *testing.T) {
	r := rand.New(rand.NewSource(13))
	data := make([]byte, 400_000)
	r.Read(data)
	whole := inMemory(data)
	sums, err := whole.sumUp([]array{
		{f: whole, what: "a", off: 1000, dtype: Uint8, n: 150_000},
		{f: whole, what: "b", off: 151_000, dtype: Int16, n: 100_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(sums) != 4 || sums[3].off+sums[3].size != int64(len(data)) {
		t.Fatalf("ranges %v", sums)
	}
	damaged := bytes.Clone(data)
	damaged[151_000+70_000] ^= 4 // in the second block of b
	from, end := int64(151_000+65_536), int64(151_000+2*65_536)
	f := inMemory(damaged)
	if err := f.attach(sums); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		off := r.Int63n(int64(len(data)))
		n := r.Int63n(min(200_000, int64(len(data))-off) + 1)
		b := make([]byte, n)
		err := f.readAt(b, off, "a range")
		var damage *FormatError
		if touched := n > 0 && off < end && off+n > from; touched != errors.As(err, &damage) || (!touched && !bytes.Equal(b, data[off:off+n])) {
			t.Fatalf("bytes %d to %d: %v", off, off+n, err)
		}
		if damage != nil && (damage.Offset != from || damage.End != end) {
			t.Fatalf("bytes %d to %d: %v", off, off+n, err)
		}
	}
}

// TestMappedReads holds the arrays of a matrix with edge ids, which are read
// through a map of the file, against checksums.
func TestMappedReads(t *testing.T) {
	const path = "testdata/dgl-1.1.3/csr/part0/graph.dgl"
	book := bookOf(t, "testdata/dgl-1.1.3/csr/csr.json")
	sums, err := sumsOf("the graph", path, graphArrays)
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for _, of := range sums {
		b := mustRead(t, path)
		b[of.off+of.size-1] ^= 1
		damaged := filepath.Join(t.TempDir(), "graph.dgl")
		if err := os.WriteFile(damaged, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := openFile("the graph", damaged)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		err = f.attach(sums)
		if err == nil {
			var g *partGraph
			if g, err = openPartGraph(f, book, 0); err != nil {
				t.Fatal(err)
			}
			err = readPartGraph(g)
			if err == nil {
				err = g.checkUnread()
			}
		}
		var damage *FormatError
		if !errors.As(err, &damage) || damage.Offset != of.off || damage.End != of.off+of.size {
			t.Errorf("%s changed: %v", of.what(), err)
		}
		noticed++
	}
	if noticed < 15 {
		t.Errorf("only %d ranges", noticed)
	}
}

// TestWithoutChecksums loads what older versions and DGL wrote, and what was edited.
func TestWithoutChecksums(t *testing.T) {
	path := writeRandom(t, 60, 300, 2)
	want, err := loadPartition(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	raw := mustRead(t, path)
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
	if _, err := loadPartition(path, 1); err == nil || !strings.Contains(err.Error(), `if it was edited on purpose, remove the key "checksum"`) {
		t.Errorf("an edited description: %v", err)
	}
	edit(func(top map[string]any) { top["num_parts"] = 1 })
	var damage *FormatError
	if _, err := loadPartition(path, 1); !errors.As(err, &damage) {
		t.Errorf("a damaged number of parts: %v", err)
	}
	edit(func(top map[string]any) { top["part_method"] = "metis"; delete(top, "checksum") })
	same("without the description's own checksum")
	sums := filepath.Join(filepath.Dir(path), "part1", checksumFile)
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
	reports, err := Verify(path, 1, Options{})
	if err != nil || len(reports) != 4 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	for _, r := range reports {
		if r.Summed || len(r.Damage) != 0 {
			t.Errorf("without checksums: %+v", r)
		}
	}
}

// TestSumsFile reads files of checksums that say what cannot be.
func TestSumsFile(t *testing.T) {
	const one = `{"array": "a", "bytes": 5, "block": 4, "sums": "0000000100000002"}`
	for _, c := range []struct{ what, ranges, want string }{
		{"as it should be", `{"bytes": 5, "ranges": [` + one + `]}`, ""},
		{"fewer bytes", `{"bytes": 6, "ranges": [` + one + `]}`, `of all 6 bytes of "node_feats", found of 5`},
		{"more bytes", `{"bytes": 4, "ranges": [` + one + `]}`, "inside its 4 bytes"},
		{"nothing", `{"bytes": 0, "ranges": []}`, "of all 0 bytes"},
		{"too few checksums", `{"bytes": 9, "ranges": [{"bytes": 9, "block": 4, "sums": "0000000100000002"}]}`, "3 checksums of range 0"},
		{"half a checksum", `{"bytes": 5, "ranges": [{"bytes": 5, "block": 4, "sums": "00000001000002"}]}`, "2 checksums of range 0"},
		{"no digits", `{"bytes": 4, "ranges": [{"bytes": 4, "block": 4, "sums": "0000000x"}]}`, "1 checksums of range 0"},
		{"blocks of nothing", `{"bytes": 4, "ranges": [{"bytes": 4, "block": 0, "sums": ""}]}`, "blocks of 1 to"},
		{"huge blocks", `{"bytes": 4, "ranges": [{"bytes": 4, "block": 4611686018427387904, "sums": "00000000"}]}`, "blocks of 1 to"},
		{"as many blocks as fit no number", `{"bytes": 4611686018427387904, "ranges": [{"bytes": 4611686018427387904, "block": 1, "sums": ""}]}`, "4611686018427387904 checksums"},
		{"negative", `{"bytes": 4, "ranges": [{"bytes": -4, "block": 4, "sums": ""}]}`, "inside its 4 bytes"},
	} {
		data, err := seal(map[string]any{"format": sumsFormat, "method": sumsMethod, "files": json.RawMessage(`{"node_feats": ` + c.ranges + `}`)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = parseSums("x.crc", data)
		var damage *FormatError
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &damage) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	for _, c := range []struct{ data, want string }{
		{`[]`, "a JSON object of checksums"},
		{`{"format": "other"}`, `the format "SAR checksums 1"`},
		{`{"format": "SAR checksums 1", "method": "crc32c", "files": {}}`, `the key "checksum", the checksum of this file`},
		{`{"format": "SAR checksums 1", "method": "crc32c", "files": {}, "checksum": 5}`, "contents with the checksum 5"},
	} {
		var damage *FormatError
		if _, err := parseSums("x.crc", []byte(c.data)); !errors.As(err, &damage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.data, err)
		}
	}
}

// TestNPZSums changes what a zip says of a member's CRC-32, or the member.
func TestNPZSums(t *testing.T) {
	x := npyOf("<i4", "(100000,)", bytes.Repeat([]byte{1, 2, 3, 4}, 100_000)) // larger than what is checked when the file is opened
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, 1)
	if _, err := w.Write(x); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for _, sum := range []uint32{crc32.ChecksumIEEE(x), crc32.ChecksumIEEE(x) ^ 1<<31, 0} { // to package zip, 0 is no sum at all
		for method, content := range map[uint16][]byte{zip.Store: x, zip.Deflate: packed.Bytes()} {
			var b bytes.Buffer
			z := zip.NewWriter(&b)
			edges, err := z.Create("edge_index.npy")
			if err == nil {
				_, err = edges.Write(npyOf("<i4", "(2, 1)", make([]byte, 8)))
			}
			if err != nil {
				t.Fatal(err)
			}
			head := &zip.FileHeader{Name: "x.npy", Method: method, CRC32: sum, CompressedSize64: uint64(len(content)), UncompressedSize64: uint64(len(x))}
			m, err := z.CreateRaw(head)
			if err == nil {
				_, err = m.Write(content)
			}
			if err := errors.Join(err, z.Close()); err != nil {
				t.Fatal(err)
			}
			d, err := openNpzGraph(inMemory(b.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			err = d.ReadRows(false, 0, "features", 0, make([]byte, 4))
			d.Close()
			var damage *FormatError
			if right := sum == crc32.ChecksumIEEE(x); right != (err == nil) || (!right && (!errors.As(err, &damage) || !strings.Contains(err.Error(), "(x.npy) at bytes 0 to 400072: expected an array with the CRC-32"))) {
				t.Errorf("method %d, sum %08x: %v", method, sum, err)
			}
		}
	}
}
