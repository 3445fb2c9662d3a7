package exchange

import (
	"sar/core/comm"
	"sar/core/expr"
	"sar/core/graph"
	"sar/core/internal/view"
)

// PushPlan says which pairs of workers compute gradients at the owner of the sources, by
// round: Out[r] where own sources are computed with here, for peer Rank+r, In[r] where peer
// Rank-r computes for own rows.
type PushPlan struct {
	Out, In []bool
	Pulls   bool // there is a pair of workers, anywhere, that does not
}

// pulled clears what does not travel to or from readers of rows.
func pulled(rows []int, pushes []bool) []int {
	for r := range rows {
		if pushes[r] {
			rows[r] = 0
		}
	}
	return rows
}

// push computes the part of b that owners of sources compute, and that of own columns.
// Rows of destinations come in the order of rounds and are added in it. Wire, per
// destination that a peer's sources reach: the widths of plan.Push.
func (x program[T]) push(op *comm.Op, plan *expr.GradientPlan, push *PushPlan, b *expr.Backward[T]) error {
	rel, layout := x.Rel, plan.Push
	m := &RoundTrip{
		Op: op, Pushed: true, RowBytes: layout.SentBytes, ReplyBytes: layout.ReturnedBytes,
		Send: make([]int, rel.Parts), Recv: make([]int, rel.Parts),
		Local: func() error {
			if b.Own != nil {
				b.Own.Columns(0, rel.NumSrc)
			}
			return nil
		},
	}
	// In round r of this movement rows go to peer Rank+r, which owns the sources that own rows
	// read in round P-r of an ordinary one.
	most := 0
	for r := 1; r < rel.Parts; r++ {
		other := rel.Parts - r
		if push.In[other] {
			m.Send[r] = len(rel.Reached[other].Data)
		}
		if push.Out[other] {
			m.Recv[r] = rel.Outgoing[other].NumRows
			most = max(most, len(rel.Send[other].Data))
		}
	}
	frames, err := graph.NewFrames(most)
	if err != nil {
		return err
	}
	defer frames.Free()
	sweep := b.Pushed()
	mine := func(r, first, n int) []int32 { return rel.Reached[rel.Parts-r].Data[first : first+n] }
	m.Produce = func(r, first, n int, dst []byte) error {
		b.GatherPushed(layout, view.Numbers[T](dst), mine(r, first, n))
		return nil
	}
	m.Compute = func(r, first, n int, src, reply []byte) error {
		other := rel.Parts - r
		f := expr.PushedFrame{
			Edges: &rel.Outgoing[other], Sources: rel.Send[other].Data, Frames: frames, First: first, N: n,
		}
		if first == 0 {
			frames.Begin(f.Edges)
		}
		clear(reply)
		sweep.Outgoing(layout, f, view.Numbers[T](src), view.Numbers[T](reply))
		return nil
	}
	m.Take = func(r, first, n int, src []byte) error {
		b.AddReturned(layout, view.Numbers[T](src), mine(r, first, n))
		return nil
	}
	_, err = m.Move(rel.Rank, rel.Parts)
	return err
}
