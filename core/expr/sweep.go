package expr

import (
	"sync"

	"sar/core/graph"
	"sar/core/internal/vec"
	"sar/core/internal/view"
	"sar/core/kernel"
)

// rows is where a load finds its rows, or a sink puts them: row r at
// data[(r-base)*stride : ...].
type rows[T Float] struct {
	data   []T
	stride int
	base   int32
}

// row is what begins with row i.
func (r *rows[T]) row(i int32) []T { return r.data[int(i-r.base)*r.stride:] }

// picked is the rows that the edges of a block read.
type picked[T Float] struct {
	rows[T]
	index []int32 // by edge
}

// of is what begins with the row of edge k.
func (p *picked[T]) of(k int) []T { return p.row(p.index[k]) }

// gather makes them the rows that a loop gathers for edges k0..k1-1.
func (p *picked[T]) gather(g *vec.Gather[T], k0, k1 int) {
	g.X, g.Stride, g.Base, g.Col = p.data, p.stride, p.base, p.index[k0:k1]
}

// how an operand is read by an operation whose result is wider.
type reading struct {
	d  int     // each element is read by a run of d of the result; 1: as it is; 0: by at
	at []int32 // element of the operand for each of the result
}

func readingOf(from, to shape) reading {
	if d, ok := grouped(from, to); ok {
		return reading{d: d}
	}
	return reading{at: spread(from, to)}
}

// step is one register of a block and how it is computed.
type step struct {
	node
	reg    int // of the code
	ra, rb reading
	fixed  bool    // the same for all edges: computed once a task
	leaky  *leaky  // how dots are computed without the activations
	sum    *adding // what is added up as the rows of dots are read, or nil
}

// adding is how a sink adds a register up.
type adding struct {
	sink
	x, c  int // the register is x·c with x a load that is read where it lies; c -1: x alone; x -1: the register itself
	width int
	d     int // elements of x that share an element of c
	at    int // among those of the sweep
	of    []int32
	leaky *leaky  // the register is c times an activation that is never materialized
	with  *adding // what is added up along with it, of the same rows
	done  bool    // along with something else
}

// Sweep runs code over edges. One goroutine at a time may use it.
type Sweep[T Float] struct {
	code     *code
	run      *Run[T]
	ops      *vec.Ops[T]
	defs     *[numOps]opDef[T]
	loads    []rows[T] // by slot
	targets  []rows[T] // by sink
	steps    []step
	fixed    int // steps that come first and are computed once
	adds     []adding
	buffer   []int // of a register, -1 where it is not made
	widths   []int // of buffers
	capacity int   // edges of a block
	edges    bool  // numbers of edges are needed
	first    []int32
	tasks    sync.Pool
	sums     [][]float64 // of parameters' gradients, by sink
	packed   *packed[T]  // what some loads read from, or nil
	idle     bool        // computes when nobody else does
	batches  []*batch[T] // that nobody uses
	thin     int64       // of so many edges of the rows that are swept over one counts; 0: 1

	outgoing *graph.Outgoing // edges into rows of a peer in place of the relation's, or nil
	firstRow int32           // of these rows, the first that is there
}

const (
	blockBytes         = 192 << 10 // registers of a block
	minEdges, maxEdges = 32, 2048  // edges of a block
	rowBytes           = 64        // a row that is worth a call of its own
	directBytes        = 32        // elements that share a coefficient, for products that are added without being made
)

func newSweep[T Float](c *code, r *Run[T]) *Sweep[T] {
	s := &Sweep[T]{code: c, run: r, ops: vec.Get[T](), defs: defsOf[T](), loads: make([]rows[T], c.p.numSlots()), edges: c.needsEdges()}
	s.targets = make([]rows[T], len(c.sinks))
	s.sums = make([][]float64, len(c.sinks))
	for slot := range s.loads {
		s.loads[slot] = r.rows(slot)
	}
	s.compile()
	s.tasks.New = func() any { return newTask(s) }
	return s
}

