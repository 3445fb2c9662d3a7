package expr

import (
	"sync"

	"sar/core/graph"
	"sar/core/internal/vec"
	"sar/core/kernel"
)

// rows is where a load finds its rows, or a sink puts them: row r at
// data[(r-base)*stride : ...].
type rows[T Float] struct {
	data   []T
	half   []vec.BFloat16 // in place of data
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
	g.X, g.Half, g.Stride, g.Base, g.Col = p.data, p.half, p.stride, p.base, p.index[k0:k1]
}

// Sweep runs calls over edges. One goroutine at a time may use it.
type Sweep[T Float] struct {
	*calls[T]
	run     *Run[T]
	ops     *vec.Ops[T]
	defs    *definitions[T]
	loads   []rows[T]
	targets []rows[T] // by sink

	first     []int32     // 0, 1, ...: the rows of a register
	tasks     sync.Pool   // of *task[T]
	paramSums [][]float64 // of parameters' gradients, by sink
	batches   []*batch[T] // free ones
	narrow    func()      // makes what some loads read from, once; nil: there is none
	idle      bool        // runs only while the pool has nothing else to do
	thin      int64       // one in so many edges of a row is in the window, so rows are worth less; 0: 1

	outgoing *graph.Outgoing // edges into rows of a peer in place of the relation's, or nil
	firstRow int32           // of these rows, the first that is there
}

func newSweep[T Float](k *calls[T], r *Run[T]) *Sweep[T] {
	s := &Sweep[T]{calls: k, run: r, ops: vec.Get[T](), defs: defsOf[T]()}
	s.loads, s.targets = make([]rows[T], k.p.numInputs()), make([]rows[T], len(k.sinks))
	s.paramSums = make([][]float64, len(k.sinks))
	s.bind()
	s.first = make([]int32, k.capacity)
	for i := range s.first {
		s.first[i] = int32(i)
	}
	s.tasks.New = func() any { return newTask(s) }
	return s
}

// bind makes loads read what the run has.
func (s *Sweep[T]) bind() {
	for i := range s.loads {
		s.loads[i] = s.run.input(i)
	}
}

// parameter is the row of a parameter.
func (s *Sweep[T]) parameter(i int) []T {
	n := s.nodes[i]
	return s.loads[n.arg].data[:n.width]
}

// Source makes an operand the rows of a frame that begin at column base: it begins at offset of rows of stride
// bytes, as it is stored.
func (s *Sweep[T]) Source(operand int, frame []byte, offset, stride int, base int32) {
	s.loads[operand] = s.run.rowsOf(operand, tail(frame, offset), stride, base)
}

// Target puts the gradient of an operand of side U into rows from column base on, at offset of rows of stride elements.
func (s *Sweep[T]) Target(operand int, data []T, offset, stride int, base int32) {
	for n, k := range s.sinks {
		if k.kind == sinkColumn && k.of == operand {
			s.targets[n] = rows[T]{data: tail(data, offset), stride: stride, base: base}
		}
	}
}

func tail[T any](x []T, from int) []T { return x[min(from, len(x)):] }

func (s *Sweep[T]) pool() *kernel.Pool {
	if s.idle {
		return s.run.Pool.Behind()
	}
	return s.run.Pool
}
