package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sar/core/graph"
	"sar/core/mem"
	"sar/core/store/input"
	"sar/core/store/storetest"
)

// sortedDir writes a graph directory of two node types and three relations at random:
// parallel edges, self loops, isolated nodes; edges have features.
func sortedDir(t testing.TB, r *rand.Rand, n, edges int) string {
	files := storetest.Directory{}
	counts := map[string]int{"a": n, "b": n/2 + 1}
	relations := ""
	for _, name := range []string{"a:x:a", "a:y:b", "b:x:a"} {
		et, _ := graph.ParseEdgeType(name)
		ptr, src, w := []int64{0}, []int32{}, []byte{}
		rows := counts[et.Dst]
		for v := range rows {
			var of []int32
			for range r.IntN(2*edges/rows + 1) {
				of = append(of, int32(r.IntN(counts[et.Src])))
			}
			if v%7 == 3 {
				of = nil
			} else if len(of) > 0 {
				of = append(of, of[0])
			}
			slices.Sort(of)
			src = append(src, of...)
			ptr = append(ptr, int64(len(src)))
		}
		for range src {
			w = append(w, byte(r.IntN(256)))
		}
		dir := "edges/" + strings.ReplaceAll(name, ":", "__")
		files[dir+"/indptr.npy"] = storetest.Array("<i8", fmt.Sprintf("(%d,)", len(ptr)), storetest.Bytes(ptr))
		files[dir+"/source.npy"] = storetest.Array("<i4", fmt.Sprintf("(%d,)", len(src)), storetest.Int32s(src...))
		files[dir+"/w.npy"] = storetest.Array("|u1", fmt.Sprintf("(%d,)", len(src)), w)
		relations += fmt.Sprintf(`, {"type": [%q, %q, %q], "count": %d, "indptr": {"file": "%s/indptr.npy"},
			"source": {"file": "%s/source.npy"}, "features": {"w": {"file": "%s/w.npy"}}}`,
			et.Src, et.Rel, et.Dst, len(src), dir, dir, dir)
	}
	x := make([]byte, 3*n)
	for i := range x {
		x[i] = byte(r.IntN(256))
	}
	files["nodes/a/x.npy"] = storetest.Array("|u1", fmt.Sprintf("(%d, 3)", n), x)
	files[input.Description] = []byte(fmt.Sprintf(`{"format": "SAR graph 1", "node_types": {
		"a": {"count": %d, "features": {"x": {"file": "nodes/a/x.npy"}}}, "b": {"count": %d}},
		"edge_types": [%s]}`, n, counts["b"], relations[2:]))
	return files.Write(t, t.TempDir())
}

// twoFormats partitions a graph in both formats and returns the descriptions.
func twoFormats(t testing.TB, open func() input.Graph, assignment []int32, parts int, memory int64) (dgl, sar string) {
	t.Helper()
	var paths [2]string
	for i, format := range []string{DGLFormat, SARFormat} {
		g := open()
		to := Partitioning{Assignment: assignment, Parts: parts, Dir: t.TempDir(), Name: "g", Method: "none", Format: format,
			Memory: memory}
		if err := WritePartitions(g, to); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		paths[i] = filepath.Join(to.Dir, "g.json")
	}
	return paths[0], paths[1]
}

// samePartition compares all that a partition says of its nodes and edges.
func samePartition(t *testing.T, a, b *Partition) {
	t.Helper()
	if x, y := fmt.Sprint(a.Book().NodeStart, a.Book().EdgeEnd, a.Features(false), a.Features(true)),
		fmt.Sprint(b.Book().NodeStart, b.Book().EdgeEnd, b.Features(false), b.Features(true)); x != y {
		t.Fatalf("%s\nin the other format\n%s", x, y)
	}
	for _, edge := range []bool{false, true} {
		for _, f := range a.Features(edge) {
			x, y := make([]byte, f.Bytes()), make([]byte, f.Bytes())
			err := errors.Join(a.Read(edge, f.Name, x, f.DType, f.Shape), b.Read(edge, f.Name, y, f.DType, f.Shape))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(x, y) {
				t.Fatalf("part %d: feature %q differs", a.Part(), f.Name)
			}
		}
	}
	for r := range a.Book().EdgeTypes {
		n, _ := a.NumRelationEdges(r)
		var ends [2][3][]int64
		for i, p := range []*Partition{a, b} {
			for k := range ends[i] {
				ends[i][k] = make([]int64, n)
			}
			if err := p.RelationEdges(r, ends[i][0], ends[i][1], ends[i][2]); err != nil {
				t.Fatal(err)
			}
		}
		for k, what := range []string{"sources", "destinations", "ids"} {
			if !slices.Equal(ends[0][k], ends[1][k]) {
				t.Fatalf("part %d: %s of relation %d differ", a.Part(), what, r)
			}
		}
	}
	if x, y := a.Info(), b.Info(); x.NumInnerNodes != y.NumInnerNodes || x.NumInnerEdges != y.NumInnerEdges ||
		y.NumLocalNodes > x.NumLocalNodes {
		t.Fatalf("%+v and %+v", x, y)
	}
}

