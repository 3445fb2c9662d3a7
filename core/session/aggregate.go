package session

import (
	"fmt"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/graph"
)

// Message is what an aggregation sums, Reduction what it makes of the messages of a destination.
type (
	Message   int
	Reduction int
)

// Messages, reductions and gradients of an aggregation.
const (
	CopyU Message = iota
	UMulE
)

const (
	ReduceSum Reduction = iota
	ReduceMean
)

const (
	GradU = 1
	GradE = 2
	Fused = 4
)

// Aggregation describes one aggregation. NeedGrad, which forward reads, holds GradU and
// GradE where this rank will ask for them. Agreed, which backward reads, is what forward
// returned: what any rank asked for.
//
// The Fused bit says what the gradients are that travel in backward. Without it they
// are those of the result. With it, they are those of what a linear map made of the
// result, for the owners of the sources to multiply by the map. In forward a rank
// offers it; it is agreed if all ranks did.
type Aggregation struct {
	Relation         int
	Message          Message
	Reduce           Reduction
	NeedGrad, Agreed uint32
}

// Rows is a matrix [N, Width] of the caller's; Data is nil where the caller
// gave none.
type Rows[T Float] struct {
	Data     []T
	N, Width int
}

func (r Rows[T]) check(name string, n int, unit string) error {
	if r.N != n {
		return Invalid("%s has %d rows, and this worker has %d %s", name, r.N, n, unit)
	}
	return nil
}

// plan checks the arguments common to both directions.
func plan[T Float](g *Graph, what Aggregation, width int, e *Rows[T]) (*exchange.Aggregate[T], error) {
	rel, err := g.Relation(what.Relation)
	if err != nil {
		return nil, err
	}
	a := &exchange.Aggregate[T]{Rel: rel, Pool: pool, Width: width, Heads: 1, Mean: what.Reduce == ReduceMean}
	if what.Reduce != ReduceSum && what.Reduce != ReduceMean {
		return nil, Invalid("there is no reduction %d of an aggregation: 0 is sum, 1 mean", what.Reduce)
	}
	switch what.Message {
	case CopyU:
		if e != nil {
			return nil, Invalid("copy_u takes no edge weights")
		}
		return a, nil
	case UMulE:
	default:
		return nil, Invalid("there is no message %d of an aggregation: 0 is copy_u, 1 u_mul_e", what.Message)
	}
	if e == nil {
		return nil, Invalid("u_mul_e needs edge weights e")
	}
	if int64(e.N) != rel.NumEdges {
		return nil, Invalid("e has %d rows, and this worker has %d edges of %s", e.N, rel.NumEdges, rel.Type)
	}
	if e.Width < 1 || width%e.Width != 0 {
		return nil, Invalid("e has %d weights an edge, which does not divide the %d columns of u", e.Width, width)
	}
	a.W, a.Heads = e.Data, e.Width
	return a, g.edgeOrder(rel)
}

// Forward computes one aggregation; it returns the gradients any rank asked
// for. Collective.
func Forward[T Float](g *Graph, what Aggregation, u Rows[T], e *Rows[T], out Rows[T]) (uint32, error) {
	a, err := plan(g, what, u.Width, e)
	if err != nil {
		return 0, err
	}
	if err := checkRows(a.Rel, u, out, "out"); err != nil {
		return 0, err
	}
	var agreed uint16
	// Flags are united over the ranks, so what travels is who does not offer Fused.
	err = g.run(comm.KindAggregate, comm.Forward, a.RowBytes(), what.sends("rows", u.Data), func(op *comm.Op) error {
		agreed, err = a.Forward(op, uint16(what.NeedGrad^Fused), u.Data, out.Data)
		return err
	})
	return uint32(agreed) ^ Fused, err
}

// sends says what travels, for the schedule.
func (what Aggregation) sends(rows string, like any) string {
	message, reduce := "copy_u", "sum"
	if what.Message == UMulE {
		message = "u_mul_e"
	}
	if what.Reduce == ReduceMean {
		reduce = "mean"
	}
	return fmt.Sprintf("%s of %s %s over relation %d, %T", rows, message, reduce, what.Relation, like)
}

// Gradients are the tensors of Backward: U and E of forward, nil where they are not needed, the
// gradient of its result, and where the gradients of U and E go, nil where this rank does not
// want them.
type Gradients[T Float] struct {
	U, E         *Rows[T]
	Out          Rows[T]
	GradU, GradE *Rows[T]
}

// Backward computes the agreed gradients of one aggregation. Collective.
func Backward[T Float](g *Graph, what Aggregation, t Gradients[T]) error {
	u, e, gradOut, gradU, gradE := t.U, t.E, t.Out, t.GradU, t.GradE
	a, err := plan(g, what, gradOut.Width, e)
	if err != nil {
		return err
	}
	if err := gradOut.check("grad_out", a.Rel.NumDst, "destination nodes"); err != nil {
		return err
	}
	if what.Agreed&GradE != 0 { // before anything travels: peers would wait
		if u == nil {
			return Invalid("the gradient of edge weights needs u")
		}
		if err := checkRows(a.Rel, *u, gradOut, "grad_out"); err != nil {
			return err
		}
	}
	var gu, ge []T
	if gradU != nil {
		if err := checkRows(a.Rel, *gradU, gradOut, "grad_out"); err != nil {
			return err
		}
		gu = gradU.Data
	}
	if gradE != nil {
		if e == nil || gradE.N != e.N || gradE.Width != e.Width {
			return Invalid("grad_e must have the shape of e")
		}
		ge = gradE.Data
	}
	if what.Agreed&GradU != 0 {
		rows := "gradients of the result"
		if what.Agreed&Fused != 0 {
			rows = "gradients of the linear map after the result"
		}
		err := g.run(comm.KindAggregate, comm.Backward, a.RowBytes(), what.sends(rows, gradOut.Data),
			func(op *comm.Op) error { return a.BackwardU(op, gradOut.Data, gu) })
		if err != nil {
			return err
		}
	}
	if what.Agreed&GradE == 0 {
		return nil
	}
	sends := what.sends("rows for gradients of edges", gradOut.Data)
	return g.run(comm.KindSDDMM, comm.Backward, a.RowBytes(), sends,
		func(op *comm.Op) error { return a.BackwardE(op, u.Data, gradOut.Data, ge) })
}

func checkRows[T Float](rel *graph.Relation, u, out Rows[T], outName string) error {
	if err := u.check("u", rel.NumSrc, "source nodes"); err != nil {
		return err
	}
	if err := out.check(outName, rel.NumDst, "destination nodes"); err != nil {
		return err
	}
	if u.Width != out.Width {
		return Invalid("u has %d columns and %s has %d", u.Width, outName, out.Width)
	}
	return nil
}

// run brackets one operation on the training communicator, which moves rows of
// rowBytes; sends says what they are, as BeginSending wants it. A window that cannot hold one is
// found before anybody waits.
func (g *Graph) run(kind comm.Kind, dir comm.Dir, rowBytes int, sends string, f func(op *comm.Op) error) error {
	train, err := g.session.Comm(Train)
	if err != nil {
		return err
	}
	wide := func() bool { return g.session.World() > 1 && rowBytes > train.MaxPayload() }
	if wide() {
		if err := g.session.suit(mostWindow); err != nil {
			return err
		}
	}
	if wide() {
		return g.session.tooNarrow(train, rowBytes, "rows have")
	}
	op, err := train.BeginSending(kind, dir, fmt.Sprintf("%s of graph %d", sends, g.number))
	if err != nil {
		return err
	}
	return op.End(f(op))
}
