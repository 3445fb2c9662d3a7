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

// MaxOperands is how many operands a program may have: which of them need a
// gradient travels as bits of a frame's flags.
const MaxOperands = 16

// Operand is a tensor that a program reads.
type Operand struct {
	Side    Side
	Shape   []int
	Width   int
	Storage Storage
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
	online    int     // the softmax that is computed in one sweep with the result, or -1
	heads     []int32 // of that: the element of the softmax that an element of the result is a multiple of
	plans     plans
}

// node is one register and how it is computed.
type node struct {
	op    op
	a, b  int // registers
	alpha float64
	shape shape
	width int
	arg   int // of a load: which input; of a dropout: which seed; of a softmax: which; of a slope: which operation
}

// ErrInvalid is an error in a program.
var ErrInvalid = errors.New("invalid program")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// text is a program as JSON.
type text struct {
	Operands []struct {
		Side    string `json:"side"`
		Shape   []int  `json:"shape"`
		Storage string `json:"storage"`
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
		storage, known := storageNamed(o.Storage)
		if !known {
			return nil, invalid("operand %d has storage %q, which is unknown", i, o.Storage)
		}
		s := shape(slices.Clone(o.Shape))
		p.Operands = append(p.Operands, Operand{Side: Side(side), Shape: s, Width: s.width(), Storage: storage})
		p.nodes = append(p.nodes, node{op: opLoad, a: -1, b: -1, shape: s, width: s.width(), arg: i})
	}
	for i, c := range t.Code {
		o, known := opNamed(c.Op)
		n := node{op: o, a: -1, b: -1, alpha: c.Alpha, arg: -1}
		if !known {
			return nil, invalid("instruction %d: operation %q is unknown", i, c.Op)
		}
		register := func(name string, r *int) (int, error) {
			if r == nil {
				return -1, invalid("instruction %d (%s) has no operand %s", i, c.Op, name)
			}
			if *r < 0 || *r >= len(p.nodes) {
				return -1, invalid("instruction %d (%s) reads register %d: there are %d so far",
					i, c.Op, *r, len(p.nodes))
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
	var known bool
	if p.Reduce, known = reduceNamed(t.Reduce); !known {
		return nil, invalid("reduce %q: there are %s", t.Reduce, strings.Join(Reducers(), ", "))
	}
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
		n.arg = p.Seeds
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
