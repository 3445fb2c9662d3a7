package session

import (
	"cmp"
	"errors"
	"fmt"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/expr"
	"sar/core/graph"
	"sar/core/internal/view"
)

// Float lists the element types of programs.
type Float interface{ float32 | float64 }

// Program is an edge expression.
type Program struct{ *expr.Program }

// NewProgram reads and checks a program.
func NewProgram(json string) (Program, error) {
	p, err := expr.Parse(json)
	if errors.Is(err, expr.ErrInvalid) {
		err = Invalid("%v", err)
	}
	return Program{p}, err
}

// ProgramInfo is what a caller has to know to run a program.
type ProgramInfo struct {
	Shape      []int `json:"shape"`
	Softmaxes  []int `json:"softmaxes"`
	Seeds      int   `json:"seeds"`
	Winner     bool  `json:"winner"`
	Collective bool  `json:"collective"`
}

// Info describes the program.
func (p Program) Info() ProgramInfo {
	info := ProgramInfo{Shape: append([]int{}, p.Shape()...), Softmaxes: p.Softmaxes(), Seeds: p.Seeds}
	info.Winner = p.KeepsWinner()
	for _, o := range p.Operands {
		info.Collective = info.Collective || o.Side == expr.U
	}
	return info
}

// ProgramCall is one run of a program. Tensors that are not needed have no elements.
type ProgramCall[T Float] struct {
	Relation int
	Operands []Rows[T]
	Seeds    []uint64
	Keys     []int64 // nil: KeyBase and the position of the edge
	KeyBase  int64
	State    []Rows[T] // of each softmax the maxima and the inverse sums
	Winner   []int32
	Out      Rows[T]
}

// resultSaved is the bit of Saves that stands for the result.
const resultSaved = 1 << 31

// check holds the sizes of a call against the program and the relation.
func (c *ProgramCall[T]) check(p Program, g *Graph) (*graph.Relation, error) {
	rel, err := g.Relation(c.Relation)
	if err != nil {
		return nil, err
	}
	if len(c.Operands) != len(p.Operands) {
		return nil, Invalid("%d operands were given, and the program has %d", len(c.Operands), len(p.Operands))
	}
	if len(c.Seeds) != p.Seeds {
		return nil, Invalid("%d seeds were given, and the program has %d dropouts", len(c.Seeds), p.Seeds)
	}
	if len(c.State) != 2*len(p.Softmaxes()) {
		return nil, Invalid("%d state tensors were given, and the program has %d softmaxes with 2 each",
			len(c.State), len(p.Softmaxes()))
	}
	if c.Keys != nil && int64(len(c.Keys)) != rel.NumEdges {
		return nil, Invalid("keys has %d entries, and this worker has %d edges of %s", len(c.Keys), rel.NumEdges, rel.Type)
	}
	names := [...]string{expr.U: "source nodes", expr.V: "destination nodes", expr.E: "edges", expr.P: "row"}
	for i, o := range p.Operands {
		x, n := c.Operands[i], expr.RowsOfSide(rel, o.Side)
		if x.elements() > 0 && (x.N != n || x.Width != o.Width) {
			return nil, Invalid("operand %d (side %s) is [%d, %d], and must be [%d, %d]: this worker has %d %s",
				i, o.Side, x.N, x.Width, n, o.Width, n, names[o.Side])
		}
	}
	for s, w := range p.Softmaxes() {
		for _, x := range c.State[2*s : 2*s+2] {
			if len(x.Data) != rel.NumDst*w {
				return nil, Invalid("a state tensor of softmax %d has %d elements, and must be [%d, %d]",
					s, len(x.Data), rel.NumDst, w)
			}
		}
	}
	rows := p.Rows(rel)
	if n := c.Out.elements(); n > 0 && n != rows*p.Width() {
		return nil, Invalid("out has %d elements, and must be [%d, %d]", n, rows, p.Width())
	}
	if p.KeepsWinner() && len(c.Winner) != rows*p.Width() {
		return nil, Invalid("the winning edges have %d entries, and must be [%d, %d]", len(c.Winner), rows, p.Width())
	}
	return rel, nil
}

