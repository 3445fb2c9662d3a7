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

func round[T kernel.Float](x []float64) []float64 {
	for i, v := range x {
		x[i] = float64(T(v))
	}
	return x
}

type aggregateCase struct {
	width, heads int // heads 0: copy_u
	mean         bool
}

// runCase compares one aggregation on one worker with the serial one.
func runCase[T kernel.Float](s *Session, g *whole, c aggregateCase, seed uint64, tol float64) error {
	rng := rand.New(rand.NewPCG(seed, 7)) // the same numbers on every rank
	u := round[T](random[float64](rng, g.n*c.width))
	gradOut := round[T](random[float64](rng, g.n*c.width))
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
	what := Aggregation{Message: CopyU, Reduce: ReduceSum, NeedGrad: GradU}
	if c.mean {
		what.Reduce = ReduceMean
	}
	var e, gradE *Rows[T]
	var myW []float64
	if c.heads > 0 {
		what.Message, what.NeedGrad = UMulE, GradU|GradE
		var mine []float64
		for _, k := range at {
			mine = append(mine, w[k*c.heads:(k+1)*c.heads]...)
			myW = append(myW, wantW[k*c.heads:(k+1)*c.heads]...)
		}
		e = &Rows[T]{toT[T](mine), len(at), c.heads}
		gradE = &Rows[T]{make([]T, len(mine)), len(at), c.heads}
	}
	in, out := rows(toT[T](own(u))), rows(make([]T, n*c.width))
	for i := range out.Data {
		out.Data[i] = T(math.NaN()) // whatever was there must not matter
	}
	asked := what
	if p != s.World()-1 {
		asked.NeedGrad = 0 // only the last rank asks
	}
	agreed, err := Forward(dg, asked, in, e, out)
	if err != nil {
		return err
	}
	if what.Agreed = agreed; agreed != what.NeedGrad {
		return fmt.Errorf("agreed on %b, want %b", agreed, what.NeedGrad)
	}
	if err := closeTo("out", out.Data, own(wantOut), tol); err != nil {
		return err
	}
	gradU := rows(make([]T, n*c.width))
	if err := Backward(dg, what, Gradients[T]{&in, e, rows(toT[T](own(gradOut))), &gradU, gradE}); err != nil {
		return err
	}
	if err := closeTo("grad_u", gradU.Data, own(wantU), tol); err != nil {
		return err
	}
	if gradE != nil {
		if err := closeTo("grad_e", gradE.Data, myW, tol); err != nil {
			return err
		}
	}
	// A rank that wants nothing serves the others all the same.
	return Backward(dg, what, Gradients[T]{U: &in, E: e, Out: rows(toT[T](own(gradOut)))})
}

var aggregateCases = []aggregateCase{
	{1, 0, false}, {47, 0, true}, {64, 0, false}, {0, 0, false},
	{1, 1, false}, {47, 1, true}, {24, 3, false}, {24, 24, true},
}

