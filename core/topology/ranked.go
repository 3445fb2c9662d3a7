package topology

import (
	"cmp"
	"encoding/binary"
	"slices"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/mem"
)

// Ranked is the cover of a price with its sums ranked, nil where Cover is. The first call for a price moves 4 bytes for
// each edge of a sum. The relation has its edge order.
func (g *Graph) Ranked(c *comm.Communicator, rel *graph.Relation, price graph.Price) (*graph.Cover, error) {
	cover, err := g.Cover(c, rel, price)
	if err != nil || cover == nil {
		return nil, err
	}
	if cover.Ranked != nil {
		return cover.Ranked, nil
	}
	numbers, err := handEdges(c, rel, price, 4, func(edge int32, dst []byte) {
		binary.LittleEndian.PutUint32(dst, uint32(edge))
	})
	x := graph.NewCover(rel.Parts)
	for r := 1; r < rel.Parts && err == nil; r++ {
		err = cmp.Or(rankRows(rel, price, r, x), rankSums(&cover.Sums[r], numbers[r].Data, &x.Sums[r]))
	}
	for r := range numbers {
		numbers[r].Free()
	}
	if err != nil {
		x.Free()
		return nil, err
	}
	cover.Ranked = x
	return x, nil
}

// rankRows lists the own rows of the ranked sums that a peer makes.
func rankRows(rel *graph.Relation, price graph.Price, r int, x *graph.Cover) error {
	h, n := &rel.Halo[r], 0
	sums := func(row int32) int {
		k0, k1 := rel.Span(int(row), h.Begin+h.Lead(price), h.End)
		return pieces(int(k1 - k0))
	}
	rows := rel.Covers[price].Rows[r].Data
	for _, row := range rows {
		n += sums(row)
	}
	if err := x.Rows[r].Make(mem.Structure, n); err != nil {
		return err
	}
	n = 0
	for _, row := range rows {
		for range sums(row) {
			x.Rows[r].Data[n] = row
			n++
		}
	}
	return nil
}

// rankSums cuts the sums of a round, whose edges their reader numbers so, and puts their edges into its order.
func rankSums(sums *graph.Partial, numbers []byte, x *graph.Partial) error {
	n, ptr := 0, sums.Ptr.Data
	for s := range sums.NumSums() {
		n += pieces(int(ptr[s+1] - ptr[s]))
	}
	if err := cmp.Or(x.Ptr.Make(mem.Structure, n+1), x.Col.Make(mem.Structure, len(sums.Col.Data))); err != nil {
		return err
	}
	n = 0
	var order []uint64 // the number of an edge, and its source
	for s := range sums.NumSums() {
		order = order[:0]
		for k := ptr[s]; k < ptr[s+1]; k++ {
			number := binary.LittleEndian.Uint32(numbers[4*k:])
			order = append(order, uint64(number)<<32|uint64(sums.Col.Data[k]))
		}
		slices.Sort(order)
		for i, edge := range order {
			x.Col.Data[int(ptr[s])+i] = int32(edge)
		}
		for k := ptr[s]; k < ptr[s+1]; k += graph.MostRanked {
			n++
			x.Ptr.Data[n] = min(k+graph.MostRanked, ptr[s+1])
		}
	}
	return nil
}

// pieces is how many ranked sums one over so many edges is.
func pieces(edges int) int { return (edges + graph.MostRanked - 1) / graph.MostRanked }