// inPlace tells whether an instruction reads the loads among its operands where they
// lie, row by row: products that are summed do, and operations of wide rows.
func (s *Sweep[T]) inPlace(n node) bool {
	if n.op == opDots || n.op == opWinner || n.op == opBest {
		return true
	}
	if n.op < opAdd || n.op > opDiv || n.width*view.Size[T]() < rowBytes {
		return false
	}
	a, b := s.code.nodes[n.a], s.code.nodes[n.b]
	return a.width == n.width && b.width == n.width
}

// lazy tells whether a register is a load that can be read where it lies.
func (c *code) lazy(i int) bool {
	return c.nodes[i].op == opLoad && (c.nodes[i].slot >= len(c.p.Operands) || c.p.side(c.nodes[i].slot) != P)
}

func (s *Sweep[T]) compile() {
	c := s.code
	live := c.live()
	uses := make([]int, len(c.nodes))
	for i, n := range c.nodes {
		if live[i] && n.a >= 0 {
			uses[n.a]++
			if n.b >= 0 {
				uses[n.b]++
			}
		}
	}
	for _, k := range c.sinks {
		uses[k.reg]++
	}
	made := make([]bool, len(c.nodes)) // registers that exist as such
	for n, k := range c.sinks {
		for _, a := range s.addings(k, uses) {
			a.slot, a.at = n, len(s.adds)
			s.adds = append(s.adds, a)
			switch {
			case a.c >= 0:
				made[a.c] = true
			case a.x < 0:
				made[a.reg] = true
			}
		}
		if k.kind == sinkOnline { // the weights, though the product that holds them may not be made
			for i, n := range c.nodes {
				if live[i] && n.op == opWeigh {
					made[i] = true
				}
			}
		}
	}
	for i := len(c.nodes) - 1; i >= 0; i-- {
		n := c.nodes[i]
		if !made[i] || n.a < 0 {
			continue
		}
		if s.leakyDots(n) != nil {
			continue
		}
		for _, x := range []int{n.a, n.b} {
			if x >= 0 && !(c.nodes[x].op == opLoad && s.inPlace(n)) {
				made[x] = true
			}
		}
	}
	s.schedule(made)
	s.pair()
	s.pairLeaky()
}

// addings says how a sink's register is added up. A gradient that comes from several
// places is added place by place where one of them can be read where it lies.
func (s *Sweep[T]) addings(k sink, uses []int) []adding {
	c := s.code
	apart := func(reg int) bool {
		return k.kind == sinkScatter || uses[reg] == 1 && k.slot != targetOut && (k.kind == sinkRow || k.kind == sinkColumn)
	}
	var out []adding
	direct := false
	for _, reg := range c.terms(k.reg, apart) {
		a := s.adding(k, reg, uses)
		direct = direct || a.x >= 0 || a.leaky != nil
		out = append(out, a)
	}
	if !direct {
		out = []adding{s.adding(k, k.reg, uses)}
	}
	return out
}

func (s *Sweep[T]) adding(k sink, reg int, uses []int) adding {
	c := s.code
	n := c.nodes[reg]
	a := adding{sink: sink{k.kind, reg, k.slot}, x: -1, c: -1, width: n.width}
	if s.run.plain && k.kind != sinkOnline {
		return a
	}
	if s.leakySum(&a) {
		return a
	}
	if k.kind == sinkOnline {
		a.of = c.p.heads
	}
	lying := c.lazy
	switch k.kind {
	case sinkScatter:
		lying = c.ofSource
	case sinkRow, sinkColumn, sinkOnline:
		if c.lazy(reg) {
			a.x = reg
			return a
		}
		if uses[reg] > 1 {
			return a
		}
	default:
		return a
	}
	if y, x, d, ok := c.scaled(reg, n.shape, 1, lying); ok && d*view.Size[T]() >= directBytes && (k.kind != sinkOnline || s.runsOf(a.of, d)) {
		a.x, a.c, a.d = x, y, d
	}
	return a
}

// runsOf tells whether the d elements of each group have one head.
func (s *Sweep[T]) runsOf(of []int32, d int) bool {
	for j, h := range of {
		if h != of[j/d*d] {
			return false
		}
	}
	return true
}

