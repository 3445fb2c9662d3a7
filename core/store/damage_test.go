package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sar/core/graph"
)

// readGraph runs everything a partition's graph file is read for.
func readGraph(b []byte, book *graph.Book, part int) error {
	g, err := openPartGraph(inMemory(b), book, part)
	if err != nil {
		return err
	}
	return readPartGraph(g)
}

func readPartGraph(g *partGraph) error {
	if err := g.checkNodes(make([]int64, g.nodes)); err != nil {
		return err
	}
	return g.batches(func(graph.EdgeBatch) error { return nil })
}

func readTensors(b []byte) error {
	list, err := parseTensors(inMemory(b))
	for _, a := range list {
		if err == nil {
			err = a.read(make([]byte, a.bytes()))
		}
	}
	return err
}

func readNPZ(b []byte) error {
	d, err := openNpzGraph(inMemory(b))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.EdgesBatch(func(int64, []int64, []int64) error { return nil }); err != nil {
		return err
	}
	for edge, types := range map[bool][]TypeRows{false: d.NodeTypes(), true: d.EdgeTypes()} {
		for kind, of := range types {
			for _, a := range of.Arrays {
				if err := d.ReadRows(edge, kind, a.Name, 0, make([]byte, a.Bytes())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func readDescription(b []byte) error {
	_, err := parsePartConfig("g.json", b, 0)
	return err
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func bookOf(t testing.TB, path string) *graph.Book {
	t.Helper()
	cfg, err := parsePartConfig(path, mustRead(t, path), 0)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.book
}

type sample struct {
	path string
	read func([]byte) error
}

// samples are real files of every kind, with what reads them.
func samples(t testing.TB) []sample {
	graphOf := func(dir string) sample {
		book := bookOf(t, filepath.Join(dir, filepath.Base(dir)+".json"))
		return sample{dir + "/part0/graph.dgl", func(b []byte) error { return readGraph(b, book, 0) }}
	}
	return []sample{
		graphOf("testdata/dgl-1.1.3/metis"),
		graphOf("testdata/dgl-1.1.3/csr"),
		graphOf("testdata/dgl-2.1.0/csc"),
		{"testdata/dgl-1.1.3/metis/part0/node_feat.dgl", readTensors},
		{"testdata/dgl-2.1.0/hetero/part0/edge_feat.dgl", readTensors},
		{"testdata/dgl-1.1.3/hetero/hetero.json", readDescription},
		{"testdata/npz/stored.npz", readNPZ},
		{"testdata/npz/deflated.npz", readNPZ},
	}
}

// TestTruncated cuts real files at every byte: always a FormatError.
func TestTruncated(t *testing.T) {
	for _, s := range samples(t) {
		b := mustRead(t, s.path)
		if err := s.read(b); err != nil {
			t.Fatalf("%s: %v", s.path, err)
		}
		for n := range b {
			err := s.read(b[:n])
			var fe *FormatError
			if !errors.As(err, &fe) {
				t.Fatalf("%s cut at %d of %d bytes: %v", s.path, n, len(b), err)
			}
		}
	}
}

// TestFlipped changes single bytes: never a panic, and nothing but FormatErrors.
func TestFlipped(t *testing.T) {
	for _, s := range samples(t) {
		b := mustRead(t, s.path)
		noticed := 0
		step := 1
		if testing.Short() {
			step = 7
		}
		for i := 0; i < len(b); i += step {
			flip := []byte{0xff, 0x01, 0x80}[i%3]
			b[i] ^= flip
			err := s.read(b)
			b[i] ^= flip
			var fe *FormatError
			if err != nil && !errors.As(err, &fe) {
				t.Fatalf("%s, byte %d xor %#x: %v", s.path, i, flip, err)
			}
			if err != nil {
				noticed++
			}
		}
		if noticed < 50/step {
			t.Errorf("%s: only %d changes were noticed", s.path, noticed)
		}
	}
}

// TestDamaged holds messages of typical damage.
func TestDamaged(t *testing.T) {
	graphPath, feats := "testdata/dgl-1.1.3/metis/part0/graph.dgl", "testdata/dgl-1.1.3/metis/part0/node_feat.dgl"
	book := bookOf(t, "testdata/dgl-1.1.3/metis/metis.json")
	asGraph := func(b []byte) error { return readGraph(b, book, 0) }
	g, err := parseGraphs(inMemory(mustRead(t, graphPath)))
	if err != nil {
		t.Fatal(err)
	}
	row, col := g.relations[0].row.off, g.relations[0].col.off
	list, err := parseTensors(inMemory(mustRead(t, feats)))
	if err != nil {
		t.Fatal(err)
	}
	shape := list[0].off - 8 - 8*int64(len(list[0].shape))
	for _, c := range []struct {
		what, path string
		read       func([]byte) error
		off        int64
		value      uint64
		want       []string
	}{
		{"magic of a graph", graphPath, asGraph, 0, 77, []string{"at byte 0", "magic number 0xdd2e4ff046b4a13f", "found 0x"}},
		{"magic of features", feats, readTensors, 0, 77, []string{"at byte 0", "file of tensors"}},
		{"version", graphPath, asGraph, 8, 1, []string{"version 2", "found 1"}},
		{"number of tensors", feats, readTensors, 16, 1 << 60, []string{"at byte 16", "fits the"}},
		{"shape that overflows", feats, readTensors, shape, 1 << 62, []string{fmt.Sprintf("at byte %d", shape), "fits the"}},
		{"negative shape", feats, readTensors, shape, 1 << 63, []string{"fits the"}},
		{"shape beyond the file", feats, readTensors, shape, 1 << 20, []string{"fits the"}},
		{"size that is not the shape's", feats, readTensors, list[0].off - 8, 1, []string{"found 1 bytes"}},
		{"source that is no node", graphPath, asGraph, row, 1 << 40, []string{"an edge between nodes 0 to"}},
		{"destination out of the inner nodes", graphPath, asGraph, col, 19, []string{"inner edge to end in"}},
		{"id of another partition", graphPath, asGraph, g.ndata[0][0].off, 15, []string{"as the JSON has it"}},
	} {
		b := mustRead(t, c.path)
		if c.what == "id of another partition" {
			for _, a := range g.ndata[0] {
				if a.name == "_ID" {
					c.off = a.off
				}
			}
		}
		binary.LittleEndian.PutUint64(b[c.off:], c.value)
		err := c.read(b)
		var fe *FormatError
		if !errors.As(err, &fe) {
			t.Errorf("%s: %v is no FormatError", c.what, err)
			continue
		}
		for _, w := range append(c.want, "memory") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", c.what, err, w)
			}
		}
	}
}

func TestPartitionJSON(t *testing.T) {
	raw := mustRead(t, "testdata/dgl-1.1.3/metis/metis.json")
	change := func(edit func(m map[string]any)) []byte {
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		edit(m)
		b, _ := json.Marshal(m)
		return b
	}
	set := func(key string, v any) []byte { return change(func(m map[string]any) { m[key] = v }) }
	drop := func(key string) []byte { return change(func(m map[string]any) { delete(m, key) }) }
	for _, c := range []struct {
		what string
		json []byte
		want string // "" where it is fine
	}{
		{"as DGL has it", raw, ""},
		{"old ranges", change(func(m map[string]any) {
			m["node_map"], m["edge_map"] = []int{10, 21}, []int{34, 70}
			delete(m, "ntypes")
			delete(m, "etypes")
		}), ""},
		{"old ranges by type", set("node_map", map[string]any{"_N": []int{10, 21}}), ""},
		{"no JSON", []byte("hello"), "expected a JSON object"},
		{"a list", []byte("[]"), "expected a JSON object, found a array"},
		{"no num_parts", drop("num_parts"), `the key "num_parts"`},
		{"no node_map", drop("node_map"), `the key "node_map"`},
		{"no graph_name", drop("graph_name"), `the key "graph_name"`},
		{"no partition", drop("part-0"), `the key "part-0"`},
		{"no parts", set("num_parts", 0), `"num_parts" to be at least 1, found 0`},
		{"other number of parts", set("num_parts", 3), `3 ranges of type "_N" in "node_map"`},
		{"text for a number", set("num_nodes", "x"), `"num_nodes"`},
		{"a file for ranges", set("node_map", "node_map.npy"), "reshuffle"},
		{"a gap", set("node_map", map[string]any{"_N": [][]int{{0, 10}, {11, 21}}}), "to begin at 10"},
		{"too few ids", set("num_nodes", 22), "cover all 22 ids"},
		{"backwards", set("node_map", map[string]any{"_N": [][]int{{0, 10}, {10, 3}}}), "found [10, 3]"},
		{"unknown type", set("node_map", map[string]any{"_N": [][]int{{0, 10}, {10, 21}}, "x": [][]int{}}), `found "x"`},
		{"numbers of types", set("ntypes", map[string]int{"_N": 1}), `number 1 for "_N"`},
		{"name of a relation", set("etypes", map[string]int{"_E": 0}), "source:relation:destination"},
		{"types of a relation", set("etypes", map[string]int{"a:b:c": 0}), `found "a"`},
		{"no path", set("part-0", map[string]any{"part_graph": "x"}), `"node_feats" in "part-0"`},
	} {
		_, err := parsePartConfig("g.json", c.json, 0)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		var fe *FormatError
		if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "g.json") {
			t.Errorf("%s: %v, want a FormatError with %q", c.what, err, c.want)
		}
	}
	if _, err := OpenPartition("testdata/nowhere.json", 0, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "g.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPartition(path, 0, Options{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "graph.dgl") || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing graph: %v", err)
	}
}
