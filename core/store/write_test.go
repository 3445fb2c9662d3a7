package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/store/disk"
	"sar/core/store/input"
)

// memGraph is a Source in memory, with a feature that can fail to be read.
type memGraph struct {
	n        int64
	src, dst []int64
	node     map[string]memArray
	edge     map[string]memArray
	failing  string
}

type memArray struct {
	disk.TensorInfo
	data []byte
}

func (g *memGraph) NumNodes() int64 { return g.n }

func (g *memGraph) NumEdges() int64 { return int64(len(g.src)) }

func (g *memGraph) NodeArrays() map[string]disk.Array { return g.arrays(g.node) }

func (g *memGraph) EdgeArrays() map[string]disk.Array { return g.arrays(g.edge) }

func (g *memGraph) arrays(m map[string]memArray) map[string]disk.Array {
	out := map[string]disk.Array{}
	for name, a := range m {
		out[name] = disk.Array{Name: name, DType: a.DType, Shape: a.Shape, Len: a.Bytes() / int64(a.DType.Size()),
			Derive: func(first int64, dst []byte) error {
				if name == g.failing {
					return errBroken
				}
				copy(dst, a.data[first*a.RowBytes():])
				return nil
			}}
	}
	return out
}

func (g *memGraph) EdgesBatch(yield func(int64, []int64, []int64) error) error {
	for at := 0; at < len(g.src); at += 7 {
		end := min(at+7, len(g.src))
		if err := yield(int64(at), g.src[at:end], g.dst[at:end]); err != nil {
			return err
		}
	}
	return nil
}

var errBroken = errors.New("the disk is on fire")

func randomGraph(r *rand.Rand, n, edges int) *memGraph {
	g := &memGraph{n: int64(n), node: map[string]memArray{}, edge: map[string]memArray{}}
	for range edges {
		g.src, g.dst = append(g.src, r.Int63n(int64(n))), append(g.dst, r.Int63n(int64(n)))
	}
	add := func(m map[string]memArray, name string, d dtypes.Type, shape ...int64) {
		t := disk.TensorInfo{Name: name, DType: d, Shape: shape}
		data := make([]byte, t.Bytes())
		r.Read(data)
		if d == dtypes.Bool {
			for i := range data {
				data[i] &= 1
			}
		}
		m[name] = memArray{t, data}
	}
	add(g.node, "features", dtypes.Float32, int64(n), 3)
	add(g.node, "labels", dtypes.Int64, int64(n))
	add(g.node, "train_mask", dtypes.Bool, int64(n))
	add(g.node, "half", dtypes.BFloat16, int64(n), 2, 2)
	add(g.node, "nothing", dtypes.Float32, int64(n), 0)
	add(g.edge, "edge_weight", dtypes.Float64, int64(edges))
	add(g.edge, "kind", dtypes.Int16, int64(edges), 2)
	return g
}

