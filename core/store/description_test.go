package store

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sar/core/store/disk"
	"sar/core/store/storetest"
)

func readDescription(b []byte) error {
	_, err := parseDescription("g.json", b, 0)
	return err
}

func TestChangedDescription(t *testing.T) {
	storetest.Cut(t, "testdata/dgl-1.1.3/hetero/hetero.json", readDescription)
	storetest.Flip(t, "testdata/dgl-1.1.3/hetero/hetero.json", readDescription)
}

func TestPartitionJSON(t *testing.T) {
	raw := storetest.MustRead(t, "testdata/dgl-1.1.3/metis/metis.json")
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
		_, err := parseDescription("g.json", c.json, 0)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		var fe *disk.FormatError
		if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "g.json") {
			t.Errorf("%s: %v, want a FormatError with %q", c.what, err, c.want)
		}
	}
	if _, err := OpenPartition("testdata/nowhere.json", 0, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "g.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPartition(path, 0, 0); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "graph.dgl") || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing graph: %v", err)
	}
}

func FuzzPartitionJSON(f *testing.F) {
	storetest.Seeds(f, "testdata/dgl-*/*/*.json")
	f.Fuzz(func(t *testing.T, data []byte) { storetest.Bounded(t, data, 1024, readDescription) })
}
