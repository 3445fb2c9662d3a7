package graph

import (
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/mem"
)

// Slots in 16 and in 32 bits say the same.
func TestOutgoing(t *testing.T) {
	for _, rows := range []int{1, 300, 1 << 16, 1<<16 + 1, 90_000} {
		rng := rand.New(rand.NewPCG(uint64(rows), 1))
		degrees := []int{0, 1, 7, 0, 40, 2000}
		var want [][]int32
		edges := 0
		for _, d := range degrees {
			of := make([]int32, d)
			for i := range of {
				of[i] = int32(rng.IntN(rows)) // some more than once
			}
			want, edges = append(want, of), edges+d
		}
		want[1][0] = int32(rows - 1)
		var o Outgoing
		if err := o.Make(len(degrees), rows, int64(edges)); err != nil {
			t.Fatal(err)
		}
		k := 0
		for i, of := range want {
			for _, row := range of {
				o.Put(k, row)
				k++
			}
			o.Ptr.Data[i+1] = int32(k)
		}
		o.Sort(3)
		perEdge := int64(4)
		if rows <= 1<<16 {
			perEdge = 2
		}
		if n := held(o.arrays()); n < perEdge*int64(edges) || n > perEdge*int64(edges)+2*4096+4096 {
			t.Errorf("%d rows: %d edges take %d bytes", rows, edges, n)
		}
		for i, of := range want {
			slices.Sort(of)
			k0, k1 := int64(o.Ptr.Data[i]), int64(o.Ptr.Data[i+1])
			got := make([]int32, k1-k0)
			o.Rows(got, k0, -5)
			for n, row := range of {
				if got[n] != row+5 {
					t.Fatalf("%d rows: edge %d of source %d leads to %d, want %d", rows, n, i, got[n]-5, row)
				}
			}
			for _, end := range []int32{0, 1, int32(rows / 2), int32(rows - 1), int32(rows)} {
				at, _ := slices.BinarySearch(of, end)
				if got := o.runEnd(k0, k1, end); got != k0+int64(at) {
					t.Fatalf("%d rows: edges of source %d below row %d end at %d, want %d", rows, i, end, got-k0, at)
				}
			}
		}
		frames, err := NewFrames(len(degrees) + 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			frames.Begin(&o)
			taken := make([]int64, len(degrees))
			for end := int32(0); end <= int32(rows); end += int32(1 + rng.IntN(rows)) {
				for i, of := range want {
					at, _ := slices.BinarySearch(of, end)
					k0, k1 := frames.Take(i, end)
					if first := int64(o.Ptr.Data[i]); k0 != first+taken[i] || k1 != first+int64(at) {
						t.Fatalf("%d rows: source %d has slots %d to %d before row %d, want %d to %d", rows, i, k0, k1, end,
							first+taken[i], first+int64(at))
					}
					taken[i] = int64(at)
				}
			}
		}
		frames.Free()
		free(o.arrays())
	}
}

// The rows that a peer's sources reach, numbered in the order in which rows are computed.
func TestReach(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, rows := range []int{1, 64, 65, 1000} {
		for _, ordered := range []bool{false, true} {
			rel := &Structure{NumDst: rows}
			order := make([]int32, rows)
			for i, row := range rng.Perm(rows) {
				order[i] = int32(row)
			}
			if ordered {
				rel.Order = mem.Array[int32]{Data: order}
			}
			begins := []int32{0, 2, 3, 3, 6} // slots of columns
			rel.ColPtr = mem.Array[int32]{Data: begins}
			for range 6 {
				rel.Row.Data = append(rel.Row.Data, int32(rng.IntN(rows)))
			}
			x, err := rel.Reach(1, 4, rel.Places())
			if err != nil {
				t.Fatal(err)
			}
			list := make([]int32, x.Len)
			x.List(list, order)
			want := slices.Compact(slices.Sorted(slices.Values(rel.Row.Data[2:6])))
			if got := slices.Sorted(slices.Values(list)); !slices.Equal(got, want) {
				t.Errorf("rows %v, want %v", got, want)
			}
			at := func(row int32) int { return slices.Index(order, row) }
			for i, row := range list {
				if x.Number(row) != int32(i) {
					t.Errorf("row %d is number %d and comes at %d", row, x.Number(row), i)
				}
				if i > 0 && (ordered && at(row) < at(list[i-1]) || !ordered && row < list[i-1]) {
					t.Errorf("%v are not in order", list)
				}
			}
			x.Free()
			none, err := rel.Reach(4, 4, rel.Places())
			if err != nil || none.Len != 0 {
				t.Errorf("no column, and %d rows, %v", none.Len, err)
			}
			none.Free()
		}
	}
}