// schedule lists the steps and gives registers buffers, one for several that
// are not needed at the same time.
func (s *Sweep[T]) schedule(made []bool) {
	c := s.code
	fixed := make([]bool, len(c.nodes))
	for i, n := range c.nodes {
		switch {
		case n.op == opLoad:
			fixed[i] = !c.lazy(i)
		case n.op == opMask || n.op == opWinner || n.op == opBest || n.op == opWeigh:
		default:
			fixed[i] = fixed[n.a] && (n.b < 0 || fixed[n.b])
		}
	}
	for pass := range 2 {
		for i, n := range c.nodes {
			if made[i] && fixed[i] == (pass == 0) {
				st := step{node: n, reg: i, fixed: fixed[i]}
				if n.a >= 0 && (n.op.binary() || n.op == opSpread) {
					st.ra = readingOf(c.nodes[n.a].shape, n.shape)
				}
				if n.b >= 0 && n.op.binary() {
					st.rb = readingOf(c.nodes[n.b].shape, n.shape)
				}
				if n.op == opDots {
					st.leaky = s.leakyDots(n)
				}
				if n.op == opTotal {
					st.ra = readingOf(n.shape, c.nodes[n.a].shape)
				}
				s.steps = append(s.steps, st)
			}
		}
		if pass == 0 {
			s.fixed = len(s.steps)
		}
	}
	last := make([]int, len(c.nodes)) // step after which a register is not read
	for at, st := range s.steps {
		last[st.reg] = at
		if st.a >= 0 {
			last[st.a] = at
		}
		if st.b >= 0 {
			last[st.b] = at
		}
	}
	for _, a := range s.adds {
		last[a.reg] = len(s.steps)
		if a.c >= 0 {
			last[a.c] = len(s.steps)
		}
	}
	s.buffer = make([]int, len(c.nodes))
	for i := range s.buffer {
		s.buffer[i] = -1
	}
	free := map[int][]int{}
	total := 0
	for at, st := range s.steps {
		if stack := free[st.width]; len(stack) > 0 && !st.fixed {
			s.buffer[st.reg], free[st.width] = stack[len(stack)-1], stack[:len(stack)-1]
		} else {
			s.buffer[st.reg] = len(s.widths)
			s.widths = append(s.widths, st.width)
			total += st.width
		}
		for n, x := range []int{st.a, st.b} {
			if x >= 0 && (n == 0 || x != st.a) && s.buffer[x] >= 0 && last[x] == at && !fixed[x] {
				free[c.nodes[x].width] = append(free[c.nodes[x].width], s.buffer[x])
			}
		}
	}
	widest := 1
	for _, st := range s.steps {
		widest = max(widest, st.width)
	}
	bytes := (total+2*widest)*view.Size[T]() + 16
	s.capacity = min(maxEdges, max(minEdges, blockBytes/bytes))
	s.first = make([]int32, s.capacity)
	for i := range s.first {
		s.first[i] = int32(i)
	}
}

// Source makes operand i, or the gradient that the sweep makes of it, the rows of
// a frame that begin at column base: its elements begin at offset of rows of stride.
func (s *Sweep[T]) Source(operand int, data []T, offset, stride int, base int32) {
	s.loads[operand] = rows[T]{tail(data, offset), stride, base}
}

// Target puts the gradient of an operand of side U into rows like those of Source.
func (s *Sweep[T]) Target(operand int, data []T, offset, stride int, base int32) {
	for n, k := range s.code.sinks {
		if k.kind == sinkColumn && k.slot == operand {
			s.targets[n] = rows[T]{tail(data, offset), stride, base}
		}
	}
}

func tail[T Float](x []T, from int) []T { return x[min(from, len(x)):] }

func (s *Sweep[T]) relation() *graph.Relation { return s.run.Rel }

func (s *Sweep[T]) pool() *kernel.Pool {
	if s.idle {
		return s.run.Pool.Behind()
	}
	return s.run.Pool
}
