package store

import (
	"os"
	"path/filepath"
	"testing"

	"sar/core/store/input"
	"sar/core/store/storetest"
)

// A directory of one type is partitioned as the .npz file with its edges in the same order.
func TestGraphDirParts(t *testing.T) {
	only := storetest.SmallDirectory().With(input.Description, []byte(`{"format": "SAR graph 1",
		"node_types": {"_N": {"count": 3, "features": {"features": {"file": "nodes/user/x.npy"}}}},
		"edge_types": [{"type": ["_N", "_E", "_N"], "count": 4, "indptr": {"file": "edges/f/indptr.npy"},
			"source": {"file": "edges/f/source.npy"}}]}`))
	npz := filepath.Join(t.TempDir(), "g.npz")
	members := map[string][]byte{
		"edge_index": storetest.Array("<i8", "(2, 4)", storetest.Bytes([]int64{0, 1, 1, 2, 0, 2, 2, 2})),
		"x":          only["nodes/user/x.npy"],
	}
	if err := os.WriteFile(npz, storetest.Zip(t, 0, members), 0o664); err != nil {
		t.Fatal(err)
	}
	var written [2]map[string]string
	for i, path := range []string{only.Write(t, t.TempDir()), npz} {
		g, err := OpenGraph(path)
		if err != nil {
			t.Fatal(err)
		}
		if g, err = input.AddSelfLoops(g); err != nil {
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
			files[rel] = string(storetest.MustRead(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
