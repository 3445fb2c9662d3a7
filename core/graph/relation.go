package graph

import (
	"slices"

	"sar/core/mem"
)

// Relation is what a worker knows of one edge type once the workers have told each other
// what they read of each other's rows (core/topology).
type Relation struct {
	*Structure
	NumEdgesGlobal int64 // over all workers

	// Send[r], for r = 1..P-1, are the own source rows that peer (Rank+r) mod P
	// reads, in the order in which it numbers them.
	Send []mem.Array[int32]
	// SendLeading[r] are how many of them, the first ones, travel as rows, by price; nil: all.
	SendLeading [][NumPrices]int32
	// Covers are, by price, what it takes to send sums for the other rows; nil: not made.
	Covers [NumPrices + 1]*Cover
	// OutDegree[i] is the number of edges, on all workers, that leave own source row i.
	OutDegree mem.Array[int64]

	// Pushed are, by price, the edges over which owners of sources compute gradients.
	Pushed [NumPrices + 1]Pushed
}

// Pushed is edges from sources whose rows do not travel, of the pairs of workers between which the owners of sources
// compute gradients; nil before there is such a pair. Outgoing[r] are those from own sources into rows of peer (Rank+r)
// mod P, Reached[r] the own rows that those from peer (Rank-r) mod P lead to, in the order in which they travel.
type Pushed struct {
	Outgoing []Outgoing
	Reached  []mem.Array[int32]
}

// Cover is which sums travel in place of rows: those of rows of peers that this worker makes, and
// those of own rows that peers make.
type Cover struct {
	Total int64 // sums, between all workers
	// Rows[r] are the own rows of which peer (Rank-r) mod P makes sums, in the order in which
	// they travel: that in which rows are computed.
	Rows []mem.Array[int32]
	// Sums[r] are the sums that this worker makes for peer (Rank+r) mod P, in the peer's order, and
	// InDegree[r] the in-edges of their rows, on all workers.
	Sums     []Partial
	InDegree []mem.Array[int32]
	// Ranked is the same for greatest and least messages, whose winning edges matter: the edges of a sum are in the order
	// in which its reader numbers them, and there are at most MostRanked, so that a byte says which of them won, or none.
	// A row whose sum has more edges has several, one after the other. nil: not made.
	Ranked *Cover

	all mem.Array[int32] // that the others are parts of
}

// MostRanked is how many edges a ranked sum has at most.
const MostRanked = 255

// Partial is a sparse matrix whose columns number own rows: sum i reads Col[Ptr[i]:Ptr[i+1]], which ascend where the
// sums are not ranked.
type Partial struct{ Ptr, Col mem.Array[int32] }

// NumSums is how many sums there are.
func (p *Partial) NumSums() int { return max(0, len(p.Ptr.Data)-1) }

// Ascends tells whether own rows that peers read are in ascending order for every peer.
func (r *Relation) Ascends() bool {
	for round := 1; round < r.Parts; round++ {
		if r.Lead(round, SumIsHalf) < len(r.Send[round].Data) {
			return false
		}
	}
	return true
}

// RankedEdges appends to list the edges of ranked sum i of a round in their order, as this worker, which reads it,
// numbers them. The relation has its edge order.
func (r *Relation) RankedEdges(round int, price Price, i int, list []int32) []int32 {
	rows, h, piece := r.Covers[price].Ranked.Rows[round].Data, &r.Halo[round], 0
	for piece < i && rows[i-piece-1] == rows[i] {
		piece++
	}
	k0, k1 := r.Span(int(rows[i]), h.Begin+h.Lead(price), h.End)
	from := len(list)
	list = append(list, r.RowEdge.Data[k0:k1]...)
	slices.Sort(list[from:])
	n := copy(list[from:], list[from+piece*MostRanked:min(len(list), from+(piece+1)*MostRanked)])
	return list[:from+n]
}

// NewCover is one between so many workers, without sums.
func NewCover(parts int) *Cover {
	return &Cover{Rows: make([]mem.Array[int32], parts), Sums: make([]Partial, parts),
		InDegree: make([]mem.Array[int32], parts)}
}

// Make makes room for so many rows, sums, and edges of sums by round; with degrees, for the in-degrees of sums too. All
// is one array: with one for each pair of workers, pages that are not full are up to a third of it.
func (c *Cover) Make(rows, sums, edges []int, degrees bool) error {
	total := 0
	for r := range rows {
		total += rows[r] + sums[r] + 1 + edges[r]
		if degrees {
			total += sums[r]
		}
	}
	if err := c.all.Make(mem.Structure, total); err != nil {
		return err
	}
	rest := c.all.Data
	part := func(n int) (a mem.Array[int32]) {
		a.Data, rest = rest[:n:n], rest[n:]
		return a
	}
	for r := range rows {
		c.Rows[r], c.Sums[r] = part(rows[r]), Partial{Ptr: part(sums[r] + 1), Col: part(edges[r])}
		if degrees {
			c.InDegree[r] = part(sums[r])
		}
	}
	return nil
}

// Free releases what the cover holds.
func (c *Cover) Free() { free(c.arrays()) }

func (c *Cover) arrays() []memory {
	if c == nil {
		return nil
	}
	return append(c.Ranked.arrays(), &c.all)
}

// Lead is how many rows of the send list for round r travel as rows at a price.
func (r *Relation) Lead(round int, price Price) int {
	switch {
	case r.SendLeading == nil:
		return len(r.Send[round].Data)
	case price == SumIsFree:
		return 0
	}
	return int(r.SendLeading[round][price])
}

func (r *Relation) arrays() []memory {
	all := append(r.Structure.arrays(), &r.OutDegree)
	for i := range r.Send {
		all = append(all, &r.Send[i])
	}
	for _, p := range r.Pushed {
		for i := range p.Outgoing {
			all = append(append(all, p.Outgoing[i].arrays()...), &p.Reached[i])
		}
	}
	for _, c := range r.Covers {
		all = append(all, c.arrays()...)
	}
	return all
}

// Bytes is what the relation holds off the Go heap, in whole pages.
func (r *Relation) Bytes() int64 { return held(r.arrays()) }

// Free releases every array. It may be called again. The source of edges belongs to
// whoever made it.
func (r *Relation) Free() {
	r.Structure.Free()
	free(r.arrays())
}
