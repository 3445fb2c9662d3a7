package session

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sar/core/kernel"
	"sar/core/mem"
)

// toT converts the oracle's numbers.
func toT[T kernel.Float](x []float64) []T {
	y := make([]T, len(x))
	for i, v := range x {
		y[i] = T(v)
	}
	return y
}

// cut cuts numbers to what bfloat16 stores of them, in place, and returns that.
func cut(x []float64) []uint16 {
	out := make([]uint16, len(x))
	for i, v := range x {
		out[i] = uint16(math.Float32bits(float32(v)) >> 16)
		x[i] = float64(math.Float32frombits(uint32(out[i]) << 16))
	}
	return out
}

func round[T kernel.Float](x []float64) []float64 {
	for i, v := range x {
		x[i] = float64(T(v))
	}
	return x
}

type aggregateCase struct {
	width, heads int // heads 0: copy_u
	mean         bool
	half         bool // everything in bfloat16 but weights
}

// program is the sum as a program.
func (c aggregateCase) program() Program {
	var b Builder
	x := b.U(c.width)
	if c.heads > 0 {
		b = Builder{}
		x = b.U(c.heads, c.width/c.heads)
	}
	if c.half {
		x = x.InBFloat16()
	}
	if c.heads > 0 {
		x = x.Mul(b.E(c.heads, 1))
	}
	program, err := x.Sum()
	if c.mean {
		program, err = x.Mean()
	}
	if err != nil {
		panic(err)
	}
	return program
}

// rowsCloseTo allows what was rounded one unit in the last place.
func rowsCloseTo[T kernel.Float](name string, got Rows[T], want []float64, tol float64) error {
	if got.Half == nil {
		return closeTo(name, got.Data, want, tol)
	}
	for i, v := range got.Half {
		if w := float64(math.Float32frombits(uint32(v) << 16)); !(math.Abs(w-want[i]) <= 0x1p-8*math.Abs(want[i])+tol) {
			return fmt.Errorf("%s[%d] = %v in bfloat16, want %v", name, i, w, want[i])
		}
	}
	return nil
}

// runCase compares one aggregation on one worker with the serial one.
func runCase[T kernel.Float](s *Session, g *whole, c aggregateCase, seed uint64, tol float64) error {
	rng := rand.New(rand.NewPCG(seed, 7)) // the same numbers on every rank
	u := round[T](random[float64](rng, g.n*c.width))
	gradOut := round[T](random[float64](rng, g.n*c.width))
	var halfU, halfGradOut []uint16
	if c.half {
		halfU, halfGradOut = cut(u), cut(gradOut)
	}
	var w []float64
	if c.heads > 0 {
		w = round[T](random[float64](rng, len(g.src)*c.heads))
	}
	wantOut, wantU, wantW := g.serial(c.width, c.heads, c.mean, u, w, gradOut)

	p := s.Rank()
	src, dst, at := g.of(p)
	lo, hi := int(g.starts[p]), int(g.starts[p+1])
	own := func(x []float64) []float64 { return x[lo*c.width : hi*c.width] }
	dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
	if err != nil {
		return err
	}
	defer dg.Free()

	n := hi - lo
	rows := func(x []T) Rows[T] { return Rows[T]{Data: x, N: n, Width: c.width} }
	program := c.program()
	call := ProgramCall[T]{Operands: []Rows[T]{rows(toT[T](own(u)))}, Out: rows(make([]T, n*c.width))}
	gradOfOut, gradU := rows(toT[T](own(gradOut))), rows(make([]T, n*c.width))
	if c.half {
		half := func(x []uint16) Rows[T] { return Rows[T]{Half: x, N: n, Width: c.width} }
		call.Operands[0], gradOfOut = half(halfU[lo*c.width:hi*c.width]), half(halfGradOut[lo*c.width:hi*c.width])
		call.Out, gradU = half(make([]uint16, n*c.width)), half(make([]uint16, n*c.width))
	}
	grads, need := []*Rows[T]{&gradU}, uint32(1)
	var myW []float64
	if c.heads > 0 {
		var mine []float64
		for _, k := range at {
			mine = append(mine, w[k*c.heads:(k+1)*c.heads]...)
			myW = append(myW, wantW[k*c.heads:(k+1)*c.heads]...)
		}
		need = 3
		call.Operands = append(call.Operands, Rows[T]{Data: toT[T](mine), N: len(at), Width: c.heads})
		grads = append(grads, &Rows[T]{Data: make([]T, len(mine)), N: len(at), Width: c.heads})
		if c.half {
			grads[1] = &Rows[T]{Half: make([]uint16, len(mine)), N: len(at), Width: c.heads}
		}
	}
	for i := range call.Out.Data {
		call.Out.Data[i] = T(math.NaN()) // whatever was there must not matter
	}
	const other = 1 << 15 // a bit that stands for no operand
	asked := need | other
	if p != s.World()-1 {
		asked = 0 // only the last rank asks
	}
	agreed, _, err := ProgramForward(dg, program, call, asked)
	if err != nil {
		return err
	}
	if agreed != need|other {
		return fmt.Errorf("agreed on %b, want %b", agreed, need|other)
	}
	if err := rowsCloseTo("out", call.Out, own(wantOut), tol); err != nil {
		return err
	}
	call.Out = Rows[T]{}
	if err := ProgramBackward(dg, program, call, agreed, gradOfOut, grads); err != nil {
		return err
	}
	if err := rowsCloseTo("grad_u", gradU, own(wantU), tol); err != nil {
		return err
	}
	if c.heads > 0 {
		if err := rowsCloseTo("grad_e", *grads[1], myW, tol); err != nil {
			return err
		}
	}
	// A rank that wants nothing serves the others all the same.
	clear(grads)
	return ProgramBackward(dg, program, call, agreed, gradOfOut, grads)
}