// sameStructures compares the relations that are mapped with those that are built.
func sameStructures(t *testing.T, dgl, sar *Partition) {
	t.Helper()
	built, err := graph.Build(dgl.Book(), dgl.Part(), dgl, graph.BuildOptions{EdgeOrder: true, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	rels, err := sar.sar.Relations(2)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range built {
		got := rels[i]
		if err := got.EdgeOrder(); err != nil {
			t.Fatal(err)
		}
		for what, pair := range map[string][2]mem.Array[int32]{
			"RowPtr": {want.RowPtr, got.RowPtr}, "Col": {want.Col, got.Col}, "ColPtr": {want.ColPtr, got.ColPtr},
			"Row":   {want.Row, got.Row},
			"Order": {want.Order, got.Order}, "RowsBefore": {want.RowsBefore, got.RowsBefore},
			"ColsBefore": {want.ColsBefore, got.ColsBefore},
			"RowEdge":    {want.RowEdge, got.RowEdge}, "ColEdge": {want.ColEdge, got.ColEdge},
		} {
			if !slices.Equal(pair[0].Data, pair[1].Data) {
				t.Fatalf("part %d, %s: %s differs:\n%v\n%v", dgl.Part(), want.Type, what, pair[0].Data, pair[1].Data)
			}
		}
		for q := 1; q < want.Parts; q++ {
			if a, b := want.Halo[q], got.Halo[q]; a.Peer != b.Peer || a.Begin != b.Begin || a.End != b.End ||
				a.Travels != b.Travels {
				t.Fatalf("halo of round %d: %+v and %+v", q, a, b)
			}
		}
		want.Free()
		got.Free()
	}
}

// sameSends holds what the parts send against what the others read.
func sameSends(t *testing.T, parts []*Partition, dgl []*Partition) {
	t.Helper()
	world := len(parts)
	for i := range parts[0].Book().EdgeTypes {
		var rels []*graph.Relation
		var built []*graph.Structure
		for p := range parts {
			all, err := parts[p].sar.Relations(1)
			if err != nil {
				t.Fatal(err)
			}
			r := all[i]
			for k := range all {
				if k != i {
					all[k].Free()
				}
			}
			b, err := graph.Build(dgl[p].Book(), p, dgl[p], graph.BuildOptions{})
			if err != nil {
				t.Fatal(err)
			}
			rels, built = append(rels, r), append(built, b[i])
		}
		for p, r := range rels {
			out := make([]int64, r.NumSrc)
			for j := range out {
				out[j] = int64(r.ColPtr.Data[j+1] - r.ColPtr.Data[j])
			}
			for q := 1; q < world; q++ {
				h := built[(p+q)%world].Halo[q]
				if !slices.Equal(r.Send[q].Data, h.Rows.Data) {
					t.Fatalf("part %d sends %v in round %d, the peer reads %v", p, r.Send[q].Data, q, h.Rows.Data)
				}
				ptr := built[(p+q)%world].ColPtr.Data
				for k, row := range h.Rows.Data {
					out[row] += int64(ptr[int(h.Begin)+k+1] - ptr[int(h.Begin)+k])
				}
			}
			if !slices.Equal(out, r.OutDegree.Data) {
				t.Fatalf("part %d: out-degrees %v, expected %v", p, r.OutDegree.Data, out)
			}
		}
		for p := range rels {
			rels[p].Free()
		}
	}
}

func TestSARFormat(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	worlds := []int{1, 2, 4, 8}
	if testing.Short() {
		worlds = worlds[2:3]
	}
	for _, parts := range worlds {
		for _, c := range []struct {
			name string
			open func() input.Graph
		}{
			{"sorted", func() func() input.Graph {
				dir := sortedDir(t, r, 60, 300)
				return func() input.Graph { return opened(OpenGraph(dir))(t) }
			}()},
			{"unsorted", func() func() input.Graph {
				path := filepath.Join(t.TempDir(), "g.npz")
				if err := os.WriteFile(path, typedNPZ2(t, r), 0o664); err != nil {
					t.Fatal(err)
				}
				return func() input.Graph { return opened(OpenGraph(path))(t) }
			}()},
		} {
			g := c.open()
			assignment := make([]int32, g.NumNodes())
			for i := range assignment {
				assignment[i] = int32(r.IntN(parts))
				if parts > 2 && assignment[i] == 1 {
					assignment[i] = 0 // part 1 is empty
				}
			}
			g.Close()
			dgl, sar := twoFormats(t, c.open, assignment, parts, 0)
			var all [2][]*Partition
			for p := range parts {
				a, b := mustOpen(t, dgl, p), mustOpen(t, sar, p)
				samePartition(t, a, b)
				sameStructures(t, a, b)
				all[0], all[1] = append(all[0], a), append(all[1], b)
				reports, err := Verify(sar, p, 0)
				for _, report := range reports {
					if err = errors.Join(err, errors.Join(report.Damage...)); !report.Summed {
						t.Errorf("%s has no checksums", report.File)
					}
				}
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
			}
			sameSends(t, all[1], all[0])
		}
	}
}

// Rows that are best computed in another order have it in their files.
func TestSARFormatOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const n, block = 20000, 100
	ptr, src := []int64{0}, []int32{}
	for v := range n {
		var of []int32
		for range 10 {
			of = append(of, int32(r.IntN(n/block)*block+v%block)) // nodes of one remainder know each other
		}
		slices.Sort(of)
		src = append(src, of...)
		ptr = append(ptr, int64(len(src)))
	}
	dir := storetest.Directory{
		input.Description: []byte(fmt.Sprintf(`{"format": "SAR graph 1", 
			"node_types": {"_N": {"count": %d}}, "edge_types": [{"type": ["_N", "_E", "_N"], "count": %d,
			"indptr": {"file": "i.npy"}, "source": {"file": "s.npy"}}]}`, n, len(src))),
		"i.npy": storetest.Array("<i8", fmt.Sprintf("(%d,)", n+1), storetest.Bytes(ptr)),
		"s.npy": storetest.Array("<i4", fmt.Sprintf("(%d,)", len(src)), storetest.Int32s(src...)),
	}.Write(t, t.TempDir())
	for memory, orders := range map[int64]int{66 << 20: 1, 0: 0} { // where there is room, nodes are numbered in that order
		dgl, sar := twoFormats(t, func() input.Graph { return opened(OpenGraph(dir))(t) }, make([]int32, n), 1, memory)
		a, b := mustOpen(t, dgl, 0), mustOpen(t, sar, 0)
		made, err := filepath.Glob(filepath.Join(filepath.Dir(sar), "part0", "relations", "*", "order.npy"))
		if err != nil || len(made) != orders {
			t.Fatalf("memory %d: orders %v, want %d", memory, made, orders)
		}
		samePartition(t, a, b)
		sameStructures(t, a, b)
	}
}

// opened fails the test on an error.
func opened[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// typedNPZ2 is an .npz graph of two relations whose edges have no order.
func typedNPZ2(t testing.TB, r *rand.Rand) []byte {
	members := map[string][]byte{"u/x": storetest.Array("<f4", "(50, 1)", storetest.Int32s(make([]int32, 50)...)),
		"v/num_nodes": storetest.Array("<i8", "()", storetest.Bytes([]int64{20}))}
	for name, n := range map[string][2]int64{"u:r:v": {50, 20}, "u:s:u": {50, 50}} {
		ends := make([]int64, 400)
		for k := range 200 {
			ends[k], ends[200+k] = r.Int64N(n[0]), r.Int64N(n[1])
		}
		copy(ends[:20], ends[20:40])
		copy(ends[200:220], ends[220:240])
		members[name+"/edge_index"] = storetest.Array("<i8", "(2, 200)", storetest.Bytes(ends))
		members[name+"/w"] = storetest.Array("<f4", "(200,)", storetest.Int32s(func() (v []int32) {
			for range 200 {
				v = append(v, r.Int32())
			}
			return v
		}()...))
	}
	return storetest.Zip(t, 0, members)
}
