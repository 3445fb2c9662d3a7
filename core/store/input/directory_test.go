package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"sar/core/store/disk"
	"sar/core/store/storetest"
)

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
	for _, of := range slices.Concat(g.NodeTypes(), g.EdgeTypes()) {
		for _, a := range of.Arrays {
			if err == nil {
				err = a.ReadRows(0, make([]byte, a.Bytes()))
			}
		}
	}
	return edges, err
}

func TestGraphDir(t *testing.T) {
	g, err := Open(storetest.SmallDirectory().Write(t, t.TempDir()))
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
	var kinds string
	for _, of := range slices.Concat(g.NodeTypes(), g.EdgeTypes()) {
		kinds += fmt.Sprintf("%s %d %v %d %d\n", of.Name, of.Rows, of.Features(), of.Src, of.Dst)
	}
	if want := "user 3 [{x float32 [3 2]}] 0 0\nitem 2 [] 0 0\nuser:rates:item 2 [{stars uint8 [2]}] 0 1\n" +
		"user:follows:user 4 [] 0 0\n"; kinds != want {
		t.Errorf("%s, expected %s", kinds, want)
	}
	stars, rated := make([]byte, 1), g.EdgeTypes()[0].Arrays["stars"]
	if err := rated.ReadRows(1, stars); err != nil || stars[0] != 5 {
		t.Errorf("%v %v", stars, err)
	}
}

func TestRefusedGraphDir(t *testing.T) {
	text := string(storetest.SmallDirectory()[Description])
	describe := func(old, new string) storetest.Directory {
		if !strings.Contains(text, old) {
			t.Fatalf("no %q", old)
		}
		return storetest.SmallDirectory().With(Description, []byte(strings.Replace(text, old, new, 1)))
	}
	for _, c := range []struct {
		files storetest.Directory
		want  string // in the error
	}{
		{storetest.Directory{"x.txt": nil}, "a directory with a graph.json, or an .npz file, found a directory without " +
			"one; sar ingest"},
		{describe("SAR graph 1", "SAR graph 2"),
			`"format" to be "SAR graph 1", found "SAR graph 2"; the graph directory is damaged`},
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
		{describe(`["user", "follows", "user"]`, `["user", "rates", "item"]`),
			"each relation once, found user:rates:item again"},
		{describe(`["user", "follows", "user"]`, `["user", "follows"]`), "destination"},
		{describe(`["user", "follows", "user"]`, `["user", "follows", "nobody"]`),
			`the node types of relation user:follows:nobody`},
		{describe(`"indptr": {"file": "edges/r/indptr.npy"}, `, ``), `"indptr" of relation user:rates:item`},
		{describe(`"count": 4`, `"count": 5`), `5 elements of "source" of user:follows:user`},
		{storetest.SmallDirectory().With("edges/f/indptr.npy",
			storetest.Array("<i8", "(4,)", storetest.Bytes([]int64{0, 1, 1, 5}))), "to end with the 4 edges, found 0 and 5"},
		{storetest.SmallDirectory().With("edges/f/indptr.npy",
			storetest.Array("<i8", "(4,)", storetest.Bytes([]int64{1, 1, 1, 4}))), "to begin with 0"},
		{storetest.SmallDirectory().With("edges/f/indptr.npy",
			storetest.Array("<i8", "(4,)", storetest.Bytes([]int64{0, 3, 1, 4}))), "indptr.npy at byte"},
		{storetest.SmallDirectory().With("edges/f/indptr.npy",
			storetest.Array("<f8", "(4,)", storetest.Bytes([]int64{0, 1, 1, 4}))), "as graph.json has it"},
		{storetest.SmallDirectory().With("edges/f/source.npy", storetest.Array("<i4", "(4,)", storetest.Int32s(0, 1, 3, 2))),
			"the source of edge 2 of user:follows:user among 3 nodes, found 3"},
		{storetest.SmallDirectory().With("edges/f/source.npy", storetest.Array("<i4", "(4,)", storetest.Int32s(0, 1, -1, 2))),
			"found -1"},
		{storetest.SmallDirectory().With("edges/f/source.npy", storetest.SmallDirectory()["edges/f/source.npy"][:80]),
			"source.npy at byte"},
	} {
		dir := c.files.Write(t, t.TempDir())
		g, err := Open(dir)
		if err == nil {
			_, err = readSource(g)
			g.Close()
		}
		var bad *disk.FormatError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v\nexpected a FormatError with %s", err, c.want)
		}
	}
	// Nodes that no file stands behind take no memory.
	sparse := storetest.Directory{
		Description: []byte(`{"format": "SAR graph 1", "node_types": {
			"a": {"count": 1000000000000}, "b": {"count": 1}}, "edge_types": [
			{"type": ["a", "r", "b"], "count": 0, "indptr": {"file": "i.npy"}, "source": {"file": "s.npy"}}]}`),
		"i.npy": storetest.Array("<i8", "(2,)", storetest.Bytes([]int64{0, 0})), "s.npy": storetest.Array("<i4", "(0,)", nil),
	}
	if _, err := Open(sparse.Write(t, t.TempDir())); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

func FuzzGraphDir(f *testing.F) {
	small := storetest.SmallDirectory()
	f.Add(small[Description], small["edges/f/indptr.npy"], small["edges/f/source.npy"], small["nodes/user/x.npy"])
	f.Fuzz(func(t *testing.T, description, indptr, source, x []byte) {
		files := small.With(Description, description).With("edges/f/indptr.npy", indptr).With("edges/f/source.npy",
			source).With("nodes/user/x.npy", x)
		var valid any
		if json.Unmarshal(description, &valid) == nil && strings.Contains(string(description), "..") {
			t.Skip() // a path out of the directory of the test, which is refused elsewhere
		}
		dir := files.Write(t, t.TempDir())
		storetest.Bounded(t, slices.Concat(description, indptr, source, x), 1024, func([]byte) error {
			g, err := Open(dir)
			if err == nil {
				defer g.Close()
				_, err = readSource(g)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // of a name that was changed
			}
			return err
		})
	})
}
