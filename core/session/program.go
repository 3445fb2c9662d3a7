package session

import (
	"errors"
	"fmt"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/expr"
	"sar/core/graph"
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
	info := ProgramInfo{Shape: append([]int{}, p.Shape()...), Softmaxes: p.Softmaxes(), Seeds: p.Seeds, Winner: p.winner()}
	for _, o := range p.Operands {
		info.Collective = info.Collective || o.Side == expr.U
	}
	return info
}

func (p Program) winner() bool { return p.Reduce == expr.Max || p.Reduce == expr.Min }

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

// prepare checks a call.
func (p Program) prepare(g *Graph, call relationCall) error {
	rel, err := g.Relation(call.relation)
	if err != nil {
		return err
	}
	if call.operands != len(p.Operands) {
		return Invalid("%d operands were given, and the program has %d", call.operands, len(p.Operands))
	}
	if call.seeds != p.Seeds {
		return Invalid("%d seeds were given, and the program has %d dropouts", call.seeds, p.Seeds)
	}
	if call.states != 2*len(p.Softmaxes()) {
		return Invalid("%d state tensors were given, and the program has %d softmaxes with 2 each", call.states, len(p.Softmaxes()))
	}
	if call.keys >= 0 && int64(call.keys) != rel.NumEdges {
		return Invalid("keys has %d entries, and this worker has %d edges of %s", call.keys, rel.NumEdges, rel.Type)
	}
	if p.NeedsEdges() {
		return g.edgeOrder(rel)
	}
	return nil
}

// relationCall is what prepare checks, whatever the float type. keys -1: none.
type relationCall struct{ relation, operands, seeds, states, keys int }

// rowsOfSides is how many rows operands of each side have.
func rowsOfSides(rel *graph.Relation) [4]int {
	return [...]int{expr.U: rel.NumSrc, expr.V: rel.NumDst, expr.E: int(rel.NumEdges), expr.P: 1}
}

// run makes the engine's view of a call.
func runOf[T Float](p Program, g *Graph, c ProgramCall[T]) (*exchange.Program[T], error) {
	keys := -1
	if c.Keys != nil {
		keys = len(c.Keys)
	}
	if err := p.prepare(g, relationCall{c.Relation, len(c.Operands), len(c.Seeds), len(c.State), keys}); err != nil {
		return nil, err
	}
	rel, err := g.Relation(c.Relation)
	if err != nil {
		return nil, err
	}
	counts := rowsOfSides(rel)
	names := [...]string{expr.U: "source nodes", expr.V: "destination nodes", expr.E: "edges", expr.P: "row"}
	run := &expr.Run[T]{Program: p.Program, Rel: rel, Pool: pool, Seeds: c.Seeds, Keys: c.Keys, KeyBase: c.KeyBase, Winner: c.Winner}
	for i, o := range p.Operands {
		x := c.Operands[i]
		if x.N == counts[o.Side] && x.Width == o.Width || len(x.Data) > 0 {
			if x.N != counts[o.Side] || x.Width != o.Width {
				return nil, Invalid("operand %d (side %s) is [%d, %d], and must be [%d, %d]: this worker has %d %s",
					i, o.Side, x.N, x.Width, counts[o.Side], o.Width, counts[o.Side], names[o.Side])
			}
		}
		if x.Data == nil || x.N != counts[o.Side] {
			x.Data = nil // not given
		} else if len(x.Data) == 0 {
			x.Data = []T{}
		}
		run.Operands = append(run.Operands, x.Data)
	}
	for s, w := range p.Softmaxes() {
		for _, x := range c.State[2*s : 2*s+2] {
			if len(x.Data) != rel.NumDst*w {
				return nil, Invalid("a state tensor of softmax %d has %d elements, and must be [%d, %d]", s, len(x.Data), rel.NumDst, w)
			}
		}
		run.Most, run.Inv = append(run.Most, c.State[2*s].Data), append(run.Inv, c.State[2*s+1].Data)
	}
	rows := rel.NumDst
	if p.Reduce == expr.None {
		rows = int(rel.NumEdges)
	}
	if len(c.Out.Data) > 0 && len(c.Out.Data) != rows*p.Width() {
		return nil, Invalid("out has %d elements, and must be [%d, %d]", len(c.Out.Data), rows, p.Width())
	}
	if p.winner() && len(c.Winner) != rows*p.Width() {
		return nil, Invalid("the winning edges have %d entries, and must be [%d, %d]", len(c.Winner), rows, p.Width())
	}
	return &exchange.Program[T]{Run: run}, nil
}

