package store

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func mustNPZ(t *testing.T, path string) WholeGraph {
	t.Helper()
	d, err := OpenGraph(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func datasetEdges(t *testing.T, d WholeGraph) (src, dst []int64) {
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

// arraysOf are the features of a graph of one type.
func arraysOf(g Source, edge bool) []TensorInfo {
	if edge {
		return g.EdgeTypes()[0].Arrays
	}
	return g.NodeTypes()[0].Arrays
}

func rows(t *testing.T, d WholeGraph, edge bool, name string) []byte {
	t.Helper()
	list := arraysOf(d, edge)
	for _, info := range list {
		if info.Name != name {
			continue
		}
		b := make([]byte, info.Bytes())
		// In two reads, so that a start other than row 0 is seen.
		cut := info.Shape[0] / 3 * info.RowBytes()
		if err := d.ReadRows(edge, 0, name, 0, b[:cut]); err != nil {
			t.Fatal(err)
		}
		if err := d.ReadRows(edge, 0, name, info.Shape[0]/3, b[cut:]); err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Fatalf("no array %q among %v", name, list)
	return nil
}

// TestNumpyFiles reads one graph as numpy saved it in several ways.
func TestNumpyFiles(t *testing.T) {
	ref := mustNPZ(t, "testdata/npz/stored.npz")
	src, dst := datasetEdges(t, ref)
	if ref.NumNodes() != 6 || ref.NumEdges() != 9 || len(src) != 9 {
		t.Fatalf("%d nodes, %d edges", ref.NumNodes(), ref.NumEdges())
	}
	if got := fmt.Sprint(arraysOf(ref, false)); got != "[{features float32 [6 3]} {labels int64 [6]} {train_mask bool [6]}]" {
		t.Errorf("node arrays %s", got)
	}
	if got := fmt.Sprint(arraysOf(ref, true)); got != "[{edge_weight float64 [9]}]" {
		t.Errorf("edge arrays %s", got)
	}
	if got := rows(t, ref, false, "labels"); got[8] != 1 || got[40] != 5 {
		t.Errorf("labels % x", got)
	}
	for _, name := range []string{"deflated", "fortran", "bare"} {
		d := mustNPZ(t, "testdata/npz/"+name+".npz")
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
	b := rows(t, mustNPZ(t, "testdata/npz/fortran.npz"), false, "t")
	for i := range 24 {
		if v := binary.LittleEndian.Uint64(b[8*i:]); v != uint64(i) {
			t.Fatalf("element %d of a Fortran array in row-major order is %d", i, v)
		}
	}
}

func TestNpyVersions(t *testing.T) {
	for v := 1; v <= 3; v++ {
		b, err := os.ReadFile(fmt.Sprintf("testdata/npz/v%d.npy", v))
		if err != nil {
			t.Fatal(err)
		}
		h, err := parseNpy("v.npy", b, int64(len(b)))
		if err != nil || h.dtype != Float32 || !slices.Equal(h.shape, []int64{6, 3}) {
			t.Errorf("version %d: %+v, %v", v, h, err)
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
		_, err := OpenGraph("testdata/npz/" + name + ".npz")
		var fe *FormatError
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
	d := mustNPZ(t, "testdata/npz/badid.npz")
	err := d.EdgesBatch(func(int64, []int64, []int64) error { return nil })
	var fe *FormatError
	if !errors.As(err, &fe) || !strings.Contains(err.Error(), "6 nodes") {
		t.Errorf("badid: %v", err)
	}
	if _, err := OpenGraph("testdata/npz/nowhere.npz"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// npy makes a .npy file of any header and data.
func npy(header string, data []byte) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(b[8:], uint16(len(header)))
	return append(append(b, header...), data...)
}

func npyOf(descr, shape string, data []byte) []byte {
	return npy(fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape), data)
}

func zipOf(t testing.TB, method uint16, members map[string][]byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for name, b := range members {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: method})
		if err == nil {
			_, err = f.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func inMemory(b []byte) *file {
	return &file{name: "memory", r: bytes.NewReader(b), size: int64(len(b))}
}

func TestHeaders(t *testing.T) {
	zero := make([]byte, 64)
	edges := npyOf("<i4", "(2, 2)", zero[:16])
	for _, c := range []struct {
		what    string
		members map[string][]byte
		want    string // "" where it is fine
	}{
		{"plain", map[string][]byte{"edge_index": edges, "num_nodes": npyOf("<i8", "()", []byte{9, 0, 0, 0, 0, 0, 0, 0})}, ""},
		{"reordered keys", map[string][]byte{"edge_index": npy("{\"shape\": (2,2L), 'fortran_order':False,'descr':\"|u1\"}", zero[:4])}, ""},
		{"float ids", map[string][]byte{"edge_index": npyOf("<f4", "(2, 2)", zero[:16])}, "whole numbers"},
		{"short", map[string][]byte{"edge_index": npyOf("<i4", "(2, 2)", zero[:15])}, "found 15 bytes"},
		{"overflow", map[string][]byte{"edge_index": npyOf("<i4", "(2, 4611686018427387904)", zero[:16])}, "found 16 bytes"},
		{"negative", map[string][]byte{"edge_index": npyOf("<i4", "(2, -2)", zero[:16])}, "for a dimension"},
		{"two nodes", map[string][]byte{"edge_index": edges, "x": npyOf("<f4", "(3, 1)", zero[:12]), "num_nodes": npyOf("<i8", "()", zero[:8])}, `"num_nodes" equal to the 3 rows`},
		{"absurd nodes", map[string][]byte{"edge_index": edges, "num_nodes": npyOf("<i8", "()", []byte{0, 0, 0, 0, 0, 1, 0, 0})}, "at most"},
		{"absurd empty rows", map[string][]byte{"edge_index": edges, "x": npyOf("<f4", "(1099511627776, 0)", nil)}, "at most"},
		{"original ids", map[string][]byte{"edge_index": edges, "orig_id": npyOf("<i8", "(1,)", zero[:8])}, "orig_id"},
		{"twice", map[string][]byte{"edge_index": edges, "x": npyOf("<f4", "(3,)", zero[:12]), "features": npyOf("<f4", "(3,)", zero[:12])}, "found two"},
		{"structured", map[string][]byte{"edge_index": edges, "s": npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", zero[:4])}, "structured"},
	} {
		for _, method := range []uint16{zip.Store, zip.Deflate} {
			d, err := openNpzGraph(inMemory(zipOf(t, method, c.members)))
			if c.want == "" {
				if err != nil {
					t.Errorf("%s: %v", c.what, err)
				} else {
					datasetEdges(t, d)
				}
				continue
			}
			var fe *FormatError
			if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want a FormatError with %q", c.what, err, c.want)
			}
		}
	}
}

// TestLargeMember reads a deflated member that does not fit memory's share, and a broken one.
func TestLargeMember(t *testing.T) {
	n := smallMember
	b := zipOf(t, zip.Deflate, map[string][]byte{
		"edge_index": npyOf("<i4", "(2, 1)", make([]byte, 8)),
		"x":          npyOf("<i4", fmt.Sprintf("(%d,)", n), bytes.Repeat([]byte{1, 2, 3, 4}, n)),
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
	if d, err := OpenGraph(path); err == nil {
		defer d.Close()
		err = d.ReadRows(false, 0, "features", 0, make([]byte, 4*n))
		var fe *FormatError
		if !errors.As(err, &fe) {
			t.Errorf("a broken member: %v", err)
		}
	}
}

// TestOrderOfTypes reads types in the order of the file, a node type where an array or an end
// of a relation names it first.
func TestOrderOfTypes(t *testing.T) {
	edges, one := npyOf("<i4", "(2, 1)", make([]byte, 8)), npyOf("<i8", "()", []byte{1, 0, 0, 0, 0, 0, 0, 0})
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, m := range []struct {
		name string
		data []byte
	}{
		{"paper/num_nodes", one}, {"venue:has:paper/w", npyOf("<i4", "(1,)", make([]byte, 4))}, {"author/num_nodes", one},
		{"paper:in:venue/edge_index", edges}, {"author:writes:paper/edge_index", edges}, {"venue:has:paper/edge_index", edges},
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
	g, err := openNpzGraph(inMemory(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, of := range append(g.NodeTypes(), g.EdgeTypes()...) {
		names = append(names, of.Name)
	}
	want := []string{"paper", "venue", "author", "venue:has:paper", "paper:in:venue", "author:writes:paper"}
	if !slices.Equal(names, want) {
		t.Errorf("types %q, want %q", names, want)
	}
}
