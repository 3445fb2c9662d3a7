package input

import (
	"archive/zip"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sar/core/mem"
	"sar/core/store/disk"
	"sar/core/store/storetest"
)

func TestAddSelfLoops(t *testing.T) {
	start := mem.Total().Live
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int64{1, 64, 65, 70_000} {
		const m = 500
		src, dst := make([]int64, m), make([]int64, m)
		has := map[int64]bool{}
		for i := range src {
			src[i], dst[i] = rng.Int64N(n), rng.Int64N(n)
			if i%3 == 0 {
				dst[i] = src[i]
			}
			if src[i] == dst[i] {
				has[src[i]] = true
			}
		}
		d, err := OpenNPZ(disk.InMemory("memory", storetest.Zip(t, zip.Store, map[string][]byte{
			"edge_index": storetest.Array("<i8", fmt.Sprintf("(2, %d)", m), storetest.Bytes(append(slices.Clone(src), dst...))),
			"num_nodes":  storetest.Array("<i8", "()", storetest.Bytes([]int64{n})),
		})))
		if err != nil {
			t.Fatal(err)
		}
		g, err := AddSelfLoops(d)
		if err != nil {
			t.Fatal(err)
		}
		want := [][2]int64{}
		for i := range src {
			want = append(want, [2]int64{src[i], dst[i]})
		}
		for u := range n {
			if !has[u] {
				want = append(want, [2]int64{u, u})
			}
		}
		for range 2 { // the same each time
			var got [][2]int64
			err = g.EdgesBatch(func(first int64, s, d []int64) error {
				if first != int64(len(got)) || len(s) == 0 || len(s) > disk.Batch {
					t.Fatalf("a run of %d edges from %d on after %d", len(s), first, len(got))
				}
				for i := range s {
					got = append(got, [2]int64{s[i], d[i]})
				}
				return nil
			})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%d nodes: %d edges, expected %d: %v", n, len(got), len(want), err)
			}
		}
		if g.NumEdges() != int64(len(want)) || g.EdgeTypes()[0].Rows != g.NumEdges() {
			t.Fatalf("%d edges announced of %d", g.NumEdges(), len(want))
		}
		if _, err := AddSelfLoops(g); err == nil {
			t.Fatal("self loops twice")
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if live := mem.Total().Live; live != start {
		t.Fatalf("%d bytes left", live-start)
	}
}

func TestRefusedSelfLoops(t *testing.T) {
	edges := storetest.Array("<i8", "(2, 1)", storetest.Bytes([]int64{0, 3}))
	d, err := OpenNPZ(disk.InMemory("memory", storetest.Zip(t, zip.Store,
		map[string][]byte{"edge_index": edges, "w": storetest.Array("<i8", "(1,)", storetest.Bytes([]int64{1}))})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AddSelfLoops(d); err == nil || !strings.Contains(err.Error(), `edge feature "w"`) {
		t.Fatalf("edge features: %v", err)
	}
	if _, err := AddSelfLoops(&npzGraph{}); err == nil || !strings.Contains(err.Error(), "graphs of one type") {
		t.Fatalf("several types: %v", err)
	}
}
