package session

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"sar/core/expr/exprtest"
	"sar/core/kernel"
)

// programRun is what one set-up made of a program, of all ranks together.
type programRun[T kernel.Float] struct {
	out    []T
	winner []int32
	grads  [][]T
}

// edges is the graph as the oracle of programs has it.
func (g *whole) edges() *exprtest.Graph { return &exprtest.Graph{N: g.n, Src: g.src, Dst: g.dst} }

// programCase is a program on a graph.
type programCase struct {
	g       *whole
	p       *exprtest.Program
	tensors [][]float64
	gradOut []float64
	half    bool // everything in bfloat16 that may be
	cut     bool // backward reads a result that was rounded to bfloat16, in whatever type
}

func drawCase(rng *rand.Rand, g *whole) *programCase {
	p := exprtest.Random(rng)
	c := &programCase{g: g, p: p, gradOut: random[float64](rng, max(g.n, len(g.src))*p.Width())}
	for _, o := range p.Operands {
		c.tensors = append(c.tensors, random[float64](rng, g.edges().Rows(o.Side)*exprtest.Width(o.Shape)))
	}
	return c
}

func (c *programCase) String() string { return c.p.String() }

// extreme tells whether one edge decides: then rounding may decide between edges.
func (c *programCase) extreme() bool {
	p, err := NewProgram(c.String())
	return err == nil && p.KeepsWinner()
}

// runPrograms runs programs one after the other on P workers.
func runPrograms[T Float](t *testing.T, parts int, cfg Config, cases []*programCase,
	how ...Exchange) []programRun[T] {
	t.Helper()
	all := make([]programRun[T], len(cases))
	for n, c := range cases {
		rows := c.g.n
		if c.p.Reduce == "none" {
			rows = len(c.g.src)
		}
		all[n].out, all[n].winner = make([]T, rows*c.p.Width()), make([]int32, rows*c.p.Width())
		for _, o := range c.p.Operands {
			all[n].grads = append(all[n].grads, make([]T, c.g.edges().Rows(o.Side)*exprtest.Width(o.Shape)))
		}
	}
	var mu sync.Mutex
	workers(t, parts, cfg, func(s *Session) error {
		for _, exchange := range how {
			if err := s.SetExchange(exchange); err != nil {
				return err
			}
		}
		graphs := map[*whole]*Graph{}
		for n, c := range cases {
			src, dst, at := c.g.of(s.Rank())
			if graphs[c.g] == nil {
				dg, err := s.GraphFromEdges(ctx, c.g.starts, src, dst)
				if err != nil {
					return err
				}
				defer dg.Free()
				graphs[c.g] = dg
			}
			if err := runCaseOf(s, graphs[c.g], at, c, &all[n], &mu); err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
		}
		return nil
	})
	return all
}