var aggregateCases = []aggregateCase{
	{width: 1}, {width: 47, mean: true}, {width: 64}, {width: 0},
	{width: 1, heads: 1}, {width: 47, heads: 1, mean: true}, {width: 24, heads: 3}, {width: 24, heads: 24, mean: true},
	{width: 1, half: true}, {width: 47, mean: true, half: true}, {width: 0, half: true},
	{width: 47, heads: 1, mean: true, half: true}, {width: 24, heads: 3, half: true},
}

// Each case runs in one precision on one transport, and in the other precision on the other.
func TestAggregateAgainstSerial(t *testing.T) {
	for _, parts := range worlds(1, 2, 3, 5, 8) {
		for ti, transport := range []string{"shm", "tcp"} {
			if testing.Short() && parts == 8 && transport == "shm" {
				continue // fewer workers show it, and the race detector takes its time
			}
			t.Run(fmt.Sprintf("P=%d/%s", parts, transport), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(parts), 3))
				graphs := []whole{randomGraph(rng, 60, 400, parts), randomGraph(rng, 1, 3, parts), randomGraph(rng, 40, 0, parts)}
				workers(t, parts, Config{Transport: transport, Window: 1 << 20}, func(s *Session) error {
					for gi := range graphs {
						for ci, c := range aggregateCases {
							seed, run, tol := uint64(gi*100+ci), runCase[float32], 1e-5
							if (ti+gi+ci)%2 == 0 {
								run, tol = runCase[float64], 1e-10
							}
							if err := run(s, &graphs[gi], c, seed, tol); err != nil {
								return fmt.Errorf("graph %d, to %g, %+v: %w", gi, tol, c, err)
							}
						}
					}
					return nil
				})
			})
		}
	}
}

// The window changes how rows are cut into frames and nothing else.
func TestWindowChangesNoBit(t *testing.T) {
	const parts, width = 3, 33
	rng := rand.New(rand.NewPCG(5, 5))
	g := randomGraph(rng, 900, 20000, parts)
	u := random[float32](rng, g.n*width)
	results := make([][]float32, parts)
	for _, window := range []int64{1 << 18, 1 << 20, 1 << 24} {
		workers(t, parts, Config{Window: window}, func(s *Session) error {
			p := s.Rank()
			src, dst, _ := g.of(p)
			dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
			if err != nil {
				return err
			}
			defer dg.Free()
			lo, hi := int(g.starts[p]), int(g.starts[p+1])
			in := Rows[float32]{Data: u[lo*width : hi*width], N: hi - lo, Width: width}
			out := Rows[float32]{Data: make([]float32, (hi-lo)*width), N: hi - lo, Width: width}
			call := ProgramCall[float32]{Operands: []Rows[float32]{in}, Out: out}
			if _, _, err := ProgramForward(dg, aggregateCase{width: width}.program(), call, 0); err != nil {
				return err
			}
			if results[p] == nil {
				results[p] = out.Data
				return nil
			}
			for i, v := range out.Data {
				if math.Float32bits(v) != math.Float32bits(results[p][i]) {
					return fmt.Errorf("out[%d] = %v with a window of %d, %v before", i, v, window, results[p][i])
				}
			}
			return nil
		})
	}
}

