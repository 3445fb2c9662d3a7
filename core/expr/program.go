// Package expr computes edge expressions: what the message of an edge is, as a
// straight-line program over rows of its source, its destination, the edge
// itself and parameters, and what becomes of the messages of a destination.
//
// A program runs over blocks of edges whose registers fit a core's cache, so
// nothing of edge size exists unless the result is of that size. Backward runs
// a program of the same kind, derived from the first, and computes what it needs
// of the messages again.
//
// Everything that is added up is added edge by edge in an order that the graph
// alone determines: by source within a destination, by destination within a
// source. So the number of threads and the window change no bit of a result or
// of a gradient, with exceptions that depend on the window: gradients of parameters,
// of destinations, and of tensors that an expression reads in several places, and
// whatever is added up for a row or column with so many edges that it is cut.
package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Float lists the element types.
type Float interface{ float32 | float64 }

// Side is where an operand's rows come from.
type Side uint8

const (
	U Side = iota // of the source
	V             // of the destination
	E             // of the edge, in the users' order
	P             // one row, the same for all edges
)

var sides = []string{"u", "v", "e", "p"}

func (s Side) String() string { return sides[s] }

// Reduce is what becomes of the messages of a destination.
type Reduce uint8

const (
	None Reduce = iota // the result is a value per edge
	Sum
	Mean
	Max // as DGL has it: NaN never wins, infinite results are 0, and one message gets the gradient
	Min
	MaxShared // as PyG has it: NaN wins, infinite results stay, and equal messages share the gradient
	MinShared
)

var reducers = []string{"none", "sum", "mean", "max", "min", "max_shared", "min_shared"}

func (r Reduce) String() string { return reducers[r] }

// Extremum tells whether the result is the greatest or least message.
func (r Reduce) Extremum() bool { return r >= Max }

func (r Reduce) least() bool { return r == Min || r == MinShared }

func (r Reduce) shared() bool { return r == MaxShared || r == MinShared }

// MaxOperands is how many operands a program may have: which of them need a
// gradient travels as bits of a frame's flags.
const MaxOperands = 16

// Operand is a tensor that a program reads.
type Operand struct {
	Side  Side
	Shape []int
	Width int
}

// Program is a checked program. It may be used by several runs at once.
type Program struct {
	Operands []Operand
	Reduce   Reduce
	Seeds    int // dropout instructions
	// Fingerprint is a hash of the text, by which ranks see that they run the same program.
	Fingerprint uint32

	nodes     []node // the loads of the operands, then an instruction each
	result    int
	softmaxes []softmax
	online    int     // the softmax that is computed in one sweep with the sum, or -1
	heads     []int32 // of that: the element of the softmax that an element of the result is proportional to
	plans     plans
}

// node is one register and how it is computed.
type node struct {
	op    op
	a, b  int // registers
	alpha float64
	shape shape
	width int
	slot  int // of a load: which; of a dropout: which seed
}

// softmax is one softmax over the in-edges of each destination.
type softmax struct {
	node  int // of the program
	level int // softmaxes of lower levels come before it
	width int
}

// ErrInvalid is an error in a program.
var ErrInvalid = errors.New("invalid program")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// text is a program as JSON.
type text struct {
	Operands []struct {
		Side  string `json:"side"`
		Shape []int  `json:"shape"`
	} `json:"operands"`
	Code []struct {
		Op    string  `json:"op"`
		A     *int    `json:"a"`
		B     *int    `json:"b"`
		Alpha float64 `json:"alpha"`
		Shape []int   `json:"shape"`
	} `json:"code"`
	Result *int   `json:"result"`
	Reduce string `json:"reduce"`
}

const maxWidth = 1 << 24