// runCaseOf runs a program forward and backward on one worker, whose edges are at.
func runCaseOf[T Float](s *Session, dg *Graph, at []int, c *programCase, all *programRun[T], mu *sync.Mutex) error {
	p, w := c.p, c.p.Width()
	text := c.String()
	if c.half {
		text = strings.ReplaceAll(text, `"side":`, `"storage":"bfloat16","side":`)
	}
	program, err := NewProgram(text)
	if err != nil {
		return err
	}
	mine := func(side string) []int { // own rows
		switch side {
		case "e":
			return at
		case "p":
			return []int{0}
		}
		var out []int
		for i := c.g.starts[s.Rank()]; i < c.g.starts[s.Rank()+1]; i++ {
			out = append(out, int(i))
		}
		return out
	}
	pick := func(x []float64, rows []int, width int) Rows[T] {
		out := Rows[T]{Data: make([]T, len(rows)*width), N: len(rows), Width: width}
		for n, row := range rows {
			for k := range width {
				out.Data[n*width+k] = T(x[row*width+k])
			}
		}
		if c.half {
			out.Half = make([]uint16, len(out.Data))
			kernel.Narrow(pool, out.Half, out.Data)
			out.Data = nil
		}
		return out
	}
	// blank is a tensor to be filled.
	blank := func(n, width int) Rows[T] {
		if c.half {
			return Rows[T]{Half: make([]uint16, n*width), N: n, Width: width}
		}
		return Rows[T]{Data: make([]T, n*width), N: n, Width: width}
	}
	// filled is what it was filled with.
	filled := func(x Rows[T]) []T {
		if x.Half != nil {
			x.Data = make([]T, len(x.Half))
			kernel.Widen(pool, x.Data, x.Half)
		}
		return x.Data
	}
	call := ProgramCall[T]{Seeds: make([]uint64, program.Seeds)}
	var grads []*Rows[T]
	for i, o := range p.Operands {
		x := pick(c.tensors[i], mine(o.Side), exprtest.Width(o.Shape))
		call.Operands = append(call.Operands, x)
		grad := blank(x.N, x.Width)
		grads = append(grads, &grad)
	}
	n := len(mine("v"))
	for _, width := range program.Softmaxes() {
		for range 2 {
			call.State = append(call.State, Rows[T]{Data: make([]T, n*width), N: n, Width: width})
		}
	}
	own := mine("v")
	if p.Reduce == "none" {
		own = at
	}
	call.Out = blank(len(own), w)
	if program.KeepsWinner() {
		call.Winner = make([]int32, len(own)*w)
	}
	need := uint32(1<<len(p.Operands) - 1)
	asked := need
	if s.Rank() != s.World()-1 {
		asked = 0 // only the last rank asks
	}
	agreed, _, err := ProgramForward(dg, program, call, asked)
	if err != nil {
		return err
	}
	if program.Info().Collective && agreed != need {
		return fmt.Errorf("agreed on %b, want %b", agreed, need)
	}
	out := slices.Clone(filled(call.Out))
	if c.cut && !c.half {
		half := make([]uint16, len(out))
		kernel.Narrow(pool, half, out)
		kernel.Widen(pool, call.Out.Data, half)
	}
	if err := ProgramBackward(dg, program, call, need, pick(c.gradOut, own, w), grads); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	for n, row := range own {
		copy(all.out[row*w:], out[n*w:(n+1)*w])
		if len(call.Winner) > 0 && len(all.winner) > 0 {
			copy(all.winner[row*w:], call.Winner[n*w:(n+1)*w])
		}
	}
	for i, o := range p.Operands {
		width, grad := exprtest.Width(o.Shape), filled(*grads[i])
		for n, row := range mine(o.Side) {
			for k := range width {
				if v := grad[n*width+k]; o.Side == "p" {
					all.grads[i][k] += v
				} else {
					all.grads[i][row*width+k] = v
				}
			}
		}
	}
	return nil
}

// checkCase compares with the oracle: values, and gradients along random directions
// with central differences.
func checkCase(rng *rand.Rand, c *programCase, got programRun[float64]) error {
	if err := closeTo("out", got.out, c.p.Run(c.g.edges(), c.tensors), 1e-10); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	loss := func(x [][]float64) (s float64) {
		for i, v := range c.p.Run(c.g.edges(), x) {
			s += v * c.gradOut[i]
		}
		return s
	}
	const step = 1e-6
	for i := range c.tensors {
		direction := random[float64](rng, len(c.tensors[i]))
		moved := func(by float64) [][]float64 {
			x := slices.Clone(c.tensors)
			x[i] = slices.Clone(x[i])
			for k := range x[i] {
				x[i][k] += by * direction[k]
			}
			return x
		}
		var slope, size float64
		for k, d := range direction {
			slope += d * got.grads[i][k]
			size += math.Abs(d * got.grads[i][k])
		}
		want := (loss(moved(step)) - loss(moved(-step))) / (2 * step)
		if math.Abs(slope-want) > 1e-5*(1+size) || math.IsNaN(slope) {
			return fmt.Errorf("%s: slope along a direction of operand %d is %v, by differences %v", c, i, slope, want)
		}
	}
	return nil
}

// rounded allows a unit in the last place of bfloat16, and what float32 loses.
func rounded(t *testing.T, what string, a, b []float32) {
	t.Helper()
	largest := 1.0
	for _, v := range b {
		largest = max(largest, math.Abs(float64(v)))
	}
	for i := range a {
		v, w := float64(a[i]), float64(b[i])
		if d := math.Abs(v - w); !(d <= 0x1p-8*math.Abs(w)+1e-4*largest) && !(math.IsNaN(v) && math.IsNaN(w)) {
			t.Fatalf("%s: element %d is %v in bfloat16, and %v", what, i, v, w)
		}
	}
}

// near compares to a tolerance relative to 1 or the largest element: what cancels out
// has the rounding of what it was made of.
func near(t *testing.T, what string, a, b []float32, tol float64) {
	t.Helper()
	largest := 1.0
	for _, v := range b {
		largest = max(largest, math.Abs(float64(v)))
	}
	for i := range a {
		if d := math.Abs(float64(a[i]) - float64(b[i])); !(d <= tol*largest) {
			t.Errorf("%s: element %d is %v and %v", what, i, a[i], b[i])
			return
		}
	}
}

func sameBits(t *testing.T, what string, a, b []float32) {
	t.Helper()
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			t.Errorf("%s: element %d is %v and %v", what, i, a[i], b[i])
			return
		}
	}
}