// run makes the engine's view of a call, once it is checked. Close it.
func (c *ProgramCall[T]) run(p Program, g *Graph) (*expr.Run[T], error) {
	rel, err := c.check(p, g)
	if err != nil {
		return nil, err
	}
	if p.NeedsEdges() {
		if err := g.edgeOrder(rel); err != nil {
			return nil, err
		}
	}
	run := &expr.Run[T]{Program: p.Program, Rel: rel, Pool: pool, Seeds: c.Seeds, Keys: c.Keys, KeyBase: c.KeyBase,
		Winner: c.Winner}
	for i, o := range p.Operands {
		x, n := c.Operands[i], expr.RowsOfSide(rel, o.Side)
		if o.Storage == expr.Native && len(x.Half) > 0 || o.Storage != expr.Native && len(x.Data) > 0 {
			return nil, Invalid("operand %d is not stored as the program has it: %s", i, cmp.Or(o.Storage.String(), "native"))
		}
		if x.N != n || n > 0 && x.Data == nil && x.Half == nil {
			x.Data = nil // not given
		} else if len(x.Data) == 0 {
			x.Data = []T{}
		}
		run.Operands, run.Stored = append(run.Operands, x.Data), append(run.Stored, view.Bytes(x.Half))
	}
	for s := range p.Softmaxes() {
		run.Most, run.Inv = append(run.Most, c.State[2*s].Data), append(run.Inv, c.State[2*s+1].Data)
	}
	return run, nil
}

// ProgramForward runs a program. need are the operands that this rank will ask gradients
// of; it returns those that any rank asked for, and what backward reads: operands,
// and the result as bit 31. Bits of need above the operands', below 16, come back where any
// rank has set them. Collective where the program has operands of side U.
func ProgramForward[T Float](g *Graph, p Program, c ProgramCall[T], need uint32) (agreed, saves uint32, err error) {
	x, err := c.run(p, g)
	if err != nil {
		return 0, 0, err
	}
	defer x.Close()
	for i, o := range p.Operands {
		if x.Operands[i] == nil && o.Width > 0 {
			return 0, 0, Invalid("operand %d (side %s) has %d rows, which is not what this worker has",
				i, o.Side, c.Operands[i].N)
		}
	}
	var h halves[T]
	defer h.free()
	if err := h.bindOut(x, c.Out); err != nil {
		return 0, 0, err
	}
	weights, size := weightsOf(p, c)
	cover, err := g.covering(x.Rel, p, asked{nil, p.halfRows(), weights, size, view.Size[T]()})
	if err != nil {
		return 0, 0, err
	}
	agreed, err = exchange.Forward(x, need, cover, startOf[T](g, p, c.Relation, false))
	if err != nil {
		return 0, 0, err
	}
	h.round()
	plan := x.Differentiate(p.among(agreed))
	saves = plan.Saves
	if plan.Result {
		saves |= resultSaved
	}
	return agreed, saves, nil
}

// halfRows tells whether a plain sum reads rows in bfloat16.
func (p Program) halfRows() bool {
	sum, plain := p.PlainSum()
	return plain && p.Operands[sum.Rows].Storage == expr.BFloat16
}

// among is a set of operands without the bits that stand for none.
func (p Program) among(operands uint32) uint32 { return operands & (1<<len(p.Operands) - 1) }

// startOf begins operations for a program, whose name is part of the schedule. half: the gradient of the result is in
// bfloat16.
func startOf[T Float](g *Graph, p Program, relation int, half bool) exchange.Start {
	return func(kind comm.Kind, dir comm.Dir, rows string, operands uint32, rowBytes int,
		f func(op *comm.Op) error) error {
		var zero T
		var what string
		if sum, ok := p.PlainSum(); ok {
			what = "of " + sumName(p, sum)
		} else {
			what = fmt.Sprintf("(operands %b) of expression %08x", operands, p.Fingerprint) + p.stored()
			if half {
				what += " (gradient in bfloat16)"
			}
		}
		return g.run(kind, dir, rowBytes, fmt.Sprintf("%s %s over relation %d, %T", rows, what, relation, zero), f)
	}
}

