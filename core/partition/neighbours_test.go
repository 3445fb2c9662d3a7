package partition

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sar/core/mem"
)

// matrix is a CSR in memory.
type matrix struct {
	ptr     []int64
	columns []int32
}

func (m matrix) NumNodes() int64   { return int64(len(m.ptr)) - 1 }
func (m matrix) NumEntries() int64 { return int64(len(m.columns)) }
func (m matrix) ReadOffsets(first int64, dst []int64) error {
	if copy(dst, m.ptr[first:]) < len(dst) {
		return errors.New("beyond the end")
	}
	return nil
}
func (m matrix) ReadColumns(first int64, dst []int32) error {
	if copy(dst, m.columns[first:]) < len(dst) {
		return errors.New("beyond the end")
	}
	return nil
}

// inEdges is the list as a CSR of in-edges, with all repetitions and loops.
func inEdges(l *list) matrix {
	rows := make([][]int32, l.n)
	for i, v := range l.dst {
		rows[v] = append(rows[v], int32(l.src[i]))
	}
	m := matrix{ptr: []int64{0}}
	for _, row := range rows {
		slices.Sort(row)
		m.columns = append(m.columns, row...)
		m.ptr = append(m.ptr, int64(len(m.columns)))
	}
	return m
}

// both is the list and its mirror image.
func both(l *list) *list {
	return &list{l.n, slices.Concat(l.src, l.dst), slices.Concat(l.dst, l.src)}
}

// sets are the neighbours of each node, by brute force.
func sets(l *list) [][]int32 { return setsOf(l, false) }

// setsOf has the neighbours of each node, or those alone that its own edges lead to.
func setsOf(l *list, outward bool) [][]int32 {
	out := make([][]int32, l.n)
	for i, u := range l.src {
		if v := l.dst[i]; u != v {
			out[u] = append(out[u], int32(v))
			if !outward {
				out[v] = append(out[v], int32(u))
			}
		}
	}
	for v := range out {
		slices.Sort(out[v])
		out[v] = slices.Compact(out[v])
	}
	return out
}

