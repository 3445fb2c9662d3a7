package session

import (
	"context"

	"sar/core/expr"
)

// Inputs are what a program runs on.
type Inputs[T Float] struct {
	Relation int
	Operands []Rows[T] // in the order in which the builder was asked for them
	Grads    []int     // operands whose gradient Backward is to give on this worker
	Seeds    []uint64  // one for each dropout, the same on all workers
	Keys     []int64   // what dropout knows an edge by, [edges]; nil: its position on this worker
}

// Call is one run of a program, from which its gradients follow.
type Call[T Float] struct {
	Out Rows[T]

	graph   *Graph
	program Program
	run     ProgramCall[T]
	wanted  []int
	agreed  uint32
}

// Run runs a program over the edges of a graph. Collective.
func Run[T Float](ctx context.Context, g *Graph, p Program, in Inputs[T]) (*Call[T], error) {
	rel, err := g.Relation(in.Relation)
	if err != nil {
		return nil, err
	}
	side := expr.V
	if p.Reduce == expr.None {
		side = expr.E
	}
	c := &Call[T]{graph: g, program: p, wanted: in.Grads, Out: rowsFor[T](expr.RowsOfSide(rel, side), p.Width())}
	c.run = ProgramCall[T]{
		Relation: in.Relation, Operands: append([]Rows[T]{}, in.Operands...), Seeds: in.Seeds, Keys: in.Keys, Out: c.Out,
	}
	for _, w := range p.Softmaxes() {
		c.run.State = append(c.run.State, rowsFor[T](rel.NumDst, w), rowsFor[T](rel.NumDst, w))
	}
	if p.Info().Winner {
		c.run.Winner = make([]int32, len(c.Out.Data))
	}
	var need uint32
	for _, i := range in.Grads {
		if i < 0 || i >= len(p.Operands) {
			return nil, Invalid("the gradient of operand %d is wanted, and the program has %d", i, len(p.Operands))
		}
		need |= 1 << i
	}
	var saves uint32
	err = g.session.within(ctx, func() error {
		c.agreed, saves, err = ProgramForward(g, p, c.run, need)
		return err
	})
	if err != nil {
		return nil, err
	}
	// What backward does not read may go.
	for i := range c.run.Operands {
		if saves>>i&1 == 0 {
			c.run.Operands[i] = Rows[T]{N: -1}
		}
	}
	if saves&resultSaved == 0 {
		c.run.Out = Rows[T]{}
	}
	return c, nil
}

// Backward gives the gradients of operands from that of Out, by operand: those that Inputs.Grads
// names. What was run on must still be as it was. Collective, also for a worker that wants none.
func (c *Call[T]) Backward(ctx context.Context, out Rows[T]) ([]Rows[T], error) {
	rel, err := c.graph.Relation(c.run.Relation)
	if err != nil {
		return nil, err
	}
	grads, into := make([]Rows[T], len(c.program.Operands)), make([]*Rows[T], len(c.program.Operands))
	for _, i := range c.wanted {
		o := c.program.Operands[i]
		grads[i] = rowsFor[T](expr.RowsOfSide(rel, o.Side), o.Width)
		into[i] = &grads[i]
	}
	return grads, c.graph.session.within(ctx, func() error {
		return ProgramBackward(c.graph, c.program, c.run, c.agreed, out, into)
	})
}

func rowsFor[T Float](n, width int) Rows[T] {
	return Rows[T]{Data: make([]T, n*width), N: n, Width: width}
}
