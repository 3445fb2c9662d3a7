package store

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/store/disk"
	"sar/core/store/npy"
)

// reference reads an .npz that numpy wrote: "part|kind|name|dtype" -> array.
func reference(t *testing.T, path string) map[string]*disk.Array {
	t.Helper()
	f, err := disk.OpenFile("reference", path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := npy.OpenZip(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { z.Close() })
	return z.Arrays
}

func mustInts(t *testing.T, a *disk.Array) []int64 {
	t.Helper()
	if a == nil {
		t.Fatal("the reference lacks an array")
	}
	v := make([]int64, a.Len)
	if a.DType == dtypes.Bool {
		a.DType = dtypes.Uint8
	}
	if err := a.Ints(0, v); err != nil {
		t.Fatal(err)
	}
	return v
}

func mustOpen(t *testing.T, path string, part int) *Partition {
	t.Helper()
	p, err := OpenPartition(path, part, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestGolden holds the reader against what DGL reads from its own files.
func TestGolden(t *testing.T) {
	paths, _ := filepath.Glob("testdata/dgl-*/*/*.json")
	if len(paths) < 10 {
		t.Fatalf("%d partitioned graphs under testdata, 10 expected", len(paths))
	}
	for _, path := range paths {
		t.Run(strings.TrimPrefix(filepath.Dir(path), "testdata/"), func(t *testing.T) {
			want := reference(t, filepath.Join(filepath.Dir(path), "expected.npz"))
			parts := mustOpen(t, path, 0).Book().Parts
			for part := range parts {
				p := mustOpen(t, path, part)
				compareGraph(t, p, want, fmt.Sprintf("part%d|", part))
				compareFeatures(t, p, want, false, fmt.Sprintf("part%d|node|", part))
				compareFeatures(t, p, want, true, fmt.Sprintf("part%d|edge|", part))
			}
			var bad *argument.Error
			if _, err := OpenPartition(path, parts, 0); !errors.As(err, &bad) {
				t.Errorf("partition %d of %d: %v", parts, parts, err)
			}
		})
	}
}

type edge struct {
	src, dst    int64
	typ         int32
	inner       uint8
	numberOfIDs int
}

func edgesByID(t *testing.T, p *Partition) map[int64]edge {
	t.Helper()
	got := map[int64]edge{}
	err := p.Edges(func(b graph.EdgeBatch) error {
		for i, id := range b.ID {
			e := edge{src: b.Src[i], dst: b.Dst[i], inner: b.Inner[i], numberOfIDs: got[id].numberOfIDs + 1}
			if b.Type != nil {
				e.typ = b.Type[i]
			}
			got[id] = e
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func compareGraph(t *testing.T, p *Partition, want map[string]*disk.Array, prefix string) {
	t.Helper()
	find := func(key string) []int64 {
		for _, dtype := range []string{"int64", "int32", "uint8"} {
			if a := want[prefix+key+"|"+dtype]; a != nil {
				return mustInts(t, a)
			}
		}
		return nil
	}
	nodes, inner, err := p.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	if ids := find("ndata|_ID"); !slices.Equal(nodes, ids) {
		t.Fatalf("%snodes\n got %v\nwant %v", prefix, nodes, ids)
	}
	marks := find("ndata|inner_node")
	for i, m := range marks {
		if (m != 0) != (i < inner) {
			t.Errorf("%snode %d is inner: %v, want %v", prefix, i, i < inner, m != 0)
		}
	}
	src, dst, ids, typ, innerEdge := find("graph|src"), find("graph|dst"), find("edata|_ID"), find("edata|_TYPE"),
		find("edata|inner_edge")
	if p.NumEdges() != int64(len(src)) {
		t.Errorf("%s%d edges, want %d", prefix, p.NumEdges(), len(src))
	}
	got := edgesByID(t, p)
	for i, id := range ids {
		w := edge{src: src[i], dst: dst[i], inner: uint8(innerEdge[i]), numberOfIDs: 1}
		if typ != nil && len(p.Book().EdgeTypes) > 1 {
			w.typ = int32(typ[i])
		}
		if got[id] != w {
			t.Errorf("%sedge %d is %+v, want %+v", prefix, id, got[id], w)
		}
	}
	for r := range p.Book().EdgeTypes {
		n, err := p.NumRelationEdges(r)
		if err != nil {
			t.Fatal(err)
		}
		s, d, e := make([]int64, n), make([]int64, n), make([]int64, n)
		if err := p.RelationEdges(r, s, d, e); err != nil {
			t.Fatal(err)
		}
		k := 0
		for i, id := range ids {
			if innerEdge[i] == 0 || (len(p.Book().EdgeTypes) > 1 && typ[i] != int64(r)) {
				continue
			}
			k++
			at := slices.Index(e, id)
			if at < 0 || s[at] != nodes[src[i]] || d[at] != nodes[dst[i]] {
				t.Errorf("%srelation %d lacks edge %d as %d -> %d", prefix, r, id, nodes[src[i]], nodes[dst[i]])
			}
		}
		if int64(k) != n || !slices.IsSorted(e) {
			t.Errorf("%srelation %d: %d edges, want %d, in order of ids: %v", prefix, r, n, k, e)
		}
	}
}

func compareFeatures(t *testing.T, p *Partition, want map[string]*disk.Array, edges bool, prefix string) {
	t.Helper()
	list := p.Features(false)
	if edges {
		list = p.Features(true)
	}
	var names []string
	for _, info := range list {
		key := prefix + info.Name + "|" + info.DType.String()
		names = append(names, key)
		w := want[key]
		if w == nil {
			t.Errorf("%s: DGL has no such feature", key)
			continue
		}
		if !slices.Equal(w.Shape, info.Shape) {
			t.Errorf("%s: shape %v, want %v", key, info.Shape, w.Shape)
		}
		got, ref := make([]byte, info.Bytes()), make([]byte, w.Bytes())
		if err := p.Read(edges, info.Name, got, info.DType, info.Shape); err != nil {
			t.Fatal(err)
		}
		if err := w.ReadAll(ref); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, ref) {
			t.Errorf("%s:\n got % x\nwant % x", key, got, ref)
		}
		if err := p.Read(edges, info.Name, make([]byte, info.Bytes()+1), info.DType, info.Shape); err == nil {
			t.Errorf("%s was read into memory of another size", key)
		}
	}
	for key := range want {
		if strings.HasPrefix(key, prefix) && !slices.Contains(names, key) {
			t.Errorf("feature %s of DGL is missing", key)
		}
	}
}
