package exchange

import (
	"sar/core/comm"
	"sar/core/expr"
	"sar/core/graph"
)

// results is partial results of a round's sums, which this worker makes, and gets.
func (x program[T]) results(c Covering, layout *expr.PartialLayout) (
	compute func(r, first, n int, src, reply []byte) error, take func(r, first, n int, src []byte) error,
	partials *expr.Partials[T]) {
	partials = x.Partials(layout)
	compute = func(r, first, n int, src, reply []byte) error {
		partials.Compute(&c.Cover.Sums[r], first, n, src, reply)
		return nil
	}
	take = func(r, first, n int, src []byte) error {
		return partials.Take(src, c.Cover.Rows[r].Data[first:first+n], c.edges(x.Rel, r, first))
	}
	return compute, take, partials
}

// resultsAhead has partial results for which no rows of destinations are needed travel ahead of rows. Wire, per sum of
// the cover: its result.
func (x program[T]) resultsAhead(c Covering, layout *expr.PartialLayout) *Ahead {
	made, got := c.sums()
	compute, take, _ := x.results(c, layout)
	return &Ahead{
		Way: comm.ToOwner, RowBytes: layout.ReturnedBytes, Send: made, Recv: got,
		Produce: func(r, first, n int, dst []byte) error { return compute(r, first, n, nil, dst) }, Consume: take,
	}
}

// pickedAhead is what backward of greatest and least messages sends ahead: gradients of rows of destinations, which
// owners of sources add to those of the sources that won. Wire, per sum of the cover: plan.PickBytes.
func (x program[T]) pickedAhead(c Covering, plan *expr.GradientPlan, b *expr.Backward[T]) *Ahead {
	made, got := c.sums()
	return &Ahead{
		Way: comm.Pushed, RowBytes: plan.PickBytes, Send: got, Recv: made,
		Produce: func(r, first, n int, dst []byte) error {
			b.GatherPicked(dst, c.Cover.Rows[r].Data[first:first+n], c.edges(x.Rel, r, first))
			return nil
		},
		Consume: func(r, first, n int, src []byte) error { return b.AddPicked(&c.Cover.Sums[r], first, n, src) },
	}
}

// edges are those of the ranked sums of a round, from first on.
func (c Covering) edges(rel *graph.Relation, r, first int) func(k int, list []int32) []int32 {
	return func(k int, list []int32) []int32 { return rel.RankedEdges(r, c.Price, first+k, list) }
}

// partialResults adds to the results of own rows what the owners of sources compute for them, after what own
// sources come to. Rows of destinations go out and results come back in the order of rounds. Wire, per sum
// of the cover: what the program reads of a destination, its result, and the references and sums of its softmax.
func (x program[T]) partialResults(c Covering, layout *expr.PartialLayout, dir comm.Dir, own *reader[T],
	start Start) error {
	rel := x.Rel
	compute, take, partials := x.results(c, layout)
	made, got := c.sums()
	m := &RoundTrip{
		Pushed: true, RowBytes: layout.SentBytes, ReplyBytes: layout.ReturnedBytes, Local: own.local,
		Send: make([]int, rel.Parts), Recv: make([]int, rel.Parts),
	}
	for r := 1; r < rel.Parts; r++ { // in round r rows go to the peer whose rows come in round P-r of an ordinary one
		m.Send[r], m.Recv[r] = got[rel.Parts-r], made[rel.Parts-r]
	}
	m.Produce = func(r, first, n int, dst []byte) error {
		partials.Gather(dst, c.Cover.Rows[rel.Parts-r].Data[first:first+n])
		return nil
	}
	m.Compute = func(r, first, n int, src, reply []byte) error { return compute(rel.Parts-r, first, n, src, reply) }
	m.Take = func(r, first, n int, src []byte) error { return take(rel.Parts-r, first, n, src) }
	return start(comm.KindExpression, dir, c.named("rows of destinations"), own.set,
		max(layout.SentBytes, layout.ReturnedBytes), func(op *comm.Op) error {
			m.Op = op
			_, err := m.Move(rel.Rank, rel.Parts)
			return err
		})
}