// Parse reads a program and checks all of it.
func Parse(source string) (*Program, error) {
	var t text
	if err := json.Unmarshal([]byte(source), &t); err != nil {
		return nil, invalid("not the JSON of a program: %v", err)
	}
	if len(t.Operands) > MaxOperands {
		return nil, invalid("%d operands: an expression reads at most %d tensors", len(t.Operands), MaxOperands)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(source))
	p := &Program{online: -1, Fingerprint: h.Sum32()}
	for i, o := range t.Operands {
		side := slices.Index(sides, o.Side)
		if side < 0 {
			return nil, invalid("operand %d has side %q: there are u, v, e and p", i, o.Side)
		}
		if err := checkShape(o.Shape); err != nil {
			return nil, invalid("operand %d: %v", i, err)
		}
		s := shape(slices.Clone(o.Shape))
		p.Operands = append(p.Operands, Operand{Side: Side(side), Shape: s, Width: s.width()})
		p.nodes = append(p.nodes, node{op: opLoad, a: -1, b: -1, shape: s, width: s.width(), slot: i})
	}
	for i, c := range t.Code {
		o, known := opNamed(c.Op)
		n := node{op: o, a: -1, b: -1, alpha: c.Alpha, slot: -1}
		if !known {
			return nil, invalid("instruction %d: operation %q is unknown", i, c.Op)
		}
		register := func(name string, r *int) (int, error) {
			if r == nil {
				return -1, invalid("instruction %d (%s) has no operand %s", i, c.Op, name)
			}
			if *r < 0 || *r >= len(p.nodes) {
				return -1, invalid("instruction %d (%s) reads register %d: there are %d so far", i, c.Op, *r, len(p.nodes))
			}
			return *r, nil
		}
		var err error
		if n.a, err = register("a", c.A); err != nil {
			return nil, err
		}
		if n.op.binary() {
			if n.b, err = register("b", c.B); err != nil {
				return nil, err
			}
		}
		if err := p.infer(&n, c.Shape); err != nil {
			return nil, invalid("instruction %d (%s): %v", i, c.Op, err)
		}
		p.nodes = append(p.nodes, n)
	}
	if t.Result == nil || *t.Result < 0 || *t.Result >= len(p.nodes) {
		return nil, invalid("result must be one of the %d registers", len(p.nodes))
	}
	p.result = *t.Result
	reduce := slices.Index(reducers, t.Reduce)
	if reduce < 0 {
		return nil, invalid("reduce %q: there are %s", t.Reduce, strings.Join(reducers, ", "))
	}
	p.Reduce = Reduce(reduce)
	p.findSoftmaxes()
	return p, nil
}

func checkShape(s []int) error {
	w := 1
	for _, d := range s {
		if d < 0 || d > maxWidth || w > maxWidth/max(1, d) {
			return fmt.Errorf("shape %v has a dimension below 0 or more than %d elements", s, maxWidth)
		}
		w *= d
	}
	return nil
}

// infer checks the shapes of an instruction and sets that of its result.
func (p *Program) infer(n *node, given []int) error {
	a := p.nodes[n.a].shape
	n.shape = a
	switch {
	case n.op == opDot:
		b := p.nodes[n.b].shape
		if len(a) == 0 || len(b) == 0 || a[len(a)-1] != b[len(b)-1] {
			return fmt.Errorf("shapes %v and %v differ in the last dimension", a, b)
		}
		s, ok := broadcast(a, b)
		if !ok {
			return fmt.Errorf("shapes %v and %v do not broadcast", a, b)
		}
		n.shape = append(slices.Clone(s[:len(s)-1]), 1)
	case n.op.binary():
		s, ok := broadcast(a, p.nodes[n.b].shape)
		if !ok {
			return fmt.Errorf("shapes %v and %v do not broadcast", a, p.nodes[n.b].shape)
		}
		n.shape = s
	case n.op == opTotal, n.op == opReshape:
		if err := checkShape(given); err != nil {
			return err
		}
		n.shape = slices.Clone(given)
		if n.op == opReshape && n.shape.width() != a.width() {
			return fmt.Errorf("shape %v cannot become %v", a, n.shape)
		}
		if s, ok := broadcast(n.shape, a); n.op == opTotal && (!ok || !s.equal(a)) {
			return fmt.Errorf("shape %v cannot be summed to %v", a, n.shape)
		}
	case n.op == opDropout:
		if !(n.alpha >= 0 && n.alpha <= 1) {
			return fmt.Errorf("probability %v is not between 0 and 1", n.alpha)
		}
		n.slot = p.Seeds
		p.Seeds++
	}
	if err := checkShape(n.shape); err != nil {
		return err
	}
	n.width = n.shape.width()
	return nil
}