// Where all rows travel, a gradient is the sum over own edges, then what the peers p+1, p+2, … return, in that
// order, whatever comes when: other orders would give other numbers here. Rows of a peer
// are many enough to be taken group by group, and do not fit into one frame.
func TestOrderOfReturnedGradients(t *testing.T) {
	const parts, width = 4, 32
	rng := rand.New(rand.NewPCG(11, 12))
	g := randomGraph(rng, 60000, 600000, parts)
	g.starts = []int64{0, 18000, 33000, 44000, 60000}
	value := []float32{1, 1 << 24, -1 << 24, 3} // of gradients of results, by rank
	rankOf := func(node int64) (p int) {
		for node >= g.starts[p+1] {
			p++
		}
		return p
	}
	edges := make([][parts]float32, g.n) // by reader's rank
	for k := range g.src {
		edges[g.src[k]][rankOf(g.dst[k])]++
	}
	for _, window := range []int64{1 << 18, 1 << 20} {
		workers(t, parts, Config{Window: window}, func(s *Session) error {
			p := s.Rank()
			src, dst, _ := g.of(p)
			dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
			if err == nil {
				err = s.SetExchange(ExchangePull)
			}
			if err != nil {
				return err
			}
			defer dg.Free()
			lo, n := int(g.starts[p]), int(g.starts[p+1]-g.starts[p])
			rows := func() Rows[float32] { return Rows[float32]{Data: make([]float32, n*width), N: n, Width: width} }
			out, gradU := rows(), rows()
			for i := range out.Data {
				out.Data[i] = value[p]
			}
			for range 3 {
				call := ProgramCall[float32]{Operands: make([]Rows[float32], 1)}
				program := aggregateCase{width: width}.program()
				if err := ProgramBackward(dg, program, call, 1, out, []*Rows[float32]{&gradU}); err != nil {
					return err
				}
				for i, got := range gradU.Data {
					var want float32
					for r := range parts {
						q := (p + r) % parts
						want += edges[lo+i/width][q] * value[q]
					}
					if got != want {
						return fmt.Errorf("window %d: row %d: %v, want %v", window, i/width, got, want)
					}
				}
			}
			return nil
		})
	}
}

func TestDegreesAndCounts(t *testing.T) {
	const parts = 4
	g := randomGraph(rand.New(rand.NewPCG(9, 9)), 80, 600, parts)
	in, out := make([]int64, g.n), make([]int64, g.n)
	for k := range g.src {
		in[g.dst[k]]++
		out[g.src[k]]++
	}
	before := mem.Stats()[mem.Structure].Live
	workers(t, parts, Config{}, func(s *Session) error {
		p := s.Rank()
		src, dst, _ := g.of(p)
		dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
		if err != nil {
			return err
		}
		defer dg.Free()
		lo, hi := g.starts[p], g.starts[p+1]
		for _, c := range []struct {
			outgoing bool
			want     []int64
		}{{false, in[lo:hi]}, {true, out[lo:hi]}} {
			got := make([]int64, hi-lo)
			if err := dg.Degrees(0, c.outgoing, got); err != nil {
				return err
			}
			for i := range got {
				if got[i] != c.want[i] {
					return fmt.Errorf("degree (outgoing %v) of row %d is %d, want %d", c.outgoing, i, got[i], c.want[i])
				}
			}
		}
		info, err := dg.Info(0)
		if err != nil {
			return err
		}
		if info.NumEdgesGlobal != int64(len(g.src)) || info.NumSrcGlobal != int64(g.n) || info.NumEdges != int64(len(src)) {
			return fmt.Errorf("counts %+v for %d edges and %d nodes", info, len(g.src), g.n)
		}
		return nil
	})
	if after := mem.Stats()[mem.Structure].Live; after != before {
		t.Errorf("%d bytes of structure are left after Free", after-before)
	}
}

// A window too small for one row is an error on every rank that names a window
// that does, and the session goes on with that one.
func TestWindowTooSmall(t *testing.T) {
	const parts, width = 2, 9000
	g := randomGraph(rand.New(rand.NewPCG(2, 2)), 30, 200, parts)
	u := random[float32](rand.New(rand.NewPCG(3, 3)), g.n*width)
	want, _, _ := g.serial(width, 0, false, widen(u), nil, make([]float64, len(u)))
	workers(t, parts, Config{Window: 64 << 10}, func(s *Session) error {
		p := s.Rank()
		src, dst, _ := g.of(p)
		dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
		if err != nil {
			return err
		}
		defer dg.Free()
		lo, hi := int(g.starts[p])*width, int(g.starts[p+1])*width
		n := (hi - lo) / width
		in := Rows[float32]{Data: u[lo:hi], N: n, Width: width}
		out := Rows[float32]{Data: make([]float32, hi-lo), N: n, Width: width}
		call := ProgramCall[float32]{Operands: []Rows[float32]{in}, Out: out}
		_, _, err = ProgramForward(dg, aggregateCase{width: width}.program(), call, 0)
		var budget *mem.BudgetError
		if !errors.As(err, &budget) {
			return fmt.Errorf("a window of 64 KiB and rows of 36,000 bytes: %v", err)
		}
		if err := s.SetWindow(budget.Minimum); err != nil {
			return err
		}
		if _, _, err := ProgramForward(dg, aggregateCase{width: width}.program(), call, 0); err != nil {
			return fmt.Errorf("with the window the error named: %w", err)
		}
		return closeTo("out", out.Data, want[lo:hi], 1e-5)
	})
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
