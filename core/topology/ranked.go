package topology

import (
	"cmp"
	"encoding/binary"
	"slices"

	"sar/core/comm"
	"sar/core/graph"
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
	x, parts := graph.NewCover(rel.Parts), rel.Parts
	rows, sums, edges := make([]int, parts), make([]int, parts), make([]int, parts)
	for r := 1; r < parts; r++ {
		for _, row := range cover.Rows[r].Data {
			rows[r] += got(rel, price, r, row)
		}
		ptr := cover.Sums[r].Ptr.Data
		for s := range cover.Sums[r].NumSums() {
			sums[r] += pieces(int(ptr[s+1] - ptr[s]))
		}
		edges[r] = len(cover.Sums[r].Col.Data)
	}
	if err = cmp.Or(err, x.Make(rows, sums, edges, false)); err == nil {
		for r := 1; r < parts; r++ {
			rankRows(rel, price, r, x.Rows[r].Data)
			rankSums(&cover.Sums[r], numbers[r].Data, &x.Sums[r])
		}
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

// got is how many ranked sums of an own row a peer makes.
func got(rel *graph.Relation, price graph.Price, r int, row int32) int {
	h := &rel.Halo[r]
	k0, k1 := rel.Span(int(row), h.Begin+h.Lead(price), h.End)
	return pieces(int(k1 - k0))
}

// rankRows lists the own rows of the ranked sums that a peer makes.
func rankRows(rel *graph.Relation, price graph.Price, r int, to []int32) {
	n := 0
	for _, row := range rel.Covers[price].Rows[r].Data {
		for range got(rel, price, r, row) {
			to[n] = row
			n++
		}
	}
}

// rankSums cuts the sums of a round, whose edges their reader numbers so, and puts their edges into its order.
func rankSums(sums *graph.Partial, numbers []byte, x *graph.Partial) {
	n, ptr := 0, sums.Ptr.Data
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
}

// pieces is how many ranked sums one over so many edges is.
func pieces(edges int) int { return (edges + graph.MostRanked - 1) / graph.MostRanked }
