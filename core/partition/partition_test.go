package partition

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sar/core/mem"
)

type list struct {
	n        int64
	src, dst []int64
}

func (l *list) NumNodes() int64 { return l.n }
func (l *list) NumEdges() int64 { return int64(len(l.src)) }
func (l *list) Stream(yield func(src, dst []int64) error) error {
	for at := 0; at < len(l.src); at += 37 {
		end := min(at+37, len(l.src))
		if err := yield(l.src[at:end], l.dst[at:end]); err != nil {
			return err
		}
	}
	return nil
}

// randomList has hubs, self loops, edges in both directions and repetitions.
func randomList(rng *rand.Rand, n int64, m int) *list {
	l := &list{n: n}
	for range m {
		u, v := min(rng.Int64N(n), rng.Int64N(n)), rng.Int64N(n)
		if rng.IntN(10) == 0 {
			v = u
		}
		l.src, l.dst = append(l.src, u), append(l.dst, v)
		if rng.IntN(3) == 0 {
			l.src, l.dst = append(l.src, v), append(l.dst, u)
		}
	}
	return l
}

func TestRandom(t *testing.T) {
	for _, n := range []int{0, 1, 7, 1000} {
		for _, parts := range []int{1, 3, 8} {
			a, b := make([]int32, n), make([]int32, n)
			if err := Random(a, parts, 5); err != nil {
				t.Fatal(err)
			}
			sizes := make([]int, parts)
			for _, p := range a {
				sizes[p]++
			}
			if slices.Max(sizes)-slices.Min(sizes) > 1 {
				t.Fatalf("sizes %v", sizes)
			}
			_ = Random(b, parts, 5)
			if !slices.Equal(a, b) {
				t.Fatal("one seed, two assignments")
			}
			_ = Random(b, parts, 6)
			if n == 1000 && parts > 1 && slices.Equal(a, b) {
				t.Fatal("two seeds, one assignment")
			}
		}
	}
	if Random(nil, 0, 1) == nil {
		t.Fatal("0 parts")
	}
}

func TestContiguous(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 7, 8, 9, 500} {
		for _, parts := range []int{1, 2, 3, 8} {
			for range 20 {
				deg := make([]int64, n)
				sum, most := int64(n), int64(0)
				for i := range deg {
					deg[i] = rng.Int64N(20)
					if rng.IntN(100) == 0 {
						deg[i] = rng.Int64N(3000)
					}
					sum, most = sum+deg[i], max(most, deg[i]+1)
				}
				a := make([]int32, n)
				if err := Contiguous(a, deg, parts); err != nil {
					t.Fatal(err)
				}
				if !slices.IsSorted(a) {
					t.Fatalf("not contiguous: %v", a)
				}
				loads := make([]int64, parts)
				for i, p := range a {
					loads[p] += deg[i] + 1
				}
				limit := float64(sum)/float64(parts) + float64(most)*(1+math.Log(float64(parts))/2)
				for p, l := range loads {
					if n >= parts && l == 0 || float64(l) > limit {
						t.Fatalf("%d nodes, part %d of %d has load %d of %d, heaviest node %d", n, p, parts, l, sum, most)
					}
				}
			}
		}
	}
	even := make([]int64, 8000)
	a := make([]int32, 8000)
	if err := Contiguous(a, even, 8); err != nil {
		t.Fatal(err)
	}
	for i, p := range a {
		if int(p) != i/1000 {
			t.Fatalf("node %d of equal ones is in part %d", i, p)
		}
	}
	if Contiguous(a, even[1:], 2) == nil || Contiguous(a, even, 0) == nil {
		t.Fatal("no error")
	}
}

func TestAdjacencyAndDegrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	start := mem.Total().Live
	for _, n := range []int64{1, 2, 30, 400} {
		for _, m := range []int{0, 1, 50, 3000} {
			l := randomList(rng, n, m)
			neighbours := make([]map[int64]bool, n)
			in := make([]int64, n)
			for i := range neighbours {
				neighbours[i] = map[int64]bool{}
			}
			for i, u := range l.src {
				v := l.dst[i]
				in[v]++
				if u != v {
					neighbours[u][v], neighbours[v][u] = true, true
				}
			}
			xadj, adjncy, err := adjacency(t, l)
			if err != nil {
				t.Fatal(err)
			}
			want := []int32{}
			for a := range n {
				if xadj.Data[a] != int64(len(want)) {
					t.Fatalf("xadj[%d] = %d, expected %d", a, xadj.Data[a], len(want))
				}
				var row []int32
				for b := range neighbours[a] {
					row = append(row, int32(b))
				}
				slices.Sort(row)
				want = append(want, row...)
			}
			if xadj.Data[n] != int64(len(want)) || !slices.Equal(adjncy.Data, want) {
				t.Fatalf("adjncy %v, expected %v", adjncy.Data, want)
			}
			xadj.Free()
			adjncy.Free()
			deg, err := InDegrees(l)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(deg.Data, in) {
				t.Fatalf("in-degrees %v, expected %v", deg.Data, in)
			}
			deg.Free()
			if live := mem.Total().Live; live != start {
				t.Fatalf("%d bytes left", live-start)
			}
		}
	}
}