// Shape is that of the result, without its first dimension.
func (p *Program) Shape() []int { return p.nodes[p.result].shape }

// Width is the number of elements of Shape.
func (p *Program) Width() int { return p.nodes[p.result].width }

// Softmaxes are the widths of the softmaxes: each keeps its reference and the
// inverse of its sum for every destination, [num_dst, width] both.
func (p *Program) Softmaxes() []int {
	out := make([]int, len(p.softmaxes))
	for i, s := range p.softmaxes {
		out[i] = s.width
	}
	return out
}

// depends tells, for each register, whether it depends on one of those given.
func (p *Program) depends(on func(i int) bool) []bool {
	out := make([]bool, len(p.nodes))
	for i, n := range p.nodes {
		out[i] = on(i) || n.a >= 0 && out[n.a] || n.b >= 0 && out[n.b]
	}
	return out
}

func (p *Program) findSoftmaxes() {
	live := (&code{p, p.nodes, []sink{{reg: p.result}}}).live()
	level := make([]int, len(p.nodes)) // softmaxes on the longest path to a register
	for i, n := range p.nodes {
		if n.a >= 0 {
			level[i] = level[n.a]
		}
		if n.b >= 0 {
			level[i] = max(level[i], level[n.b])
		}
		if n.op == opSoftmax && live[i] {
			p.softmaxes = append(p.softmaxes, softmax{node: i, level: level[i], width: n.width})
			level[i]++
		}
	}
	if p.Reduce == Sum || p.Reduce == Mean {
		if last := len(p.softmaxes) - 1; last >= 0 {
			if p.heads = p.proportional(p.softmaxes[last].node); p.heads != nil {
				p.online = last
			}
		}
	}
}

// proportional returns, for each element of the result, the one element of
// register s that it is a multiple of, or nil if there is no such element.
func (p *Program) proportional(s int) []int32 {
	dep := p.depends(func(i int) bool { return i == s })
	if !dep[p.result] {
		return nil
	}
	of := make([][]int32, len(p.nodes))
	through := func(i, operand int) []int32 { // as an operand is broadcast
		if of[operand] == nil {
			return nil
		}
		out := spread(p.nodes[operand].shape, p.nodes[i].shape)
		for k, at := range out {
			out[k] = of[operand][at]
		}
		return out
	}
	for i := s; i < len(p.nodes); i++ {
		n := p.nodes[i]
		switch {
		case i == s:
			of[i] = spread(n.shape, n.shape)
		case !dep[i]:
		case n.op == opScale, n.op == opNeg, n.op == opDropout, n.op == opReshape:
			of[i] = of[n.a]
		case n.op == opMul && !dep[n.b], n.op == opDiv && !dep[n.b]:
			of[i] = through(i, n.a)
		case n.op == opMul && !dep[n.a]:
			of[i] = through(i, n.b)
		case (n.op == opAdd || n.op == opSub) && dep[n.a] && dep[n.b]:
			if x, y := through(i, n.a), through(i, n.b); x != nil && slices.Equal(x, y) {
				of[i] = x
			}
		case n.op == opTotal && of[n.a] != nil:
			of[i] = merged(of[n.a], spread(n.shape, p.nodes[n.a].shape), n.width)
		}
	}
	return of[p.result]
}

// merged is what sums over elements are multiples of, where all are of the same.
func merged(of, to []int32, width int) []int32 {
	out := make([]int32, width)
	for i := range out {
		out[i] = -1
	}
	for k, at := range to {
		if out[at] >= 0 && out[at] != of[k] {
			return nil
		}
		out[at] = of[k]
	}
	if slices.Contains(out, -1) {
		return nil // sums over nothing
	}
	return out
}
