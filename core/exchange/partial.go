package exchange

import (
	"sar/core/comm"
	"sar/core/internal/view"
)

// partialResults adds to the results of own rows what the owners of sources compute for them, after what own
// sources come to. Rows of destinations go out and results come back in the order of rounds. Wire, per sum
// of the cover: what the program reads of a destination, its result, and the references and sums of its softmax.
func (x program[T]) partialResults(c Covering, dir comm.Dir, own *reader[T], start Start) error {
	rel, layout := x.Rel, x.Program.Partial(view.Size[T]())
	partials := x.Partials(layout)
	made, got := c.sums()
	m := &RoundTrip{
		Pushed: true, RowBytes: layout.SentBytes, ReplyBytes: layout.ReturnedBytes, Local: own.local,
		Send: make([]int, rel.Parts), Recv: make([]int, rel.Parts),
	}
	for r := 1; r < rel.Parts; r++ { // in round r rows go to the peer whose rows come in round P-r of an ordinary one
		m.Send[r], m.Recv[r] = got[rel.Parts-r], made[rel.Parts-r]
	}
	mine := func(r, first, n int) []int32 { return c.Cover.Rows[rel.Parts-r].Data[first : first+n] }
	m.Produce = func(r, first, n int, dst []byte) error {
		partials.Gather(dst, mine(r, first, n))
		return nil
	}
	m.Compute = func(r, first, n int, src, reply []byte) error {
		partials.Compute(&c.Cover.Sums[rel.Parts-r], first, n, src, view.Numbers[T](reply))
		return nil
	}
	m.Take = func(r, first, n int, src []byte) error {
		partials.Take(view.Numbers[T](src), mine(r, first, n))
		return nil
	}
	return start(comm.KindExpression, dir, c.named("rows of destinations"), own.set,
		max(layout.SentBytes, layout.ReturnedBytes), func(op *comm.Op) error {
			m.Op = op
			_, err := m.Move(rel.Rank, rel.Parts)
			return err
		})
}
