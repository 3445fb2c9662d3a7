package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// dirFiles are the files of a graph directory, by name.
type dirFiles map[string][]byte

func (d dirFiles) write(t testing.TB, dir string) string {
	t.Helper()
	for name, data := range d {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o775); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o664); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// with is a copy in which one file is another.
func (d dirFiles) with(name string, data []byte) dirFiles {
	out := dirFiles{}
	for k, v := range d {
		out[k] = v
	}
	out[name] = data
	return out
}

func int32Bytes(v ...int32) (b []byte) {
	for _, x := range v {
		b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
	}
	return b
}

// smallDir is a graph of two node types and two relations: users follow each other, also
// themselves and twice, and rate items, one of which nobody rates.
func smallDir() dirFiles {
	return dirFiles{
		GraphDescription: []byte(`{
			"format": "SAR graph 1", "name": "small", "made by": "a test",
			"node_types": {
				"user": {"count": 3, "ids": null, "features": {"x": {"file": "nodes/user/x.npy", "dtype": "float32", "shape": [3, 2]}}},
				"item": {"count": 2, "features": {}}
			},
			"edge_types": [
				{"type": ["user", "rates", "item"], "count": 2,
				 "indptr": {"file": "edges/r/indptr.npy"}, "source": {"file": "edges/r/source.npy", "dtype": "int64"},
				 "features": {"stars": {"file": "edges/r/stars.npy", "shape": [2]}}},
				{"type": ["user", "follows", "user"], "count": 4, "symmetric": false,
				 "indptr": {"file": "edges/f/indptr.npy", "dtype": "int64", "shape": [4]}, "source": {"file": "edges/f/source.npy"}}
			]}`),
		"nodes/user/x.npy":   npyOf("<f4", "(3, 2)", int32Bytes(1, 2, 3, 4, 5, 6)),
		"edges/r/indptr.npy": npyOf("<i8", "(3,)", bytesOf([]int64{0, 0, 2})),
		"edges/r/source.npy": npyOf("<i8", "(2,)", bytesOf([]int64{0, 2})),
		"edges/r/stars.npy":  npyOf("|u1", "(2,)", []byte{4, 5}),
		"edges/f/indptr.npy": npyOf("<i8", "(4,)", bytesOf([]int64{0, 1, 1, 4})),
		"edges/f/source.npy": npyOf("<i4", "(4,)", int32Bytes(0, 1, 1, 2)),
	}
}

// readSource reads all that partitioning reads.
func readSource(g Source) (edges [][2]int64, err error) {
	err = g.EdgesBatch(func(first int64, src, dst []int64) error {
		if first != int64(len(edges)) {
			return fmt.Errorf("edge %d after %d edges", first, len(edges))
		}
		for i := range src {
			edges = append(edges, [2]int64{src[i], dst[i]})
		}
		return nil
	})
	for edge, list := range map[bool][]TypeRows{false: g.NodeTypes(), true: g.EdgeTypes()} {
		for kind, of := range list {
			for _, a := range of.Arrays {
				if err == nil {
					err = g.ReadRows(edge, kind, a.Name, 0, make([]byte, a.Bytes()))
				}
			}
		}
	}
	return edges, err
}

