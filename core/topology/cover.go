package topology

import (
	"encoding/binary"
	"fmt"
	"slices"

	"sar/core/comm"
	"sar/core/graph"
)

// tellLeading tells the owners of boundary rows how many of them travel as rows at each price.
func tellLeading(c *comm.Communicator, rels []*graph.Relation) error {
	rank, world := c.Rank(), c.World()
	tell := make([][]int64, world)
	for q := range tell {
		for _, rel := range rels {
			for price := range graph.NumPrices {
				tell[q] = append(tell[q], int64(rel.Halo[(rank-q+world)%world].Lead(price)))
			}
		}
	}
	heard, err := c.AllToAllInts(tell)
	if err != nil {
		return err
	}
	for i, rel := range rels {
		rel.SendLeading = make([][graph.NumPrices]int32, world)
		for r := 1; r < world; r++ {
			q := (rank + r) % world
			least := int64(0)
			for price, n := range heard[q][i*int(graph.NumPrices):][:graph.NumPrices] {
				if n < least || n > int64(len(rel.Send[r].Data)) {
					return fmt.Errorf("relation %s: rank %d wants %d of %d rows of rank %d, and %d at a lower price of sums",
						rel.Type, q, n, len(rel.Send[r].Data), rank, least)
				}
				least = n
				rel.SendLeading[r][price] = int32(n)
			}
			if err := groupsAscend(rel, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// groupsAscend checks that the send list of a round, between the numbers of rows that travel at each price, ascends.
func groupsAscend(rel *graph.Relation, round int) error {
	send, begin := rel.Send[round].Data, int32(0)
	for _, end := range append(rel.SendLeading[round][:], int32(len(send))) {
		for k := begin + 1; k < end; k++ {
			if send[k] <= send[k-1] {
				return fmt.Errorf("relation %s: rank %d reads rows %d and %d of rank %d in this order: their parts are not of the "+
					"same run of sar partition", rel.Type, (rel.Rank+round)%rel.Parts, send[k-1], send[k], rel.Rank)
			}
		}
		begin = end
	}
	return nil
}

// Cover is what it takes to send sums in place of the rows that do not travel at a price; nil where all do, on all
// workers. The first call for a price moves 4 bytes for each edge from such a row, and 4 for each sum.
func (g *Graph) Cover(c *comm.Communicator, rel *graph.Relation, price graph.Price) (*graph.Cover, error) {
	x := rel.Covers[price]
	if x == nil {
		made, err := makeCover(c, rel, price)
		if err != nil || made.Total == 0 {
			made.Free()
		}
		if err != nil {
			return nil, err
		}
		x, rel.Covers[price] = made, made
	}
	if x.Total == 0 {
		return nil, nil
	}
	return x, nil
}

func makeCover(c *comm.Communicator, rel *graph.Relation, price graph.Price) (x *graph.Cover, err error) {
	p := rel.Parts
	x = graph.NewCover(p)
	w := &coverWriter{rel: rel, price: price, cover: x, at: make([]place, p)}
	place := rel.Places()
	tell, records, own := make([][]int64, p), make([]int, p), int64(0)
	reaches, rows, sums, edges := make([]*graph.Reach, p), make([]int, p), make([]int, p), make([]int, p)
	tell[rel.Rank] = []int64{0, 0}
	for r := 1; r < p; r++ {
		h := &rel.Halo[r]
		begin := h.Begin + h.Lead(price)
		reach, err := rel.Reach(begin, h.End, place)
		if err != nil {
			return x, err
		}
		defer reach.Free()
		reaches[r], rows[r] = reach, reach.Len
		edges := int64(rel.ColPtr.Data[h.End] - rel.ColPtr.Data[begin])
		tell[h.Peer] = []int64{int64(reach.Len), edges}
		records[r] = reach.Len + int(edges)
		own += int64(reach.Len)
	}
	heard, err := c.AllToAllInts(tell)
	if err != nil {
		return x, err
	}
	recv := make([]int, p)
	for r := 1; r < p; r++ {
		q := (rel.Rank + r) % p
		n, of := heard[q][0], heard[q][1]
		if n < 0 || n > of || of >= 1<<31 || of > 0 && rel.Lead(r, price) == len(rel.Send[r].Data) {
			return x, fmt.Errorf("rank %d names %d sums of %d edges from rows of this rank", q, n, of)
		}
		sums[r], edges[r], recv[r] = int(n), int(of), int(n+of)
	}
	if err := x.Make(rows, sums, edges, true); err != nil {
		return x, err
	}
	for r := 1; r < p; r++ {
		reaches[r].List(x.Rows[r].Data, rel.Order.Data)
	}
	sum, err := c.SumInts(own)
	if err != nil || sum[0] == 0 {
		return x, err
	}
	x.Total = sum[0]
	return x, records4(c, records, recv, w.put, w.get)
}

// records4 sends records of 4 bytes to the owners of rows.
func records4(c *comm.Communicator, send, recv []int, put func(r int) uint32,
	get func(r, i int, n uint32) error) error {
	return records{send: send, recv: recv, size: 4,
		put: func(r, _ int, dst []byte) { binary.LittleEndian.PutUint32(dst, put(r)) },
		get: func(r, i int, src []byte) error { return get(r, i, binary.LittleEndian.Uint32(src)) },
	}.toOwners(c, comm.KindBuild)
}

// coverWriter puts the sums of one worker into records, and takes those of the peers from theirs. A sum is the
// in-degree of its row, and the numbers of its columns among those of the peer; the last one is marked.
type coverWriter struct {
	rel   *graph.Relation
	price graph.Price
	cover *graph.Cover
	at    []place // of what goes out, by round

	sum, edge int // of what comes in
	inside    bool
}

// place is a slot of a sum: after the in-degree, which comes first.
type place struct {
	sum     int
	k, last int32
	inside  bool
}

// begin goes to the first slot of a row that reads columns [first, end).
func (at *place) begin(rel *graph.Relation, row, first, end int32) {
	k0, k1 := rel.Span(int(row), first, end)
	at.k, at.last, at.inside = int32(k0), int32(k1), true
}

// advance goes to the next slot, and tells whether that was the last of the sum.
func (at *place) advance() bool {
	at.k++
	at.inside = at.k < at.last
	if !at.inside {
		at.sum++
	}
	return !at.inside
}

func (w *coverWriter) put(r int) uint32 {
	at, rel := &w.at[r], w.rel
	h := &rel.Halo[r]
	if !at.inside {
		row := w.cover.Rows[r].Data[at.sum]
		at.begin(rel, row, h.Begin+h.Lead(w.price), h.End)
		return uint32(rel.RowPtr.Data[row+1] - rel.RowPtr.Data[row])
	}
	number := uint32(rel.Col.Data[at.k] - h.Begin)
	if at.advance() {
		number |= lastEdge
	}
	return number
}

func (w *coverWriter) get(r, i int, n uint32) error {
	if i == 0 {
		w.sum, w.edge, w.inside = 0, 0, false
	}
	to, send := &w.cover.Sums[r], w.rel.Send[r].Data
	peer := (w.rel.Rank + r) % w.rel.Parts
	if !w.inside {
		if w.sum == to.NumSums() || n == 0 || n >= lastEdge {
			return fmt.Errorf("rank %d names sum %d of %d, of a row with %d in-edges", peer, w.sum, to.NumSums(), n)
		}
		w.cover.InDegree[r].Data[w.sum], w.inside = int32(n), true
		return nil
	}
	number := int(n &^ lastEdge)
	if w.edge == len(to.Col.Data) || number < w.rel.Lead(r, w.price) || number >= len(send) {
		return fmt.Errorf("rank %d names an edge from row %d, and sums are of rows %d to %d", peer, number,
			w.rel.Lead(r, w.price), len(send)-1)
	}
	to.Col.Data[w.edge] = send[number]
	w.edge++
	if n&lastEdge != 0 {
		slices.Sort(to.Col.Data[to.Ptr.Data[w.sum]:w.edge])
		w.sum++
		to.Ptr.Data[w.sum], w.inside = int32(w.edge), false
	}
	if w.edge == len(to.Col.Data) && w.sum != to.NumSums() {
		return fmt.Errorf("rank %d names the edges of %d sums of %d", peer, w.sum, to.NumSums())
	}
	return nil
}