// ProgramForward runs a program. need are the operands that this rank will ask gradients
// of; it returns those that any rank asked for, and what backward reads: operands,
// and the result as bit 31. Collective where the program has operands of side U.
func ProgramForward[T Float](g *Graph, p Program, c ProgramCall[T], need uint32) (agreed, saves uint32, err error) {
	x, err := runOf(p, g, c)
	if err != nil {
		return 0, 0, err
	}
	defer x.Close()
	for i, o := range p.Operands {
		if x.Operands[i] == nil && o.Width > 0 {
			return 0, 0, Invalid("operand %d (side %s) has %d rows, which is not what this worker has", i, o.Side, c.Operands[i].N)
		}
	}
	agreed = need
	for _, phase := range x.Forward(c.Out.Data) {
		sends := sends[T](p, c.Relation, "rows", phase.Sources)
		err := g.sweep(x.RowBytes(phase.Sources), phase.Sources != 0, comm.Forward, sends, func(op *comm.Op) error {
			flags, err := x.Sweep(op, uint16(need), phase)
			agreed |= uint32(flags)
			return err
		})
		if err != nil {
			return 0, 0, err
		}
	}
	saves, result := p.Saves(agreed)
	if result {
		saves |= resultSaved
	}
	return agreed, saves, nil
}

// sweep brackets what may travel.
func (g *Graph) sweep(rowBytes int, travels bool, dir comm.Dir, sends string, f func(op *comm.Op) error) error {
	if !travels {
		return f(nil)
	}
	return g.run(comm.KindExpression, dir, rowBytes, sends, f)
}

// sends says what a sweep sends, for the schedule: rows says which operands.
func sends[T Float](p Program, relation int, rows string, operands uint32) string {
	var zero T
	return fmt.Sprintf("%s (operands %b) of expression %08x over relation %d, %T", rows, operands, p.Fingerprint, relation, zero)
}

// complete checks that backward has what it reads: the gradient of the result, rows times
// Width, the operands that Saves names and, where it says so, the result.
func complete[T Float](p Program, rows int, out, grad []T, operands [][]T, agreed uint32) error {
	if len(grad) != rows*p.Width() {
		return Invalid("grad_out has %d elements, and must be [%d, %d]", len(grad), rows, p.Width())
	}
	values, result := p.Saves(agreed)
	if result && len(out) != len(grad) {
		return Invalid("backward of this program needs out, the result of forward")
	}
	for i, o := range p.Operands {
		if values>>i&1 != 0 && operands[i] == nil && o.Width > 0 {
			return Invalid("backward of this program needs operand %d (side %s)", i, o.Side)
		}
	}
	return nil
}

// ProgramBackward computes gradients from gradOut, that of the result. agreed is what
// forward returned; grads has a tensor for each operand whose gradient this rank wants,
// and none for the others. Collective where the program has operands of side U.
func ProgramBackward[T Float](g *Graph, p Program, c ProgramCall[T], agreed uint32, gradOut Rows[T], grads []*Rows[T]) error {
	x, err := runOf(p, g, c)
	if err != nil {
		return err
	}
	defer x.Close()
	if len(grads) != len(p.Operands) {
		return Invalid("%d gradients were given for %d operands", len(grads), len(p.Operands))
	}
	var own uint32
	targets := make([][]T, len(grads))
	for i, t := range grads {
		if t == nil {
			continue
		}
		if o := p.Operands[i]; o.Side != expr.P && t.Width != o.Width || len(t.Data) != t.N*o.Width && o.Side != expr.P {
			return Invalid("the gradient of operand %d has %d columns, and must have %d", i, t.Width, o.Width)
		}
		own, targets[i] = own|1<<i, t.Data
	}
	rows := x.Rel.NumDst
	if p.Reduce == expr.None {
		rows = int(x.Rel.NumEdges)
	}
	if err := complete(p, rows, c.Out.Data, gradOut.Data, x.Operands, agreed); err != nil {
		return err
	}
	values, home := p.Plan(agreed)
	if x.Ways, err = waysOf(g, x, agreed, values, home); err != nil {
		return err
	}
	if x.Ways != nil {
		free, err := fillTargets(x, agreed, targets)
		defer free()
		if err != nil {
			return err
		}
		own = agreed
	}
	b, err := x.Run.Backward(agreed, own, c.Out.Data, gradOut.Data, targets, values == 0)
	if err != nil {
		return err
	}
	for _, phase := range b.Deltas {
		sends := sends[T](p, c.Relation, "rows for the softmax's gradient", phase.Sources)
		err := g.sweep(x.RowBytes(phase.Sources), phase.Sources != 0, comm.Backward, sends, func(op *comm.Op) error {
			_, err := x.Sweep(op, 0, phase)
			return err
		})
		if err != nil {
			return err
		}
	}
	if x.Ways != nil {
		there, back := x.PushedBytes(x.Ways.Push)
		sends := sends[T](p, c.Relation, "rows of destinations for gradients", agreed)
		err := g.sweep(max(there, back), true, comm.Backward, sends, func(op *comm.Op) error { return x.Push(op, b, targets) })
		if err != nil {
			return err
		}
	}
	if x.Ways == nil || x.Ways.Pulls {
		sends := sends[T](p, c.Relation, "rows of sources for gradients", agreed)
		err := g.sweep(max(x.RowBytes(values), x.RowBytes(home)), values|home != 0, comm.Backward, sends, func(op *comm.Op) error {
			return x.Backward(op, agreed, b, own, targets)
		})
		if err != nil {
			return err
		}
	}
	b.Finish()
	return nil
}
