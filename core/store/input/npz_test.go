package input

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// TestNPZSums changes what a zip says of a member's CRC-32, or the member.
func TestNPZSums(t *testing.T) {
	// larger than what is checked when the file is opened
	x := storetest.Array("<i4", "(100000,)", bytes.Repeat([]byte{1, 2, 3, 4}, 100_000))
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, 1)
	if _, err := w.Write(x); err != nil {
		t.Fatal(err)
	}
	w.Close()
	// to package zip, 0 is no sum at all
	for _, sum := range []uint32{crc32.ChecksumIEEE(x), crc32.ChecksumIEEE(x) ^ 1<<31, 0} {
		for method, content := range map[uint16][]byte{zip.Store: x, zip.Deflate: packed.Bytes()} {
			var b bytes.Buffer
			z := zip.NewWriter(&b)
			edges, err := z.Create("edge_index.npy")
			if err == nil {
				_, err = edges.Write(storetest.Array("<i4", "(2, 1)", make([]byte, 8)))
			}
			if err != nil {
				t.Fatal(err)
			}
			head := &zip.FileHeader{Name: "x.npy", Method: method, CRC32: sum, CompressedSize64: uint64(len(content)),
				UncompressedSize64: uint64(len(x))}
			m, err := z.CreateRaw(head)
			if err == nil {
				_, err = m.Write(content)
			}
			if err := errors.Join(err, z.Close()); err != nil {
				t.Fatal(err)
			}
			d, err := OpenNPZ(disk.InMemory("memory", b.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			features := d.NodeTypes()[0].Arrays["features"]
			err = features.ReadRows(0, make([]byte, 4))
			d.Close()
			var damage *disk.FormatError
			if right := sum == crc32.ChecksumIEEE(x); right != (err == nil) ||
				(!right && (!errors.As(err, &damage) || !strings.Contains(err.Error(),
					"(x.npy) at bytes 0 to 400072: expected an array with the CRC-32"))) {
				t.Errorf("method %d, sum %08x: %v", method, sum, err)
			}
		}
	}
}

func readNPZ(b []byte) error {
	d, err := OpenNPZ(disk.InMemory("memory", b))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.EdgesBatch(func(int64, []int64, []int64) error { return nil }); err != nil {
		return err
	}
	for _, of := range slices.Concat(d.NodeTypes(), d.EdgeTypes()) {
		for _, a := range of.Arrays {
			if err := a.ReadRows(0, make([]byte, a.Bytes())); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestChangedNPZ(t *testing.T) {
	for _, path := range []string{"../testdata/npz/stored.npz", "../testdata/npz/deflated.npz"} {
		storetest.Cut(t, path, readNPZ)
		storetest.Flip(t, path, readNPZ)
	}
}

func FuzzNPZ(f *testing.F) {
	storetest.Seeds(f, "../testdata/npz/*.npz")
	f.Fuzz(func(t *testing.T, data []byte) { storetest.Bounded(t, data, 8*1032, readNPZ) })
}

// FuzzMembers puts arrays into a zip with right checksums: what FuzzNPZ changes
// is nearly always refused for a wrong one.
func FuzzMembers(f *testing.F) {
	ids := make([]byte, 16)
	ids[0], ids[12] = 1, 2
	f.Add(storetest.Array("<i4", "(2, 2)", ids), storetest.Array("<f4", "(3, 2)", make([]byte, 24)),
		storetest.Array("<i8", "()", []byte{3, 0, 0, 0, 0, 0, 0, 0}), false)
	f.Add(storetest.Array("<i4", "(2, 2)", ids), storetest.Array("|b1", "(3,)", make([]byte, 3)),
		storetest.Array("<f8", "(2, 1)", ids), true)
	f.Add(storetest.Array("<u8", "(2, 1)", ids), storetest.Array("<f2", "(0, 3)", nil),
		storetest.Array("<i2", "(1,)", []byte{9, 0}), false)
	f.Fuzz(func(t *testing.T, edges, x, third []byte, deflated bool) {
		method := zip.Store
		if deflated {
			method = zip.Deflate
		}
		for _, names := range [][3]string{{"edge_index", "x", "num_nodes"}, {"a:b:c/edge_index", "a/x", "a:b:c/w"}} {
			b := storetest.Zip(t, method, map[string][]byte{names[0]: edges, names[1]: x, names[2]: third})
			storetest.Bounded(t, b, 8*1032, readNPZ)
		}
	})
}

func mustNPZ(t *testing.T, path string) Graph {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func datasetEdges(t *testing.T, d Graph) (src, dst []int64) {
	t.Helper()
	err := d.EdgesBatch(func(first int64, s, t []int64) error {
		if first != int64(len(src)) {
			return fmt.Errorf("edge %d comes as number %d", first, len(src))
		}
		src, dst = append(src, s...), append(dst, t...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return src, dst
}

// only is the only node type, or relation, of a graph.
func only(g Source, edge bool) *Table {
	if edge {
		return &g.EdgeTypes()[0]
	}
	return &g.NodeTypes()[0]
}

// arraysOf are the features of a graph of one type.
func arraysOf(g Source, edge bool) []disk.TensorInfo { return only(g, edge).Features() }

func rows(t *testing.T, d Graph, edge bool, name string) []byte {
	t.Helper()
	list := arraysOf(d, edge)
	for _, info := range list {
		if info.Name != name {
			continue
		}
		b := make([]byte, info.Bytes())
		// In two reads, so that a start other than row 0 is seen.
		cut := info.Shape[0] / 3 * info.RowBytes()
		a := only(d, edge).Arrays[name]
		if err := a.ReadRows(0, b[:cut]); err != nil {
			t.Fatal(err)
		}
		if err := a.ReadRows(info.Shape[0]/3, b[cut:]); err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Fatalf("no array %q among %v", name, list)
	return nil
}

// TestNumpyFiles reads one graph as numpy saved it in several ways.
func TestNumpyFiles(t *testing.T) {
	ref := mustNPZ(t, "../testdata/npz/stored.npz")
	src, dst := datasetEdges(t, ref)
	if ref.NumNodes() != 6 || ref.NumEdges() != 9 || len(src) != 9 {
		t.Fatalf("%d nodes, %d edges", ref.NumNodes(), ref.NumEdges())
	}
	if got := fmt.Sprint(arraysOf(ref, false)); got != "[{features float32 [6 3]} {labels int64 [6]} {train_mask "+
		"bool [6]}]" {
		t.Errorf("node arrays %s", got)
	}
	if got := fmt.Sprint(arraysOf(ref, true)); got != "[{edge_weight float64 [9]}]" {
		t.Errorf("edge arrays %s", got)
	}
	if got := rows(t, ref, false, "labels"); got[8] != 1 || got[40] != 5 {
		t.Errorf("labels % x", got)
	}
	for _, name := range []string{"deflated", "fortran", "bare"} {
		d := mustNPZ(t, "../testdata/npz/"+name+".npz")
		s, e := datasetEdges(t, d)
		if !slices.Equal(s, src) || !slices.Equal(e, dst) {
			t.Errorf("%s: edges %v -> %v, want %v -> %v", name, s, e, src, dst)
		}
		if name == "bare" {
			if d.NumNodes() != slices.Max(append(s, e...))+1 || len(arraysOf(d, false)) != 0 {
				t.Errorf("bare: %d nodes, %v", d.NumNodes(), arraysOf(d, false))
			}
			continue
		}
		if !bytes.Equal(rows(t, d, false, "features"), rows(t, ref, false, "features")) {
			t.Errorf("%s: features differ", name)
		}
	}
	// arange(24) as [6, 2, 2], stored with the first dimension fastest.
	b := rows(t, mustNPZ(t, "../testdata/npz/fortran.npz"), false, "t")
	for i := range 24 {
		if v := binary.LittleEndian.Uint64(b[8*i:]); v != uint64(i) {
			t.Fatalf("element %d of a Fortran array in row-major order is %d", i, v)
		}
	}
}

// TestRefusedNPZ holds the messages: each names what was expected and found.
func TestRefusedNPZ(t *testing.T) {
	for name, want := range map[string][]string{
		"bigendian":  {"x.npy", "little-endian", "big-endian", "newbyteorder"},
		"object":     {"meta.npy", "pickled Python objects", "never loaded"},
		"string":     {"names.npy", "strings"},
		"transposed": {"edge_index", "[2, edges]", "transpose"},
		"rows":       {`6 rows of "y"`, "found 7"},
		"noedges":    {`"edge_index"`},
	} {
		_, err := Open("../testdata/npz/" + name + ".npz")
		var fe *disk.FormatError
		if !errors.As(err, &fe) {
			t.Errorf("%s: %v is no FormatError", name, err)
			continue
		}
		for _, w := range append(want, name+".npz") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", name, err, w)
			}
		}
	}
	d := mustNPZ(t, "../testdata/npz/badid.npz")
	err := d.EdgesBatch(func(int64, []int64, []int64) error { return nil })
	var fe *disk.FormatError
	if !errors.As(err, &fe) || !strings.Contains(err.Error(), "6 nodes") {
		t.Errorf("badid: %v", err)
	}
	if _, err := Open("../testdata/npz/nowhere.npz"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestHeaders(t *testing.T) {
	zero := make([]byte, 64)
	edges := storetest.Array("<i4", "(2, 2)", zero[:16])
	for _, c := range []struct {
		what    string
		members map[string][]byte
		want    string // "" where it is fine
	}{
		{"plain", map[string][]byte{"edge_index": edges,
			"num_nodes": storetest.Array("<i8", "()", []byte{9, 0, 0, 0, 0, 0, 0, 0})}, ""},
		{"reordered keys", map[string][]byte{"edge_index": storetest.NPY("{\"shape\": (2,2L), "+
			"'fortran_order':False,'descr':\"|u1\"}", zero[:4])}, ""},
		{"float ids", map[string][]byte{"edge_index": storetest.Array("<f4", "(2, 2)", zero[:16])}, "whole numbers"},
		{"short", map[string][]byte{"edge_index": storetest.Array("<i4", "(2, 2)", zero[:15])}, "found 15 bytes"},
		{"overflow", map[string][]byte{"edge_index": storetest.Array("<i4", "(2, 4611686018427387904)", zero[:16])},
			"found 16 bytes"},
		{"negative", map[string][]byte{"edge_index": storetest.Array("<i4", "(2, -2)", zero[:16])}, "for a dimension"},
		{"two nodes", map[string][]byte{"edge_index": edges, "x": storetest.Array("<f4", "(3, 1)", zero[:12]),
			"num_nodes": storetest.Array("<i8", "()", zero[:8])}, `"num_nodes" equal to the 3 rows`},
		{"absurd nodes", map[string][]byte{"edge_index": edges,
			"num_nodes": storetest.Array("<i8", "()", []byte{0, 0, 0, 0, 0, 1, 0, 0})}, "at most"},
		{"absurd empty rows", map[string][]byte{"edge_index": edges, "x": storetest.Array("<f4", "(1099511627776, 0)", nil)},
			"at most"},
		{"original ids", map[string][]byte{"edge_index": edges, "orig_id": storetest.Array("<i8", "(1,)", zero[:8])},
			"orig_id"},
		{"twice", map[string][]byte{"edge_index": edges, "x": storetest.Array("<f4", "(3,)", zero[:12]),
			"features": storetest.Array("<f4", "(3,)", zero[:12])}, "found two"},
		{"structured", map[string][]byte{"edge_index": edges,
			"s": storetest.NPY("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", zero[:4])}, "structured"},
	} {
		for _, method := range []uint16{zip.Store, zip.Deflate} {
			d, err := OpenNPZ(disk.InMemory("memory", storetest.Zip(t, method, c.members)))
			if c.want == "" {
				if err != nil {
					t.Errorf("%s: %v", c.what, err)
				} else {
					datasetEdges(t, d)
				}
				continue
			}
			var fe *disk.FormatError
			if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want a FormatError with %q", c.what, err, c.want)
			}
		}
	}
}

// TestLargeMember reads a deflated member that does not fit memory's share, and a broken one.
func TestLargeMember(t *testing.T) {
	n := 1 << 16
	b := storetest.Zip(t, zip.Deflate, map[string][]byte{
		"edge_index": storetest.Array("<i4", "(2, 1)", make([]byte, 8)),
		"x":          storetest.Array("<i4", fmt.Sprintf("(%d,)", n), bytes.Repeat([]byte{1, 2, 3, 4}, n)),
	})
	path := filepath.Join(t.TempDir(), "g.npz")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	d := mustNPZ(t, path)
	if got := rows(t, d, false, "features"); !bytes.Equal(got, bytes.Repeat([]byte{1, 2, 3, 4}, n)) {
		t.Error("the inflated array differs")
	}
	b[bytes.Index(b, []byte("x.npy"))+150] ^= 0x55
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := Open(path); err == nil {
		defer d.Close()
		features := d.NodeTypes()[0].Arrays["features"]
		err = features.ReadRows(0, make([]byte, 4*n))
		var fe *disk.FormatError
		if !errors.As(err, &fe) {
			t.Errorf("a broken member: %v", err)
		}
	}
}

// TestOrderOfTypes reads types in the order of the file, a node type where an array or an end
// of a relation names it first.
func TestOrderOfTypes(t *testing.T) {
	edges, one := storetest.Array("<i4", "(2, 1)", make([]byte, 8)),
		storetest.Array("<i8", "()", []byte{1, 0, 0, 0, 0, 0, 0, 0})
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, m := range []struct {
		name string
		data []byte
	}{
		{"paper/num_nodes", one}, {"venue:has:paper/w", storetest.Array("<i4", "(1,)", make([]byte, 4))},
		{"author/num_nodes", one},
		{"paper:in:venue/edge_index", edges}, {"author:writes:paper/edge_index", edges},
		{"venue:has:paper/edge_index", edges},
	} {
		w, err := z.Create(m.name + ".npy")
		if err == nil {
			_, err = w.Write(m.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := OpenNPZ(disk.InMemory("memory", b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, of := range slices.Concat(g.NodeTypes(), g.EdgeTypes()) {
		names = append(names, of.Name)
	}
	want := []string{"paper", "venue", "author", "venue:has:paper", "paper:in:venue", "author:writes:paper"}
	if !slices.Equal(names, want) {
		t.Errorf("types %q, want %q", names, want)
	}
}