func readAll(t *testing.T, p *Partition, edge bool, name string) []byte {
	t.Helper()
	for _, i := range p.Features(edge) {
		if i.Name == name {
			b := make([]byte, i.Bytes())
			if err := p.Read(edge, name, b, i.DType, i.Shape); err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("no feature %q among %v", name, p.Features(edge))
	return nil
}

func int64s(b []byte) []int64 {
	v := make([]int64, len(b)/8)
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return v
}

// TestRoundTrip writes random graphs and reads them back.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	for _, c := range []struct{ n, edges, parts int }{{1, 0, 1}, {1, 4, 1}, {30, 120, 1}, {30, 120, 2}, {200, 1500, 3},
		{70, 400, 9}, {5, 0, 2}, {3, 10, 6}} {
		t.Run(fmt.Sprintf("n=%d,e=%d,p=%d", c.n, c.edges, c.parts), func(t *testing.T) {
			g := randomGraph(r, c.n, c.edges)
			assign := make([]int32, c.n)
			for i := range assign {
				assign[i] = int32(r.Intn(c.parts))
			}
			dir := filepath.Join(t.TempDir(), "new")
			last, total := int64(-1), int64(0)
			err := writeSingle(g, Partitioning{Assignment: assign, Parts: c.parts, Dir: dir, Name: "g", Method: "random",
				Progress: func(done, all int64) error {
					if done < last || done > all {
						t.Errorf("progress %d of %d after %d", done, all, last)
					}
					last, total = done, all
					return nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			if last != total {
				t.Errorf("progress ends at %d of %d", last, total)
			}
			checkPartitions(t, g, assign, c.parts, filepath.Join(dir, "g.json"))
			entries, _ := os.ReadDir(dir)
			if len(entries) != c.parts+1 {
				t.Errorf("%d entries in the directory, want %d", len(entries), c.parts+1)
			}
		})
	}
}

// TestNodesNear writes a graph in whose parts nodes that know each other are far apart, with edges in order and
// in none.
func TestNodesNear(t *testing.T) {
	r := rand.New(rand.NewSource(8))
	const n, block, degree = 20_000, 100, 10
	for _, c := range []struct {
		parts  int
		sorted bool
		memory int64
		near   bool
	}{{1, true, 0, true}, {3, true, 0, true}, {3, false, 0, true}, {3, true, 66 << 20, false}} {
		t.Run(fmt.Sprintf("parts=%d,sorted=%v,memory=%d", c.parts, c.sorted, c.memory), func(t *testing.T) {
			g := randomGraph(r, n, n*degree)
			for k := range g.src {
				v := k / degree // nodes of one remainder know each other
				g.src[k], g.dst[k] = int64(r.Intn(n/block)*block+v%block), int64(v)
			}
			for at := 0; at < len(g.src); at += degree {
				slices.Sort(g.src[at:][:degree])
			}
			if !c.sorted {
				r.Shuffle(len(g.src), func(i, j int) {
					g.src[i], g.src[j], g.dst[i], g.dst[j] = g.src[j], g.src[i], g.dst[j], g.dst[i]
				})
			}
			assign := make([]int32, n)
			for i := range assign {
				assign[i] = int32(r.Intn(c.parts))
			}
			dir := filepath.Join(t.TempDir(), "new")
			err := writeSingle(g, Partitioning{Assignment: assign, Parts: c.parts, Dir: dir, Name: "g", Method: "random",
				Memory: c.memory})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "g.json")
			orig := int64s(readAll(t, mustOpen(t, path, 0), false, "_N/orig_id"))
			if near := !slices.IsSorted(orig); near != c.near {
				t.Fatalf("nodes are near each other: %v", near)
			}
			together := 0
			for k := range len(orig) - 1 {
				if orig[k]%block == orig[k+1]%block {
					together++
				}
			}
			if c.near && together < len(orig)*3/4 {
				t.Errorf("%d of %d nodes come before one that they know", together, len(orig))
			}
			checkPartitions(t, g, assign, c.parts, path)
		})
	}
}

// checkPartitions holds what is on disk against the definition: everything
// said in original ids.
func checkPartitions(t *testing.T, g *memGraph, assign []int32, parts int, path string) {
	t.Helper()
	var nodeOrig, edgeOrig []int64 // by new id
	open := make([]*Partition, parts)
	for p := range parts {
		open[p] = mustOpen(t, path, p)
		nodeOrig = append(nodeOrig, int64s(readAll(t, open[p], false, "_N/orig_id"))...)
		edgeOrig = append(edgeOrig, int64s(readAll(t, open[p], true, "_N:_E:_N/orig_id"))...)
	}
	if len(nodeOrig) != int(g.n) || len(edgeOrig) != len(g.src) {
		t.Fatalf("%d nodes and %d edges, want %d and %d", len(nodeOrig), len(edgeOrig), g.n, len(g.src))
	}
	var gotNodes, gotEdges, wantNodes, wantEdges []int64
	for p, part := range open {
		for i, a := range assign {
			if int(a) == p {
				wantNodes = append(wantNodes, int64(i))
			}
		}
		for e, d := range g.dst {
			if int(assign[d]) == p {
				wantEdges = append(wantEdges, int64(e))
			}
		}
		book := part.Book()
		nodes, edges := nodeOrig[book.NodeStart[0][p]:book.NodeEnd[0][p]], edgeOrig[book.EdgeStart[0][p]:book.EdgeEnd[0][p]]
		if len(assign) > 1000 { // then they may have an order of their own
			nodes, edges = slices.Sorted(slices.Values(nodes)), slices.Sorted(slices.Values(edges))
		}
		gotNodes, gotEdges = append(gotNodes, nodes...), append(gotEdges, edges...)
	}
	if !slices.Equal(gotNodes, wantNodes) || !slices.Equal(gotEdges, wantEdges) {
		t.Fatalf("original ids\n got %v %v\nwant %v %v", gotNodes, gotEdges, wantNodes, wantEdges)
	}
	for p, part := range open {
		info := part.Info()
		if info.NumParts != parts || info.GraphName != "g" {
			t.Errorf("%d parts of %q", info.NumParts, info.GraphName)
		}
		nodes, inner, err := part.Nodes()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(nodes[inner:]) {
			t.Errorf("partition %d: halo %v is not in order", p, nodes[inner:])
		}
		touched := make([]bool, len(nodes))
		var outer int
		err = part.Edges(func(b graph.EdgeBatch) error {
			for i := range b.Src {
				e := edgeOrig[b.ID[i]]
				if s, d := nodeOrig[nodes[b.Src[i]]], nodeOrig[nodes[b.Dst[i]]]; s != g.src[e] || d != g.dst[e] {
					t.Errorf("partition %d: edge %d is %d -> %d, want %d -> %d", p, e, s, d, g.src[e], g.dst[e])
				}
				touched[b.Src[i]], touched[b.Dst[i]] = true, true
				in := int(assign[g.dst[e]]) == p
				if in != (b.Inner[i] == 1) || (!in && int(assign[g.src[e]]) != p) {
					t.Errorf("partition %d: edge %d is inner: %d", p, e, b.Inner[i])
				}
				if !in {
					outer++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for e := range g.src {
			if int(assign[g.src[e]]) == p && int(assign[g.dst[e]]) != p {
				want++
			}
		}
		if outer != want || info.NumLocalEdges != info.NumInnerEdges+int64(want) {
			t.Errorf("partition %d: %d outer edges, want %d", p, outer, want)
		}
		for i := inner; i < len(nodes); i++ {
			if !touched[i] {
				t.Errorf("partition %d: halo node %d has no edge", p, nodes[i])
			}
		}
		checkRows(t, part, g.node, false, "_N/", nodeOrig[part.Book().NodeStart[0][p]:part.Book().NodeEnd[0][p]])
		checkRows(t, part, g.edge, true, "_N:_E:_N/", edgeOrig[part.Book().EdgeStart[0][p]:part.Book().EdgeEnd[0][p]])
	}
}

func checkRows(t *testing.T, p *Partition, arrays map[string]memArray, edge bool, prefix string, orig []int64) {
	t.Helper()
	for name, a := range arrays {
		row := a.RowBytes()
		var want []byte
		for _, i := range orig {
			want = append(want, a.data[i*row:(i+1)*row]...)
		}
		if got := readAll(t, p, edge, prefix+name); !bytes.Equal(got, want) {
			t.Errorf("partition %d: %s differs", p.Part(), name)
		}
	}
}

// TestFailedWrite looks at what a write that fails leaves behind: nothing, or
// what was there before.
func TestFailedWrite(t *testing.T) {
	r := rand.New(rand.NewSource(6))
	old, g := randomGraph(r, 40, 200), randomGraph(r, 50, 300)
	assign, oldAssign := make([]int32, 50), make([]int32, 40)
	for i := range oldAssign {
		assign[i], oldAssign[i] = int32(i%3), int32(i%2)
	}
	dir := t.TempDir()
	for _, before := range []bool{false, true} {
		if before {
			if err := writeSingle(old, Partitioning{Assignment: oldAssign, Parts: 2, Dir: dir, Name: "g",
				Method: "random"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, g.failing = range []string{"labels", "kind"} {
			if err := writeSingle(g, Partitioning{Assignment: assign, Parts: 3, Dir: dir, Name: "g",
				Method: "random"}); !errors.Is(err, errBroken) {
				t.Fatalf("failing at %q: %v", g.failing, err)
			}
			entries, _ := os.ReadDir(dir)
			if !before && len(entries) != 0 {
				t.Errorf("failing at %q leaves %v", g.failing, entries)
			}
			if before {
				checkPartitions(t, old, oldAssign, 2, filepath.Join(dir, "g.json"))
			}
		}
	}
	g.failing = ""
	if err := writeSingle(g, Partitioning{Assignment: assign, Parts: 3, Dir: dir, Name: "g",
		Method: "random"}); err != nil {
		t.Fatal(err)
	}
	checkPartitions(t, g, assign, 3, filepath.Join(dir, "g.json"))
}

func TestRefusedWrite(t *testing.T) {
	g := randomGraph(rand.New(rand.NewSource(7)), 4, 4)
	dir := t.TempDir()
	for _, c := range []struct {
		assign []int32
		parts  int
		name   string
	}{{[]int32{0, 0, 0}, 1, "g"}, {[]int32{0, 1, 2, 0}, 2, "g"}, {[]int32{0, -1, 0, 0}, 2, "g"},
		{make([]int32, 4), 0, "g"}, {make([]int32, 4), 1, "a/b"}, {make([]int32, 4), 1, ""}} {
		var ae *argument.Error
		if err := writeSingle(g, Partitioning{Assignment: c.assign, Parts: c.parts, Dir: dir, Name: c.name,
			Method: "random"}); !errors.As(err, &ae) {
			t.Errorf("%v into %d parts as %q: %v is no argument.Error", c.assign, c.parts, c.name, err)
		}
	}
}

// graphOfOne is a graph of one type, single the same as Source.
type graphOfOne interface {
	NumNodes() int64
	NumEdges() int64
	NodeArrays() map[string]disk.Array
	EdgeArrays() map[string]disk.Array
	EdgesBatch(yield func(first int64, src, dst []int64) error) error
}

type single struct{ graphOfOne }

func (s single) NodeTypes() []input.Table {
	return []input.Table{{Name: graph.OnlyNodeType, Rows: s.NumNodes(), Arrays: s.NodeArrays()}}
}

func (s single) EdgeTypes() []input.Table {
	return []input.Table{{Name: graph.OnlyEdgeType.String(), Rows: s.NumEdges(), Arrays: s.EdgeArrays()}}
}

func writeSingle(g graphOfOne, to Partitioning) error { return WritePartitions(single{g}, to) }
