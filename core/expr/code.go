package expr

import (
	"math/bits"
	"slices"
)

// Inputs are the arrays that loads read: the operands, then what a run makes.
func (p *Program) inputGrad() int       { return len(p.Operands) }               // of the result
func (p *Program) inputMost(s int) int  { return len(p.Operands) + 1 + 3*s }     // the reference of softmax s
func (p *Program) inputInv(s int) int   { return len(p.Operands) + 1 + 3*s + 1 } // the inverse of its sum
func (p *Program) inputDelta(s int) int { return len(p.Operands) + 1 + 3*s + 2 } // Σ of weights · their gradients
func (p *Program) inputResult() int     { return p.inputMost(len(p.softmaxes)) } // in backward
func (p *Program) numInputs() int       { return p.inputResult() + 1 }
func (p *Program) side(input int) Side {
	switch {
	case input < len(p.Operands):
		return p.Operands[input].Side
	case input == p.inputGrad() && p.Reduce == None:
		return E
	}
	return V
}

// code is registers and what becomes of some of them: one sweep over edges. Registers are numbered in the order
// in which they are computed, and never change.
type code struct {
	p     *Program
	nodes []node
	sinks []sink
	half  bool // the gradient of the result is in bfloat16
}

// sink is what becomes of a register, edge by edge.
type sink struct {
	kind sinkKind
	reg  int
	of   int // the operand whose gradient it is, the input that it makes, the softmax, or theResult
}

// theResult is what a sink is of that makes it.
const theResult = -1

type sinkKind uint8

const (
	sinkRow     sinkKind = iota // added up for each destination
	sinkColumn                  // added up for each source
	sinkEdge                    // stored for each edge
	sinkParam                   // added up over all edges
	sinkStep                    // taken into what each destination has, by the step of the reduceDef
	sinkWeights                 // nothing: the reference and the sum of the softmax are what is wanted
	sinkOnline                  // added up for each destination, relative to the softmax's reference so far
	sinkScatter                 // added up for each destination by a sweep over columns
)

// builder derives code from a program.
type builder struct {
	p     *Program
	nodes []node
	of    []int // register of the code for a register of the program
	loads map[int]int
	masks map[int]int // register of the mask of each dropout
}

func newBuilder(p *Program) *builder {
	return &builder{p: p, of: make([]int, len(p.nodes)), loads: map[int]int{}, masks: map[int]int{}}
}

func (b *builder) add(n node) int {
	n.width = n.shape.width()
	b.nodes = append(b.nodes, n)
	return len(b.nodes) - 1
}

func (b *builder) load(input int, s shape) int {
	if i, ok := b.loads[input]; ok {
		return i
	}
	b.loads[input] = b.add(node{op: opLoad, a: -1, b: -1, shape: s, arg: input})
	return b.loads[input]
}

// dropout is a register times the mask of program node n.
func (b *builder) dropout(x int, n node) int {
	if _, ok := b.masks[n.arg]; !ok {
		b.masks[n.arg] = b.add(node{op: opMask, a: -1, b: -1, alpha: n.alpha, shape: n.shape, arg: n.arg})
	}
	return b.make(opMul, x, b.masks[n.arg])
}

func (b *builder) shape(i int) shape { return b.nodes[i].shape }

// make adds an operation on registers; its shape follows from theirs.
func (b *builder) make(o op, x, y int) int {
	s := b.shape(x)
	if y >= 0 {
		s, _ = broadcast(s, b.shape(y))
		x, y = b.unspread(x, b.shape(y), s), b.unspread(y, b.shape(x), s)
	}
	return b.add(node{op: o, a: x, b: y, shape: s, arg: -1})
}

// unspread is what a register was repeated from, where an operation with another of shape
// other, whose result has shape s, repeats it anyway.
func (b *builder) unspread(x int, other, s shape) int {
	if n := b.nodes[x]; n.op == opSpread {
		if all, ok := broadcast(b.shape(n.a), other); ok && all.equal(s) {
			return n.a
		}
	}
	return x
}

func (b *builder) with(o op, x int, alpha float64) int {
	return b.add(node{op: o, a: x, b: -1, alpha: alpha, shape: b.shape(x), arg: -1})
}

// to sums or repeats a register into a shape.
func (b *builder) to(x int, s shape) int {
	have := b.shape(x)
	if have.equal(s) {
		return x
	}
	if have.width() == s.width() {
		return b.add(node{op: opReshape, a: x, b: -1, shape: s, arg: -1})
	}
	if all, ok := broadcast(have, s); ok && all.width() == s.width() {
		return b.add(node{op: opSpread, a: x, b: -1, shape: s, arg: -1})
	}
	return b.add(node{op: opTotal, a: x, b: -1, shape: s, arg: -1})
}

// timesTo is x·y summed into a shape; the products of runs are summed as they
// are made.
func (b *builder) timesTo(x, y int, s shape) int {
	all, _ := broadcast(b.shape(x), b.shape(y))
	if d, ok := grouped(s, all); ok && d > 1 && b.shape(x).width() == all.width() && b.shape(y).width() == all.width() {
		return b.add(node{op: opDots, a: x, b: y, shape: s, arg: -1})
	}
	return b.to(b.make(opMul, x, y), s)
}