func collect(t *testing.T, g Neighbours) [][]int32 {
	t.Helper()
	var out [][]int32
	err := g.Rows(func(first int64, ptr []int64, adj []int32) error {
		if first != int64(len(out)) || len(ptr) < 2 || ptr[0] != 0 || ptr[len(ptr)-1] != int64(len(adj)) {
			t.Fatalf("a run from node %d after %d nodes, offsets %v, %d neighbours", first, len(out), ptr, len(adj))
		}
		for i, end := range ptr[1:] {
			out = append(out, slices.Clone(adj[ptr[i]:end]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func same(a, b [][]int32) bool { return slices.EqualFunc(a, b, slices.Equal) }

// TestSymmetric reads matrices in pieces of every size, hubs in several.
func TestSymmetric(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int64{0, 1, 2, 40} {
		for _, m := range []int{0, 1, 30, 400} {
			if n == 0 && m > 0 {
				continue
			}
			l := both(randomList(rng, max(n, 1), m))
			l.n = n
			for _, room := range []int{1, 2, 7, 64, 1 << 20} {
				if got := collect(t, symmetric{inEdges(l), room}); !same(got, sets(l)) {
					t.Fatalf("%d nodes, %d edges, %d at a time: %v", n, m, room, got)
				}
			}
		}
	}
}

func TestSymmetricStops(t *testing.T) {
	l := both(randomList(rand.New(rand.NewPCG(2, 1)), 50, 300))
	start := mem.Total().Live
	want, calls := errors.New("enough"), 0
	err := symmetric{inEdges(l), 5}.Rows(func(int64, []int64, []int32) error {
		calls++
		if calls == 3 {
			return want
		}
		return nil
	})
	if err != want || calls != 3 {
		t.Fatalf("%v after %d calls", err, calls)
	}
	if live := mem.Total().Live; live != start {
		t.Fatalf("%d bytes are still held", live-start)
	}
}

func TestDamagedMatrices(t *testing.T) {
	for want, m := range map[string]matrix{
		"not in ascending order": {[]int64{0, 2, 2}, []int32{1, 0}},
		"has neighbour 2":        {[]int64{0, 1, 1}, []int32{2}},
		"has neighbour -1":       {[]int64{0, 1, 1}, []int32{-1}},
		"has neighbour -5":       {[]int64{0, 2, 2}, []int32{0, -5}},
		"begins at entry 1":      {[]int64{1, 1, 1}, []int32{0}},
		"row 1 ends at entry 0":  {[]int64{0, 1, 0}, []int32{0}},
		"row 1 ends at entry 9":  {[]int64{0, 1, 9}, []int32{0}},
		"ends at entry 1 of 2":   {[]int64{0, 1, 1}, []int32{0, 1}},
	} {
		err := Symmetric(m).Rows(func(int64, []int64, []int32) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, expected %q", m, err, want)
		}
	}
}

func TestIsSymmetric(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 50 {
		l := randomList(rng, 20, 30)
		for _, l := range []*list{l, both(l)} {
			want := true
			for i, u := range l.src {
				mirror := false
				for j := range l.src {
					mirror = mirror || l.src[j] == l.dst[i] && l.dst[j] == u
				}
				want = want && mirror
			}
			if got, err := IsSymmetric(inEdges(l)); err != nil || got != want {
				t.Fatalf("%v, %v; expected %v", got, err, want)
			}
		}
	}
}

// TestUndirect sorts graphs in memory that they do not fit, and writes and reads them; outward too.
func TestUndirect(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	start := mem.Total().Live
	for _, n := range []int64{0, 1, 2, 300, 9000} {
		m := int(12 * n)
		l := randomList(rng, max(n, 1), m)
		l.n = n
		for _, memory := range []int64{1, 1 << 30} {
			dir := t.TempDir()
			out, err := Sorting{Dir: dir, Memory: memory, Outward: true}.undirect(l, 1<<10)
			if err != nil {
				t.Fatal(err)
			}
			if !same(collect(t, out), setsOf(l, true)) {
				t.Fatalf("%d nodes, memory %d: wrong neighbours by edges' own direction", n, memory)
			}
			out.Close()
			g, err := Sorting{Dir: dir, Memory: memory}.undirect(l, 1<<10)
			if err != nil {
				t.Fatal(err)
			}
			if n == 9000 && memory == 1 && len(g.files) < 50 {
				t.Fatalf("%d buckets", len(g.files))
			}
			for range 2 {
				if !same(collect(t, g), sets(l)) {
					t.Fatalf("%d nodes, memory %d: wrong neighbours", n, memory)
				}
			}
			checkParHIP(t, g, sets(l), nil, nil)
			left, _ := filepath.Glob(dir + "/.sar*")
			if len(left) > 0 {
				t.Fatalf("left %v", left)
			}
			g.Close()
		}
	}
	if live := mem.Total().Live; live != start {
		t.Fatalf("%d bytes are still held", live-start)
	}
}

// TestUndirectHub has a node that everybody is a neighbour of, several times.
func TestUndirectHub(t *testing.T) {
	l := &list{n: 5000}
	for range 3 {
		for v := range l.n {
			l.src, l.dst = append(l.src, v, v), append(l.dst, 77, (v+1)%l.n)
		}
	}
	g, err := Sorting{Dir: t.TempDir(), Memory: 1}.undirect(l, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if !same(collect(t, g), sets(l)) {
		t.Fatal("wrong neighbours")
	}
}

// checkParHIP writes a graph, or a part of it, and reads it again.
func checkParHIP(t *testing.T, g Neighbours, want [][]int32, weights []int32, part *Subgraph) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "graph"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	nodes, entries, err := WriteParHIP(f, g, weights, part)
	if err != nil {
		t.Fatal(err)
	}
	if nodes != int64(len(want)) {
		t.Fatalf("%d nodes, expected %d", nodes, len(want))
	}
	if got := collect(t, Symmetric(parhip{f, nodes, entries})); !same(got, want) {
		t.Fatalf("%v, expected %v", got, want)
	}
	size := parhipHeader + 8*(nodes+1) + 4*entries
	if weights != nil {
		size += 4 * nodes
	}
	if st, _ := f.Stat(); st.Size() != size {
		t.Fatalf("%d bytes, expected %d", st.Size(), size)
	}
}

func TestWriteSubgraphs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	l := randomList(rng, 60, 300)
	assignment, weights := make([]int32, 60), make([]int32, 60)
	for v := range assignment {
		assignment[v], weights[v] = rng.Int32N(4), rng.Int32N(9) // part 4 is empty
	}
	for part := range int32(5) {
		number := map[int32]int32{}
		for v, p := range assignment {
			if p == part {
				number[int32(v)] = int32(len(number))
			}
		}
		want := make([][]int32, len(number))
		for v, set := range sets(l) {
			if i, inside := number[int32(v)]; inside {
				for _, u := range set {
					if j, inside := number[u]; inside {
						want[i] = append(want[i], j)
					}
				}
			}
		}
		checkParHIP(t, Symmetric(inEdges(both(l))), want, weights, &Subgraph{assignment, part})
	}
}

func TestUndirectStops(t *testing.T) {
	l := randomList(rand.New(rand.NewPCG(6, 1)), 100, 500)
	want := errors.New("enough")
	for _, after := range []int64{1, 600, 1000} {
		_, err := Sorting{Dir: t.TempDir(), Memory: 1 << 20, Progress: func(done, total int64) error {
			if total != 2*l.NumEdges() || done > total {
				t.Fatalf("%d of %d", done, total)
			}
			if done >= after {
				return want
			}
			return nil
		}}.Undirect(l)
		if err != want {
			t.Fatal(err)
		}
	}
	if _, err := (Sorting{Dir: "/nowhere", Memory: 1}).Undirect(l); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}