func TestAggregateAgainstSerial(t *testing.T) {
	for _, parts := range worlds(1, 2, 3, 5, 8) {
		for _, transport := range []string{"shm", "tcp"} {
			t.Run(fmt.Sprintf("P=%d/%s", parts, transport), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(parts), 3))
				graphs := []whole{randomGraph(rng, 60, 400, parts), randomGraph(rng, 1, 3, parts), randomGraph(rng, 40, 0, parts)}
				workers(t, parts, Config{Transport: transport, Window: 1 << 20}, func(s *Session) error {
					for gi := range graphs {
						for ci, c := range aggregateCases {
							seed := uint64(gi*100 + ci)
							if err := runCase[float32](s, &graphs[gi], c, seed, 1e-5); err != nil {
								return fmt.Errorf("graph %d, fp32 %+v: %w", gi, c, err)
							}
							if err := runCase[float64](s, &graphs[gi], c, seed, 1e-10); err != nil {
								return fmt.Errorf("graph %d, fp64 %+v: %w", gi, c, err)
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
			in := Rows[float32]{u[lo*width : hi*width], hi - lo, width}
			out := Rows[float32]{make([]float32, (hi-lo)*width), hi - lo, width}
			if _, err := Forward(dg, Aggregation{}, in, nil, out); err != nil {
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

// A gradient is the sum over own edges, then what the peers p+1, p+2, … return, in that
// order, whatever comes when: other orders would give other numbers here. Rows of a peer
// are many enough to be taken group by group, and do not fit into one frame.
func TestOrderOfReturnedGradients(t *testing.T) {
	const parts, width = 4, 64
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
			if err != nil {
				return err
			}
			defer dg.Free()
			lo, n := int(g.starts[p]), int(g.starts[p+1]-g.starts[p])
			rows := func() Rows[float32] { return Rows[float32]{make([]float32, n*width), n, width} }
			in, out, gradU := rows(), rows(), rows()
			for i := range out.Data {
				out.Data[i] = value[p]
			}
			for range 5 {
				if err := Backward(dg, Aggregation{Agreed: GradU},
					Gradients[float32]{U: &in, Out: out, GradU: &gradU}); err != nil {
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
		in, out := Rows[float32]{u[lo:hi], n, width}, Rows[float32]{make([]float32, hi-lo), n, width}
		_, err = Forward(dg, Aggregation{}, in, nil, out)
		var budget *mem.BudgetError
		if !errors.As(err, &budget) {
			return fmt.Errorf("a window of 64 KiB and rows of 36,000 bytes: %v", err)
		}
		if err := s.SetWindow(budget.Minimum); err != nil {
			return err
		}
		if _, err := Forward(dg, Aggregation{}, in, nil, out); err != nil {
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

// A program that is a plain sum comes out as the aggregation does, to the bit, forward and backward.
func TestPlainSumsOfPrograms(t *testing.T) {
	for _, parts := range worlds(3, 1, 2, 4) {
		g := randomGraph(rand.New(rand.NewPCG(uint64(parts), 3)), 300, 4000, parts)
		workers(t, parts, Config{Window: 1 << 19}, func(s *Session) error {
			src, dst, at := g.of(s.Rank())
			dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
			if err != nil {
				return err
			}
			defer dg.Free()
			rng := rand.New(rand.NewPCG(uint64(s.Rank()), 4))
			n := int(g.starts[s.Rank()+1] - g.starts[s.Rank()])
			rows := func(n, width int) Rows[float32] {
				return Rows[float32]{toT[float32](random[float64](rng, n*width)), n, width}
			}
			for _, heads := range []int{0, 1, 4} {
				for reduce, name := range []string{"sum", "mean"} {
					u, grad := rows(n, 12), rows(n, 12)
					what := Aggregation{Message: CopyU, Reduce: Reduction(reduce), NeedGrad: GradU}
					text, operands := `{"operands":[{"side":"u","shape":[12]}],"code":[],"result":0`, []Rows[float32]{u}
					var e *Rows[float32]
					if heads > 0 {
						weights := rows(len(at), heads)
						e, what.Message, operands = &weights, UMulE, append(operands, weights)
						text = fmt.Sprintf(`{"operands":[{"side":"u","shape":[%d,%d]},{"side":"e","shape":[%[1]d,1]}],`+
							`"code":[{"op":"mul","a":0,"b":1}],"result":2`, heads, 12/heads)
					}
					p, err := NewProgram(text + `,"reduce":"` + name + `"}`)
					if err != nil {
						return err
					}
					want, got, wantU, gotU := rows(n, 12), rows(n, 12), rows(n, 12), rows(n, 12)
					agreed, err := Forward(dg, what, u, e, want)
					if err != nil {
						return err
					}
					what.Agreed = agreed
					if err := Backward(dg, what, Gradients[float32]{U: &u, E: e, Out: grad, GradU: &wantU}); err != nil {
						return err
					}
					call := ProgramCall[float32]{Operands: operands, Out: got}
					if _, _, err := ProgramForward(dg, p, call, 1); err != nil {
						return err
					}
					grads := append([]*Rows[float32]{&gotU}, make([]*Rows[float32], len(operands)-1)...)
					if err := ProgramBackward(dg, p, call, 1, grad, grads); err != nil {
						return err
					}
					sameBits(t, fmt.Sprint(name, heads, " out"), got.Data, want.Data)
					sameBits(t, fmt.Sprint(name, heads, " gradient"), gotU.Data, wantU.Data)
				}
			}
			return nil
		})
	}
}
