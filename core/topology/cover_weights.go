package topology

import (
	"cmp"
	"slices"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/mem"
)

// Weights gives the owners of sources what the edges of their sums are multiplied with. all are size bytes of each
// edge, in the users' order. The result is by round, in the order of Sums[r].Col of the cover; free it. The relation
// has its edge order.
func Weights(c *comm.Communicator, rel *graph.Relation, price graph.Price, all []byte, size int) ([]mem.Array[byte],
	error) {
	return handEdges(c, rel, price, size, func(edge int32, dst []byte) { copy(dst, all[int(edge)*size:]) })
}

// handEdges is Weights of what of writes for each edge.
func handEdges(c *comm.Communicator, rel *graph.Relation, price graph.Price, size int,
	of func(edge int32, dst []byte)) ([]mem.Array[byte], error) {
	cover, p := rel.Covers[price], rel.Parts
	made, send, recv := make([]mem.Array[byte], p), make([]int, p), make([]int, p)
	at := make([]place, p)
	for r := 1; r < p; r++ {
		h := &rel.Halo[r]
		send[r] = int(rel.ColPtr.Data[h.End] - rel.ColPtr.Data[h.Begin+h.Lead(price)])
		recv[r] = len(cover.Sums[r].Col.Data)
		if err := made[r].Make(mem.Structure, recv[r]*size); err != nil {
			return made, err
		}
	}
	put := func(r, _ int, dst []byte) {
		at, h := &at[r], &rel.Halo[r]
		if !at.inside {
			at.begin(rel, cover.Rows[r].Data[at.sum], h.Begin+h.Lead(price), h.End)
		}
		of(rel.RowEdge.Data[at.k], dst[:size])
		at.advance()
	}
	var to []int32 // of the edges of a round, in the order in which they come
	get := func(r, i int, src []byte) error {
		if i == 0 {
			to = comeAt(&cover.Sums[r], rel.Send[r].Data, rel.NumSrc)
		}
		copy(made[r].Data[int(to[i])*size:][:size], src)
		return nil
	}
	return made, records{send: send, recv: recv, size: size, put: put, get: get}.toOwners(c, comm.KindBuild)
}

// comeAt is the places in sums.Col of edges in the order in which readers name them: sum by sum, by the place of their
// source in the send list.
func comeAt(sums *graph.Partial, send []int32, sources int) []int32 {
	number := make([]int32, sources)
	for i, row := range send {
		number[row] = int32(i)
	}
	to := make([]int32, len(sums.Col.Data))
	for i := range to {
		to[i] = int32(i)
	}
	for s := range sums.NumSums() {
		slices.SortStableFunc(to[sums.Ptr.Data[s]:sums.Ptr.Data[s+1]], func(a, b int32) int {
			return cmp.Compare(number[sums.Col.Data[a]], number[sums.Col.Data[b]])
		})
	}
	return to
}
