package expr

import (
	"slices"

	"sar/core/internal/view"
)

// calls is code as it runs: what is done for every block of edges, in order, and where its registers lie. compile
// makes it, nothing changes it, and any number of sweeps run it.
type calls[T Float] struct {
	*code
	list  []call[T] // first those that are the same for all edges
	fixed int       // how many those are
	sums  []*sum[T] // then these

	buffers
	readsEdges bool // the users' numbers of edges are read
	params     bool // there are gradients of parameters
	scatters   bool // there are sums for destinations in a sweep over columns
	work       int  // elements that an edge costs
}

// call makes one register of a block.
type call[T Float] struct {
	node
	reg         int
	in          []int   // the registers that have to be made for it; other loads it reads where they lie
	left, right reading // how it reads a and b
	fixed       bool    // the same for all edges: computed once a task
	form        any     // what the pattern that recognized it wants to know
	run         func(t *task[T], z []T, c *call[T])
}

// sum adds up a register over edges, or what would have been the register.
type sum[T Float] struct {
	sink
	addend
	n     int // number of the sink
	at    int // among the sums
	width int
	block func(t *task[T], a *sum[T]) // adds a block of edges; nil: a call that was joined with it does
	// scatter adds a share of the columns of a batch, of sinkScatter: all of them where it does not divide.
	scatter func(s *Sweep[T], a *sum[T], b *batch[T], share, shares int)
	divides bool
}

// addend is what a sum adds up: register from, or products of it with rows that are read where they lie.
type addend struct {
	from int // the register that has to be made, -1: rows alone
	rows int // a load, -1: from alone, or what form says
	d    int // elements of a row that share one of from
	form any // what the pattern that recognized it wants to know
}

// inPlace tells whether the sum reads wide rows where they lie.
func (a *addend) inPlace() bool { return a.rows >= 0 || a.form != nil }

// selection is code whose calls are being chosen, for elements of size bytes.
type selection struct {
	*code
	size int
	uses []int // how often a register is read
}

func newSelection(c *code, size int) *selection {
	s := &selection{code: c, size: size, uses: make([]int, len(c.nodes))}
	for i, live := range c.live() {
		if n := c.nodes[i]; live && n.a >= 0 {
			s.uses[n.a]++
			if n.b >= 0 {
				s.uses[n.b]++
			}
		}
	}
	for _, k := range c.sinks {
		s.uses[k.reg]++
	}
	return s
}

// compile chooses the calls for code. plain: without patterns, so every register is made.
func compile[T Float](c *code, plain bool) *calls[T] {
	s, k := newSelection(c, view.Size[T]()), &calls[T]{code: c, readsEdges: c.needsEdges() || c.stores()}
	var known []pattern[T]
	if !plain {
		known = patterns[T]()
	}
	needed := make([]bool, len(c.nodes))
	for n, to := range c.sinks {
		k.params, k.scatters = k.params || to.kind == sinkParam, k.scatters || to.kind == sinkScatter
		sums := selectSums(s, known, to)
		divides := !slices.ContainsFunc(sums, func(a *sum[T]) bool { return !a.inPlace() || a.d != sums[0].d })
		for _, a := range sums {
			a.n, a.at, a.divides = n, len(k.sums), divides
			k.sums = append(k.sums, a)
			k.work += a.width
			if a.from >= 0 {
				needed[a.from] = true
			}
		}
		if to.kind == sinkOnline { // the weights, though the product that holds them may not be made
			for i, live := range c.live() {
				needed[i] = needed[i] || live && c.nodes[i].op == opWeigh
			}
		}
	}
	made, fixed := make([]*call[T], len(c.nodes)), s.fixed()
	for i := len(c.nodes) - 1; i >= 0; i-- {
		if needed[i] {
			made[i] = selectCall(s, known, i)
			made[i].fixed = fixed[i]
			for _, x := range made[i].in {
				needed[x] = true
			}
		}
	}
	for _, first := range []bool{true, false} {
		for _, m := range made {
			if m != nil && m.fixed == first {
				k.list = append(k.list, *m)
				k.work += m.width
			}
		}
		if first {
			k.fixed = len(k.list)
		}
	}
	for _, p := range known {
		if p.join != nil {
			p.join(s, k)
		}
	}
	k.buffers = k.allocate(s.size)
	return k
}

