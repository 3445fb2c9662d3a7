package exchange

import (
	"sar/core/comm"
	"sar/core/expr"
	"sar/core/graph"
	"sar/core/internal/view"
)

// PushPlan says which pairs of workers compute gradients at the owner of the sources, as far as the rows of those do
// not travel at a price: by round, Out[r] where own sources are computed with here, for peer Rank+r, In[r] where peer
// Rank-r computes for own rows.
type PushPlan struct {
	Price   graph.Price
	Out, In []bool
	Pulls   bool // there are rows that travel all the same, between any two workers
}

// rows is how many boundary rows travel in each round, from this worker and to it. A plan that is nil has all travel.
func (p *PushPlan) rows(rel *graph.Relation) (send, recv []int) {
	send, recv = SendRows(rel), HaloRows(rel)
	for r := 1; p != nil && r < rel.Parts; r++ {
		if p.Out[r] {
			send[r] = rel.Lead(r, p.Price)
		}
		if p.In[r] {
			recv[r] = int(rel.Halo[r].Lead(p.Price))
		}
	}
	return send, recv
}

// push computes the part of b that owners of sources compute, and that of own columns.
// Rows of destinations come in the order of rounds and are added in it. Wire, per
// destination that a peer's sources reach: the widths of plan.Push.
func (x program[T]) push(op *comm.Op, plan *expr.GradientPlan, push *PushPlan, b *expr.Backward[T]) error {
	rel, layout, pushed := x.Rel, plan.Push, &x.Rel.Pushed[push.Price]
	sources := func(r int) []int32 { return rel.Send[r].Data[rel.Lead(r, push.Price):] }
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
			m.Send[r] = len(pushed.Reached[other].Data)
		}
		if push.Out[other] {
			m.Recv[r] = pushed.Outgoing[other].NumRows
			most = max(most, len(sources(other)))
		}
	}
	frames, err := graph.NewFrames(most)
	if err != nil {
		return err
	}
	defer frames.Free()
	sweep := b.Pushed()
	mine := func(r, first, n int) []int32 { return pushed.Reached[rel.Parts-r].Data[first : first+n] }
	m.Produce = func(r, first, n int, dst []byte) error {
		b.GatherPushed(layout, view.Numbers[T](dst), mine(r, first, n))
		return nil
	}
	m.Compute = func(r, first, n int, src, reply []byte) error {
		other := rel.Parts - r
		f := expr.PushedFrame{
			Edges: &pushed.Outgoing[other], Sources: sources(other), Frames: frames, First: first, N: n,
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