func TestQuality(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, parts := range []int{1, 2, 5, 64, 65, 200} {
		for _, m := range []int{0, 20, 3000} {
			l := randomList(rng, 300, m)
			a := make([]int32, l.n)
			if err := Random(a, parts, 1); err != nil {
				t.Fatal(err)
			}
			got, err := Quality(l, a, parts)
			if err != nil {
				t.Fatal(err)
			}
			want := Report{Parts: parts, Nodes: make([]int64, parts), Edges: make([]int64, parts),
				Boundary: make([][]int64, parts), Between: make([][]int64, parts), NodeBalance: 1, EdgeBalance: 1}
			for p := range parts {
				want.Boundary[p], want.Between[p] = make([]int64, parts), make([]int64, parts)
			}
			for _, p := range a {
				want.Nodes[p]++
			}
			seen := map[[2]int64]bool{}
			for i, u := range l.src {
				p, q := a[l.dst[i]], a[u]
				want.Edges[p]++
				want.Between[p][q]++
				if p == q {
					continue
				}
				want.EdgeCut++
				if k := [2]int64{int64(p), u}; !seen[k] {
					seen[k] = true
					want.Boundary[p][q]++
				}
			}
			want.NodeBalance = float64(slices.Max(want.Nodes)) * float64(parts) / float64(l.n)
			if m > 0 {
				want.EdgeCutFraction = float64(want.EdgeCut) / float64(len(l.src))
				want.EdgeBalance = float64(slices.Max(want.Edges)) * float64(parts) / float64(len(l.src))
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v\nexpected %+v", got, want)
			}
		}
	}
}

func TestReportForms(t *testing.T) {
	l := &list{n: 4, src: []int64{0, 0, 0, 3, 2}, dst: []int64{1, 2, 3, 0, 2}}
	r, err := Quality(l, []int32{0, 0, 1, 1}, 2)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"parts":2,"edge_cut":3,"edge_cut_fraction":0.6,"nodes":[2,2],"edges":[2,3],` +
		`"node_balance":1,"edge_balance":1.2,"boundary":[[0,1],[1,0]],"between":[[1,1],[2,1]]}`
	if string(text) != want {
		t.Fatalf("%s\nexpected %s", text, want)
	}
}

func TestErrors(t *testing.T) {
	start := mem.Total().Live
	bad := &list{n: 3, src: []int64{0, 1, 3}, dst: []int64{0, 1, 2}}
	_, _, err1 := adjacency(t, bad)
	_, err2 := InDegrees(bad)
	_, err3 := Quality(bad, make([]int32, 3), 2)
	for _, err := range []error{err1, err2, err3} {
		if err == nil || !strings.Contains(err.Error(), "edge 2 goes from node 3 to node 2; expected ids in [0, 3)") {
			t.Fatalf("got %v", err)
		}
	}
	good := &list{n: 3}
	if _, err := Quality(good, []int32{0, 1, 2}, 2); err == nil ||
		!strings.Contains(err.Error(), "node 2 is assigned to part 2") {
		t.Fatalf("got %v", err)
	}
	if _, err := Quality(good, []int32{0, 1}, 2); err == nil ||
		!strings.Contains(err.Error(), "2 nodes for a graph of 3") {
		t.Fatalf("got %v", err)
	}
	if live := mem.Total().Live; live != start {
		t.Fatalf("%d bytes left", live-start)
	}
}

// adjacency is the undirected graph in arrays of their own, which the caller frees.
func adjacency(t testing.TB, edges Edges) (xadj mem.Array[int64], adjncy mem.Array[int32], err error) {
	g, err := Sorting{Dir: t.TempDir(), Memory: 1 << 20}.Undirect(edges)
	if err != nil {
		return xadj, adjncy, err
	}
	defer g.Close()
	n, err := CountEntries(g)
	if err != nil {
		return xadj, adjncy, err
	}
	if xadj, err = mem.Make[int64](mem.Scratch, int(g.NumNodes())+1); err != nil {
		return xadj, adjncy, err
	}
	if adjncy, err = mem.Make[int32](mem.Scratch, int(n)); err != nil {
		xadj.Free()
		return xadj, adjncy, err
	}
	if FillAdjacency(g, xadj.Data[1:], adjncy.Data) == nil {
		t.Error("short xadj")
	}
	return xadj, adjncy, FillAdjacency(g, xadj.Data, adjncy.Data)
}