// forward copies the program. The softmax whose number is weigh becomes its weights
// before division by their sum; the others are computed from what is known.
func (b *builder) forward(weigh func(s int) bool) {
	number := map[int]int{}
	for s, x := range b.p.softmaxes {
		number[x.node] = s
	}
	for i, n := range b.p.nodes {
		s, live := number[i]
		switch {
		case n.op == opLoad:
			b.of[i] = b.load(n.arg, n.shape)
		case n.op == opSoftmax && !live:
			b.of[i] = b.of[n.a] // nobody reads it
		case n.op == opSoftmax && weigh(s):
			b.of[i] = b.add(node{op: opWeigh, a: b.of[n.a], b: -1, shape: n.shape, arg: s})
		case n.op == opSoftmax:
			over := b.make(opSub, b.of[n.a], b.load(b.p.inputMost(s), n.shape))
			b.of[i] = b.make(opMul, b.make(opExp, over, -1), b.load(b.p.inputInv(s), n.shape))
		case n.op == opDropout:
			b.of[i] = b.dropout(b.of[n.a], n)
		case n.op == opDot && b.p.nodes[n.a].shape.equal(b.p.nodes[n.b].shape):
			b.of[i] = b.add(node{op: opDots, a: b.of[n.a], b: b.of[n.b], shape: n.shape, arg: -1})
		case n.op == opTotal && b.p.sumsProduct(n):
			m := b.p.nodes[n.a]
			b.of[i] = b.add(node{op: opDots, a: b.of[m.a], b: b.of[m.b], shape: n.shape, arg: -1})
		case n.op == opDot:
			product := b.make(opMul, b.of[n.a], b.of[n.b])
			b.of[i] = b.add(node{op: opTotal, a: product, b: -1, shape: n.shape, arg: -1})
		default:
			m := n
			m.a = b.of[n.a]
			if n.b >= 0 {
				m.b = b.of[n.b]
			}
			b.of[i] = b.add(m)
		}
	}
}

// sumsProduct tells whether an opTotal sums runs of a product of two registers of one shape.
func (p *Program) sumsProduct(n node) bool {
	m := p.nodes[n.a]
	if m.op != opMul || !p.nodes[m.a].shape.equal(m.shape) || !p.nodes[m.b].shape.equal(m.shape) {
		return false
	}
	d, ok := grouped(n.shape, m.shape)
	return ok && d > 1
}

// forwardCodes are the sweeps of forward, one after the other: the softmaxes level by
// level, then the result.
func (p *Program) forwardCodes() []*code {
	var out []*code
	for level := 0; level <= p.levels(); level++ {
		b := newBuilder(p)
		b.forward(func(s int) bool { return p.softmaxes[s].level == level || s == p.online && level == p.levels() })
		var sinks []sink
		if level < p.levels() {
			for s, x := range p.softmaxes {
				if x.level == level && s != p.online {
					sinks = append(sinks, sink{sinkWeights, b.of[x.node], s})
				}
			}
		} else {
			sinks = append(sinks, sink{p.resultSink(), b.of[p.result], theResult})
		}
		if len(sinks) > 0 {
			out = append(out, &code{p: p, nodes: b.nodes, sinks: sinks})
		}
	}
	return out
}

// resultSink is what becomes of messages.
func (p *Program) resultSink() sinkKind {
	switch def := p.reduce(); {
	case p.online >= 0:
		return sinkOnline
	case def.sum:
		return sinkRow
	case def.step != nil:
		return sinkStep
	}
	return sinkEdge
}

// wanted tells whether bit i is set.
func wanted(set uint32, i int) bool { return set>>i&1 != 0 }

// values are the operands whose values the code reads.
func (c *code) values() (set uint32) {
	for i, l := range c.live() {
		if n := c.nodes[i]; l && n.op == opLoad && n.arg < len(c.p.Operands) {
			set |= 1 << n.arg
		}
	}
	return set
}

// live are the registers that the sinks need.
func (c *code) live() []bool {
	out := make([]bool, len(c.nodes))
	for _, s := range c.sinks {
		out[s.reg] = true
	}
	for i := len(c.nodes) - 1; i >= 0; i-- {
		if n := c.nodes[i]; out[i] && n.a >= 0 {
			out[n.a] = true
			if n.b >= 0 {
				out[n.b] = true
			}
		}
	}
	return out
}

// needsEdges tells whether what is computed depends on the users' numbers of edges.
func (c *code) needsEdges() bool {
	for i, l := range c.live() {
		if !l {
			continue
		}
		switch n := c.nodes[i]; n.op {
		case opLoad:
			if c.p.side(n.arg) == E {
				return true
			}
		case opMask, opWinner:
			return true
		}
	}
	return false
}

// stores tells whether something is stored under the users' numbers of edges.
func (c *code) stores() bool {
	return slices.ContainsFunc(c.sinks, func(s sink) bool { return s.kind == sinkEdge || s.kind == sinkStep })
}

// sources are the operands of side U.
func (p *Program) sources() (set uint32) {
	for i, o := range p.Operands {
		if o.Side == U {
			set |= 1 << i
		}
	}
	return set
}

// RowWidth is the width of the rows of some operands side by side, as their gradients are.
func (p *Program) RowWidth(set uint32) (w int) {
	for ; set != 0; set &= set - 1 {
		w += p.Operands[bits.TrailingZeros32(set)].Width
	}
	return w
}

// RowBytes is the size of such a row of the operands themselves.
func (p *Program) RowBytes(set uint32, elemSize int) (n int) {
	for ; set != 0; set &= set - 1 {
		n += p.Operands[bits.TrailingZeros32(set)].RowBytes(elemSize)
	}
	return n
}
