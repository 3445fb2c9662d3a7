package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/expr"
)

// TestRunLikeProgram compares Run with what C calls, where the caller holds all memory and says again in
// backward what was agreed in forward.
func TestRunLikeProgram(t *testing.T) {
	var b Builder
	h, left, right := b.U(2, 3), b.U(2, 1), b.V(2, 1)
	attention, err := h.Mul(left.Add(right).LeakyReLU(0.2).Softmax()).Sum()
	if err != nil {
		t.Fatal(err)
	}
	var m Builder
	greatest, err := m.U(2, 3).Sub(m.V(2, 3)).Max()
	if err != nil {
		t.Fatal(err)
	}
	var e Builder
	perEdge, err := e.U(4).Dot(e.V(4)).Scale(0.5).PerEdge()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Program{attention, greatest, perEdge} {
		workers(t, 2, Config{}, func(s *Session) error {
			src, dst := []int64{3, 0, 2}, []int64{0, 1, 1}
			if s.Rank() == 1 {
				src, dst = []int64{1, 2}, []int64{2, 3}
			}
			g, err := s.GraphFromEdges(ctx, []int64{0, 2, 4}, src, dst)
			if err != nil {
				return err
			}
			defer g.Free()
			return compareRun(g, p)
		})
	}
}

func compareRun(g *Graph, p Program) error {
	rng := rand.New(rand.NewPCG(1, uint64(g.session.Rank())))
	in := Inputs[float64]{}
	rel, err := g.Relation(0)
	if err != nil {
		return err
	}
	filled := func(n, width int) Rows[float64] {
		r := rowsFor[float64](n, width)
		copy(r.Data, random[float64](rng, n*width))
		return r
	}
	c := ProgramCall[float64]{}
	var grads []*Rows[float64]
	for i, o := range p.Operands {
		x := filled(expr.RowsOfSide(rel, o.Side), o.Width)
		grad := rowsFor[float64](x.N, x.Width)
		in.Operands, in.Grads = append(in.Operands, x), append(in.Grads, i)
		grads = append(grads, &grad)
	}
	call, err := Run(ctx, g, p, in)
	if err != nil {
		return err
	}
	gradOut := filled(call.Out.N, call.Out.Width)
	got, err := call.Backward(ctx, gradOut)
	if err != nil {
		return err
	}

	c.Operands, c.Out = in.Operands, rowsFor[float64](call.Out.N, call.Out.Width)
	for _, w := range p.Softmaxes() {
		c.State = append(c.State, rowsFor[float64](rel.NumDst, w), rowsFor[float64](rel.NumDst, w))
	}
	c.Winner = make([]int32, len(c.Out.Data))
	agreed, _, err := ProgramForward(g, p, c, 1<<len(p.Operands)-1)
	if err != nil {
		return err
	}
	if err := ProgramBackward(g, p, c, agreed, gradOut, grads); err != nil {
		return err
	}
	if !slices.Equal(call.Out.Data, c.Out.Data) {
		return fmt.Errorf("the result is %v, and %v by hand", call.Out.Data, c.Out.Data)
	}
	for i, grad := range grads {
		if !slices.Equal(got[i].Data, grad.Data) {
			return fmt.Errorf("the gradient of operand %d is %v, and %v by hand", i, got[i].Data, grad.Data)
		}
	}
	return nil
}