// selectSums says how a sink's register is added up. A gradient that comes from several
// places is added place by place where one of them can be read where it lies.
func selectSums[T Float](s *selection, known []pattern[T], k sink) []*sum[T] {
	gradient := k.of != theResult && (k.kind == sinkRow || k.kind == sinkColumn)
	divides := func(reg int) bool { return k.kind == sinkScatter || gradient && s.uses[reg] == 1 }
	var out []*sum[T]
	inPlace := false
	for _, reg := range s.terms(k.reg, divides) {
		a := selectSum(s, known, sink{k.kind, reg, k.of})
		inPlace = inPlace || a.inPlace()
		out = append(out, a)
	}
	if !inPlace {
		out = []*sum[T]{selectSum(s, known, k)}
	}
	return out
}

// terms are the registers that a register is the sum of, as far as it may be divided.
func (c *code) terms(reg int, divides func(reg int) bool) []int {
	n := c.nodes[reg]
	if n.op != opAdd || !divides(reg) || !c.nodes[n.a].shape.equal(n.shape) || !c.nodes[n.b].shape.equal(n.shape) {
		return []int{reg}
	}
	return append(c.terms(n.a, divides), c.terms(n.b, divides)...)
}

func selectSum[T Float](s *selection, known []pattern[T], k sink) *sum[T] {
	a := &sum[T]{sink: k, width: s.nodes[k.reg].width, addend: addend{from: k.reg, rows: -1}}
	switch k.kind {
	case sinkRow, sinkColumn, sinkOnline:
		a.block = (*task[T]).addRows
	case sinkScatter:
		a.block, a.scatter = (*task[T]).collect, scatterMade
	case sinkParam:
		a.block = (*task[T]).addAll
	case sinkEdge:
		a.block = (*task[T]).store
	case sinkStep:
		a.block = (*task[T]).step
	case sinkWeights:
	}
	for _, p := range known {
		if p.sum == nil {
			continue
		}
		if form, ok := p.sum(s, k); ok {
			a.addend = form
			if p.add != nil && k.kind != sinkScatter {
				a.block = p.add
			}
			if p.scatter != nil {
				a.scatter = p.scatter
			}
			break
		}
	}
	return a
}

func selectCall[T Float](s *selection, known []pattern[T], i int) *call[T] {
	n := s.nodes[i]
	c := &call[T]{node: n, reg: i, run: loopOf[T](n.op)}
	if n.a >= 0 && (n.op.binary() || n.op == opSpread) {
		c.left = readingOf(s.nodes[n.a].shape, n.shape)
	}
	if n.b >= 0 && n.op.binary() {
		c.right = readingOf(s.nodes[n.b].shape, n.shape)
	}
	if n.op == opTotal {
		c.left = readingOf(n.shape, s.nodes[n.a].shape)
	}
	for _, p := range known {
		if p.call == nil {
			continue
		}
		if form, in, ok := p.call(s, n); ok {
			c.form, c.in, c.run = form, in, p.run
			return c
		}
	}
	for _, x := range []int{n.a, n.b} {
		if x >= 0 && !(s.nodes[x].op == opLoad && s.native(s.nodes[x].arg) && s.readsInPlace(n)) {
			c.in = append(c.in, x)
		}
	}
	return c
}

// readsInPlace tells whether an instruction reads the loads among its operands where they
// lie, row by row: products that are summed do, and operations of wide rows.
func (s *selection) readsInPlace(n node) bool {
	if n.op == opDots || n.op == opWinner || n.op == opBest {
		return true
	}
	if n.op < opAdd || n.op > opDiv || n.width*s.size < rowBytes {
		return false
	}
	a, b := s.nodes[n.a], s.nodes[n.b]
	return a.width == n.width && b.width == n.width
}

// lies tells whether a register is a load of rows that differ from edge to edge and
// can be read where they lie.
func (c *code) lies(i int) bool {
	n := c.nodes[i]
	return n.op == opLoad && c.native(n.arg) && c.p.side(n.arg) != P
}

// native tells whether an input is numbers of the element type.
func (c *code) native(input int) bool {
	if input < len(c.p.Operands) {
		return c.p.Operands[input].Storage == Native
	}
	return !c.half || input != c.p.inputGrad()
}

// fixed are the registers that are the same for all edges.
func (c *code) fixed() []bool {
	fixed := make([]bool, len(c.nodes))
	for i, n := range c.nodes {
		switch n.op {
		case opLoad:
			fixed[i] = c.p.side(n.arg) == P
		case opMask, opWinner, opBest, opWeigh:
		default:
			fixed[i] = fixed[n.a] && (n.b < 0 || fixed[n.b])
		}
	}
	return fixed
}
