package graph

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// communities is a graph of blocks of size rows under shuffled numbers. Each row
// has degree in-edges, one in five of them from anywhere; extra is columns
// beyond the rows that each row reads as well.
func communities(blocks, size, degree, extra int, shuffle bool) (ptr []int64, col []int32, block []int32) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := blocks * size
	name := make([]int32, n)
	for i := range name {
		name[i] = int32(i)
	}
	if shuffle {
		rng.Shuffle(n, func(i, j int) { name[i], name[j] = name[j], name[i] })
	}
	rows, block := make([][]int32, n), make([]int32, n)
	for i := range n {
		row := make([]int32, degree)
		for k := range row {
			from := rng.IntN(n)
			if k%5 > 0 {
				from = i/size*size + rng.IntN(size)
			}
			row[k] = name[from]
		}
		slices.Sort(row)
		for k := range extra {
			row = append(row, int32(n+k))
		}
		rows[name[i]], block[name[i]] = row, int32(i/size)
	}
	ptr = make([]int64, n+1)
	for i, row := range rows {
		col = append(col, row...)
		ptr[i+1] = int64(len(col))
	}
	return ptr, col, block
}

func TestLocalityFindsCommunities(t *testing.T) {
	for _, extra := range []int{0, 20} {
		ptr, col, block := communities(20, 600, 15, extra, true)
		order, err := Locality(ptr, col)
		if err != nil {
			t.Fatal(err)
		}
		defer order.Free()
		seen := make([]bool, len(block))
		changes := 0
		for place, i := range order.Data {
			if seen[i] {
				t.Fatalf("row %d comes twice", i)
			}
			seen[i] = true
			if place > 0 && block[i] != block[order.Data[place-1]] {
				changes++
			}
		}
		// 19 where every community is one run; without an order it is 11,400.
		if len(order.Data) != len(block) || changes > 600 {
			t.Errorf("%d halo columns: %d of %d rows in order, %d changes of community", extra, len(order.Data), len(block),
				changes)
		}
		before, err := SlotsBefore(ptr, order.Data)
		if err != nil {
			t.Fatal(err)
		}
		defer before.Free()
		for place, i := range order.Data {
			if before.Data[place+1]-before.Data[place] != ptr[i+1]-ptr[i] {
				t.Fatalf("place %d: %d slots, row %d has %d", place, before.Data[place+1]-before.Data[place], i, ptr[i+1]-ptr[i])
			}
		}
		again, err := Locality(ptr, col)
		if err != nil || !slices.Equal(again.Data, order.Data) {
			t.Errorf("another order the second time, %v", err)
		}
		again.Free()
	}
}

func TestNoOrderWhereItGainsNothing(t *testing.T) {
	for name, graph := range map[string]func() ([]int64, []int32, []int32){
		"few rows":     func() ([]int64, []int32, []int32) { return communities(10, 600, 15, 0, true) },
		"one run each": func() ([]int64, []int32, []int32) { return communities(16, 1024, 15, 0, false) },
		"random":       func() ([]int64, []int32, []int32) { return communities(1, 12_000, 15, 0, true) },
		"no edges":     func() ([]int64, []int32, []int32) { return communities(1, 12_000, 0, 0, true) },
		"no rows":      func() ([]int64, []int32, []int32) { return []int64{0}, nil, nil },
	} {
		ptr, col, _ := graph()
		order, err := Locality(ptr, col)
		if err != nil || order.Data != nil {
			t.Errorf("%s: an order of %d rows, %v", name, len(order.Data), err)
		}
		order.Free()
	}
}

// TestRelationHasAnOrder builds a graph of two parts, where half of the sources
// are halo columns.
func TestRelationHasAnOrder(t *testing.T) {
	ptr, col, _ := communities(34, 500, 15, 0, true)
	n := int64(len(ptr) - 1)
	starts := []int64{0, n / 2, n}
	book, err := HomogeneousBook(starts)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range 2 {
		var src, dst []int64
		for i := starts[rank]; i < starts[rank+1]; i++ {
			for _, j := range col[ptr[i]:ptr[i+1]] {
				src, dst = append(src, int64(j)), append(dst, i)
			}
		}
		source, err := FromEdges(starts, rank, Ends{src, dst})
		if err != nil {
			t.Fatal(err)
		}
		rels, err := Build(book, rank, source, BuildOptions{EdgeOrder: true, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		r := rels[0]
		if len(r.Order.Data) != r.NumDst || len(r.RowsBefore.Data) != r.NumDst+1 || len(r.ColsBefore.Data) != r.NumSrc+1 ||
			int64(r.RowsBefore.Data[r.NumDst]) != r.NumEdges || r.ColsBefore.Data[r.NumSrc] != r.ColPtr.Data[r.NumSrc] {
			t.Errorf("rank %d: %d rows in order, of %d", rank, len(r.Order.Data), r.NumDst)
		}
		r.Free()
		if r.Bytes() != 0 {
			t.Errorf("%d bytes after Free", r.Bytes())
		}
		source.Free()
	}
}