// stored says which rows that travel are of another type than what is computed in.
func (p Program) stored() string {
	var said string
	for i, o := range p.Operands {
		if o.Side == expr.U && o.Storage != expr.Native {
			said += fmt.Sprintf(" (operand %d in %s)", i, o.Storage)
		}
	}
	return said
}

// sumName has no width: ranks that differ in that alone hear it from the frames, which say so.
func sumName(p Program, sum expr.PlainSum) string {
	message, reduce := "copy_u", "sum"
	if sum.Weights >= 0 {
		message = "u_mul_e"
	}
	if p.Reduce == expr.Mean {
		reduce = "mean"
	}
	if storage := p.Operands[sum.Rows].Storage; storage != expr.Native {
		message += " in " + storage.String()
	}
	return message + " " + reduce
}

// ProgramBackward computes gradients from gradOut, that of the result. agreed is what
// forward returned; grads has a tensor for each operand whose gradient this rank wants,
// and none for the others. Collective where the program has operands of side U.
func ProgramBackward[T Float](g *Graph, p Program, c ProgramCall[T], agreed uint32, gradOut Rows[T],
	grads []*Rows[T]) error {
	x, err := c.run(p, g)
	if err != nil {
		return err
	}
	defer x.Close()
	if readsHalfGrad(x, gradOut) {
		x.HalfGrad = gradOut.Half
	}
	plan := x.Differentiate(p.among(agreed))
	if err := checkGradients(p, x, plan, c.Out, gradOut, grads); err != nil {
		return err
	}
	var h halves[T]
	defer h.free()
	if err := h.bindGradients(x, plan, c.Out, gradOut, grads); err != nil {
		return err
	}
	var push *exchange.PushPlan
	if _, plain := p.PlainSum(); !plain { // nobody computes less for those
		if push, err = g.pushPlan(x.Rel, plan); err != nil {
			return err
		}
	}
	weights, size := weightsOf(p, c)
	cover, err := g.covering(x.Rel, p, asked{plan, x.HalfGrad != nil, weights, size, view.Size[T]()})
	if err != nil {
		return err
	}
	start := startOf[T](g, p, c.Relation, x.HalfGrad != nil)
	if err := exchange.Backward(x, plan, push, cover, start); err != nil {
		return err
	}
	h.round()
	return nil
}

// checkGradients checks that backward has what the plan reads, and somewhere to put what this rank wants of it.
func checkGradients[T Float](p Program, x *expr.Run[T], plan *expr.GradientPlan, out, gradOut Rows[T],
	grads []*Rows[T]) error {
	rows := p.Rows(x.Rel)
	if n := gradOut.elements(); n != rows*p.Width() {
		return Invalid("grad_out has %d elements, and must be [%d, %d]", n, rows, p.Width())
	}
	if plan.Result && out.elements() != rows*p.Width() {
		return Invalid("backward of this program needs out, the result of forward")
	}
	if len(grads) != len(p.Operands) {
		return Invalid("%d gradients were given for %d operands", len(grads), len(p.Operands))
	}
	for i, o := range p.Operands {
		if plan.Saves>>i&1 != 0 && x.Operands[i] == nil && o.Width > 0 {
			return Invalid("backward of this program needs operand %d (side %s)", i, o.Side)
		}
		if grads[i] == nil {
			continue
		}
		if n, have := expr.RowsOfSide(x.Rel, o.Side), grads[i].elements(); have != n*o.Width {
			return Invalid("the gradient of operand %d has %d elements, and must be [%d, %d]", i, have, n, o.Width)
		}
	}
	return nil
}