func TestGraphDir(t *testing.T) {
	g, err := OpenGraph(smallDir().write(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	edges, err := readSource(g)
	if err != nil {
		t.Fatal(err)
	}
	// users 0 to 2, items 3 and 4
	if want := [][2]int64{{0, 4}, {2, 4}, {0, 0}, {1, 2}, {1, 2}, {2, 2}}; !slices.Equal(edges, want) {
		t.Errorf("edges %v, expected %v", edges, want)
	}
	kinds := fmt.Sprint(g.NodeTypes(), g.EdgeTypes())
	if want := "[{user 3 [{x float32 [3 2]}]} {item 2 []}] [{user:rates:item 2 [{stars uint8 [2]}]} {user:follows:user 4 []}]"; kinds != want {
		t.Errorf("%s, expected %s", kinds, want)
	}
	stars := make([]byte, 1)
	if err := g.ReadRows(true, 0, "stars", 1, stars); err != nil || stars[0] != 5 {
		t.Errorf("%v %v", stars, err)
	}
}

// A directory of one type is partitioned as the .npz file with its edges in the same order.
func TestGraphDirParts(t *testing.T) {
	only := smallDir().with(GraphDescription, []byte(`{"format": "SAR graph 1",
		"node_types": {"_N": {"count": 3, "features": {"features": {"file": "nodes/user/x.npy"}}}},
		"edge_types": [{"type": ["_N", "_E", "_N"], "count": 4, "indptr": {"file": "edges/f/indptr.npy"}, "source": {"file": "edges/f/source.npy"}}]}`))
	npz := filepath.Join(t.TempDir(), "g.npz")
	members := map[string][]byte{
		"edge_index": npyOf("<i8", "(2, 4)", bytesOf([]int64{0, 1, 1, 2, 0, 2, 2, 2})),
		"x":          only["nodes/user/x.npy"],
	}
	if err := os.WriteFile(npz, zipOf(t, 0, members), 0o664); err != nil {
		t.Fatal(err)
	}
	var written [2]map[string]string
	for i, path := range []string{only.write(t, t.TempDir()), npz} {
		g, err := OpenGraph(path)
		if err != nil {
			t.Fatal(err)
		}
		if g, err = AddSelfLoops(g); err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		if err := WritePartitions(g, Partitioning{Assignment: []int32{1, 0, 1}, Parts: 2, Dir: out, Name: "g"}); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		written[i] = allFiles(t, out)
	}
	if len(written[0]) != 9 {
		t.Errorf("%d files", len(written[0]))
	}
	for name, data := range written[0] {
		if written[1][name] != data {
			t.Errorf("%s differs", name)
		}
	}
}

// allFiles are the contents of all files of a directory.
func allFiles(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			files[rel] = string(mustRead(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestRefusedGraphDir(t *testing.T) {
	text := string(smallDir()[GraphDescription])
	describe := func(old, new string) dirFiles {
		if !strings.Contains(text, old) {
			t.Fatalf("no %q", old)
		}
		return smallDir().with(GraphDescription, []byte(strings.Replace(text, old, new, 1)))
	}
	for _, c := range []struct {
		files dirFiles
		want  string // in the error
	}{
		{dirFiles{"x.txt": nil}, "a directory with a graph.json, or an .npz file, found a directory without one; sar ingest"},
		{describe("SAR graph 1", "SAR graph 2"), `"format" to be "SAR graph 1", found "SAR graph 2"; the graph directory is damaged`},
		{describe(`"count": 3`, `"count": 4`), `4 rows of feature "x" of user, found shape [3 2]`},
		{describe(`"count": 3`, `"count": -1`), `"count" of "user"`},
		{describe(`"count": 2, "features": {}`, `"count": 900000, "features": {}`), `900001 elements`},
		{describe(`"user": {`, `"us:er": {`), "without colons"},
		{describe(`"item": {`, `"user": {`), `the key "user" twice`},
		{describe(`"x": {`, `"orig_id": {`), "orig_id"},
		{describe(`"x": {`, `"a/b": {`), "a/b"},
		{describe("nodes/user/x.npy", "../../../../etc/passwd"), "inside the directory"},
		{describe("nodes/user/x.npy", "/etc/passwd"), "inside the directory"},
		{describe("nodes/user/x.npy", "nodes/user"), "a regular file"},
		{describe("float32", "float64"), `float64 of shape [3 2] as graph.json has it, found float32`},
		{describe(`[3, 2]`, `[2, 3]`), `of shape [2 3] as graph.json has it`},
		{describe(`["user", "follows", "user"]`, `["user", "rates", "item"]`), "each relation once, found user:rates:item again"},
		{describe(`["user", "follows", "user"]`, `["user", "follows"]`), "destination"},
		{describe(`["user", "follows", "user"]`, `["user", "follows", "nobody"]`), `the node types of relation user:follows:nobody`},
		{describe(`"indptr": {"file": "edges/r/indptr.npy"}, `, ``), `"indptr" of relation user:rates:item`},
		{describe(`"count": 4`, `"count": 5`), `5 elements of "source" of user:follows:user`},
		{smallDir().with("edges/f/indptr.npy", npyOf("<i8", "(4,)", bytesOf([]int64{0, 1, 1, 5}))), "to end with the 4 edges, found 0 and 5"},
		{smallDir().with("edges/f/indptr.npy", npyOf("<i8", "(4,)", bytesOf([]int64{1, 1, 1, 4}))), "to begin with 0"},
		{smallDir().with("edges/f/indptr.npy", npyOf("<i8", "(4,)", bytesOf([]int64{0, 3, 1, 4}))), "indptr.npy at byte"},
		{smallDir().with("edges/f/indptr.npy", npyOf("<f8", "(4,)", bytesOf([]int64{0, 1, 1, 4}))), "as graph.json has it"},
		{smallDir().with("edges/f/source.npy", npyOf("<i4", "(4,)", int32Bytes(0, 1, 3, 2))), "the source of edge 2 of user:follows:user among 3 nodes, found 3"},
		{smallDir().with("edges/f/source.npy", npyOf("<i4", "(4,)", int32Bytes(0, 1, -1, 2))), "found -1"},
		{smallDir().with("edges/f/source.npy", smallDir()["edges/f/source.npy"][:80]), "source.npy at byte"},
	} {
		dir := c.files.write(t, t.TempDir())
		g, err := OpenGraph(dir)
		if err == nil {
			_, err = readSource(g)
			g.Close()
		}
		var bad *FormatError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v\nexpected a FormatError with %s", err, c.want)
		}
	}
	// Nodes that no file stands behind take no memory.
	sparse := dirFiles{
		GraphDescription: []byte(`{"format": "SAR graph 1", "node_types": {"a": {"count": 1000000000000}, "b": {"count": 1}}, "edge_types": [
			{"type": ["a", "r", "b"], "count": 0, "indptr": {"file": "i.npy"}, "source": {"file": "s.npy"}}]}`),
		"i.npy": npyOf("<i8", "(2,)", bytesOf([]int64{0, 0})), "s.npy": npyOf("<i4", "(0,)", nil),
	}
	if _, err := OpenGraph(sparse.write(t, t.TempDir())); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

func FuzzGraphDir(f *testing.F) {
	small := smallDir()
	f.Add(small[GraphDescription], small["edges/f/indptr.npy"], small["edges/f/source.npy"], small["nodes/user/x.npy"])
	f.Fuzz(func(t *testing.T, description, indptr, source, x []byte) {
		files := small.with(GraphDescription, description).with("edges/f/indptr.npy", indptr).with("edges/f/source.npy", source).with("nodes/user/x.npy", x)
		var valid any
		if json.Unmarshal(description, &valid) == nil && strings.Contains(string(description), "..") {
			t.Skip() // a path out of the directory of the test, which is refused elsewhere
		}
		dir := files.write(t, t.TempDir())
		bounded(t, slices.Concat(description, indptr, source, x), 1024, func([]byte) error {
			g, err := OpenGraph(dir)
			if err != nil {
				return err
			}
			defer g.Close()
			_, err = readSource(g)
			return err
		})
	})
}
