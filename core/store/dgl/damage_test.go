package dgl

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
	"sar/core/internal/must"
	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// TestMappedReads holds the arrays of a matrix with edge ids, which are read
// through a map of the file, against checksums.
func TestMappedReads(t *testing.T) {
	const path = "../testdata/dgl-1.1.3/csr/part0/graph.dgl"
	book := bookOf(t, "../testdata/dgl-1.1.3/csr/csr.json")
	sums, err := disk.SumsOf("the graph", path, graphArrays)
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for _, of := range sums {
		b := storetest.MustRead(t, path)
		b[of.Off+of.Size-1] ^= 1
		damaged := filepath.Join(t.TempDir(), "graph.dgl")
		if err := os.WriteFile(damaged, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := disk.OpenFile("the graph", damaged)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		err = f.Attach(sums)
		if err == nil {
			var g *Part
			if g, err = openGraph(f, book, 0); err != nil {
				t.Fatal(err)
			}
			err = readPartGraph(g)
			if err == nil {
				err = g.checkUnread()
			}
		}
		var damage *disk.FormatError
		if !errors.As(err, &damage) || damage.Offset != of.Off || damage.End != of.Off+of.Size {
			t.Errorf("%s changed: %v", of.What(), err)
		}
		noticed++
	}
	if noticed < 15 {
		t.Errorf("only %d ranges", noticed)
	}
}

// readGraph runs everything a partition's graph file is read for.
func readGraph(b []byte, book *graph.Book, part int) error {
	g, err := openGraph(disk.InMemory("memory", b), book, part)
	if err != nil {
		return err
	}
	return readPartGraph(g)
}

func readPartGraph(g *Part) error {
	if err := g.checkNodes(make([]int64, g.nodes)); err != nil {
		return err
	}
	return g.Batches(func(graph.EdgeBatch) error { return nil })
}

func readTensors(b []byte) error {
	list, err := parseTensors(disk.InMemory("memory", b))
	for _, a := range list {
		if err == nil {
			err = a.ReadAll(make([]byte, a.Bytes()))
		}
	}
	return err
}

// bookOf reads the ranges of a description as DGL writes it today.
func bookOf(t testing.TB, path string) *graph.Book {
	t.Helper()
	var top struct {
		Parts   int                   `json:"num_parts"`
		NodeMap map[string][][2]int64 `json:"node_map"`
		EdgeMap map[string][][2]int64 `json:"edge_map"`
		NTypes  map[string]int        `json:"ntypes"`
		ETypes  map[string]int        `json:"etypes"`
	}
	if err := json.Unmarshal(storetest.MustRead(t, path), &top); err != nil {
		t.Fatal(err)
	}
	split := func(types map[string]int, ranges map[string][][2]int64) (names []string, start, end [][]int64) {
		names, start, end = make([]string, len(types)), make([][]int64, len(types)), make([][]int64, len(types))
		for name, i := range types {
			names[i] = name
			for _, r := range ranges[name] {
				start[i], end[i] = append(start[i], r[0]), append(end[i], r[1])
			}
		}
		return names, start, end
	}
	b := &graph.Book{Parts: top.Parts}
	b.NodeTypes, b.NodeStart, b.NodeEnd = split(top.NTypes, top.NodeMap)
	var names []string
	names, b.EdgeStart, b.EdgeEnd = split(top.ETypes, top.EdgeMap)
	for _, name := range names {
		et, err := graph.ParseEdgeType(name)
		if err != nil {
			t.Fatal(err)
		}
		b.EdgeTypes = append(b.EdgeTypes, et)
	}
	if err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestChangedDGLFiles(t *testing.T) {
	for path, read := range map[string]func([]byte) error{
		"../testdata/dgl-1.1.3/metis/part0/graph.dgl":      graphReader(t, "../testdata/dgl-1.1.3/metis/metis.json", 0),
		"../testdata/dgl-1.1.3/csr/part0/graph.dgl":        graphReader(t, "../testdata/dgl-1.1.3/csr/csr.json", 0),
		"../testdata/dgl-2.1.0/csc/part0/graph.dgl":        graphReader(t, "../testdata/dgl-2.1.0/csc/csc.json", 0),
		"../testdata/dgl-1.1.3/metis/part0/node_feat.dgl":  readTensors,
		"../testdata/dgl-2.1.0/hetero/part0/edge_feat.dgl": readTensors,
	} {
		storetest.Cut(t, path, read)
		storetest.Flip(t, path, read)
	}
}

// graphReader reads a graph file of the partitioned graph that a description of DGL's is of.
func graphReader(t testing.TB, description string, part int) func([]byte) error {
	book := bookOf(t, description)
	return func(b []byte) error { return readGraph(b, book, part) }
}

// TestDamaged holds messages of typical damage.
func TestDamaged(t *testing.T) {
	graphPath, feats := "../testdata/dgl-1.1.3/metis/part0/graph.dgl", "../testdata/dgl-1.1.3/metis/part0/node_feat.dgl"
	book := bookOf(t, "../testdata/dgl-1.1.3/metis/metis.json")
	asGraph := func(b []byte) error { return readGraph(b, book, 0) }
	g, err := parseGraphs(disk.InMemory("memory", storetest.MustRead(t, graphPath)))
	if err != nil {
		t.Fatal(err)
	}
	row, col := g.relations[0].row.Offset, g.relations[0].col.Offset
	list, err := parseTensors(disk.InMemory("memory", storetest.MustRead(t, feats)))
	if err != nil {
		t.Fatal(err)
	}
	shape := list[0].Offset - 8 - 8*int64(len(list[0].Shape))
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
		{"size that is not the shape's", feats, readTensors, list[0].Offset - 8, 1, []string{"found 1 bytes"}},
		{"source that is no node", graphPath, asGraph, row, 1 << 40, []string{"an edge between nodes 0 to"}},
		{"destination out of the inner nodes", graphPath, asGraph, col, 19, []string{"inner edge to end in"}},
		{"id of another partition", graphPath, asGraph, g.ndata[0][0].Offset, 15, []string{"as the JSON has it"}},
	} {
		b := storetest.MustRead(t, c.path)
		if c.what == "id of another partition" {
			for _, a := range g.ndata[0] {
				if a.name == "_ID" {
					c.off = a.Offset
				}
			}
		}
		binary.LittleEndian.PutUint64(b[c.off:], c.value)
		err := c.read(b)
		var fe *disk.FormatError
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

// openGraph is a part of which there is nothing but the graph.
func openGraph(f *disk.File, book *graph.Book, part int) (p *Part, err error) {
	defer must.Return(&err)
	p = &Part{book: book, part: part}
	p.openGraph(f)
	return p, nil
}
