// Package exprtest is for tests of edge expressions: random programs, and an oracle that
// computes every instruction for every edge of a whole graph, one number at a time, in
// double precision.
package exprtest

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"

	"sar/core/expr"
)

// Graph is the ends of all edges. N is the number of nodes.
type Graph struct {
	N        int
	Src, Dst []int64
}

// Instruction is one line of a program.
type Instruction struct {
	Op    string  `json:"op"`
	A     int     `json:"a"`
	B     int     `json:"b"`
	Alpha float64 `json:"alpha"`
	Shape []int   `json:"shape"`
}

// Operand is a tensor that a program reads.
type Operand struct {
	Side  string `json:"side"`
	Shape []int  `json:"shape"`
}

// Program is a program as its text says.
type Program struct {
	Operands []Operand     `json:"operands"`
	Code     []Instruction `json:"code"`
	Result   int           `json:"result"`
	Reduce   string        `json:"reduce"`

	Shapes [][]int `json:"-"` // of registers
}

// String is the program as expr.Parse reads it.
func (p *Program) String() string {
	text, _ := json.Marshal(p)
	return string(text)
}

// Width is that of the result, in elements.
func (p *Program) Width() int { return Width(p.Shapes[p.Result]) }

// Rows is how many rows operands of a side have.
func (g *Graph) Rows(side string) int {
	return map[string]int{"u": g.N, "v": g.N, "e": len(g.Src), "p": 1}[side]
}

// Width is the number of elements of a shape.
func Width(s []int) int {
	w := 1
	for _, d := range s {
		w *= d
	}
	return w
}

// aligned is the index in shape s of element k of shape to.
func aligned(k int, s, to []int) int {
	at, stride := 0, 1
	for i := len(to) - 1; i >= 0; i-- {
		x := k % to[i]
		k /= to[i]
		if j := i - len(to) + len(s); j >= 0 {
			if s[j] > 1 {
				at += x * stride
			}
			stride *= s[j]
		}
	}
	return at
}

func broadcast(a, b []int) []int {
	n := max(len(a), len(b))
	out := make([]int, n)
	for i := range out {
		out[i] = 1
		for _, s := range [][]int{a, b} {
			if j := i - n + len(s); j >= 0 && s[j] > 1 {
				if out[i] > 1 && out[i] != s[j] {
					return nil
				}
				out[i] = s[j]
			}
		}
	}
	return out
}

// Run computes the result of the program, [rows, width], and each register of each edge.
func (p *Program) Run(g *Graph, tensors [][]float64) []float64 {
	edges := len(g.Src)
	regs := make([][]float64, 0, len(p.Shapes))
	for i, o := range p.Operands {
		w := Width(o.Shape)
		x := make([]float64, edges*w)
		for e := range edges {
			row := map[string]int{"u": int(g.Src[e]), "v": int(g.Dst[e]), "e": e, "p": 0}[o.Side]
			copy(x[e*w:(e+1)*w], tensors[i][row*w:])
		}
		regs = append(regs, x)
	}
	for n, c := range p.Code {
		shape := p.Shapes[len(p.Operands)+n]
		w, z := Width(shape), []float64(nil)
		z = make([]float64, edges*w)
		a, sa := regs[c.A], p.Shapes[c.A]
		wa := Width(sa)
		for e := range edges {
			row := a[e*wa : (e+1)*wa]
			for k := range w {
				to := &z[e*w+k]
				var x, y float64
				if c.Op != "total" && c.Op != "dot" && c.Op != "reshape" {
					x = row[aligned(k, sa, shape)]
				}
				if slices.Contains([]string{"add", "sub", "mul", "div"}, c.Op) {
					sb := p.Shapes[c.B]
					y = regs[c.B][e*Width(sb)+aligned(k, sb, shape)]
				}
				switch c.Op {
				case "dot":
					sb := p.Shapes[c.B]
					all := broadcast(sa, sb)
					d := all[len(all)-1]
					for j := range d {
						*to += row[aligned(k*d+j, sa, all)] * regs[c.B][e*Width(sb)+aligned(k*d+j, sb, all)]
					}
				case "total":
					for j := range wa {
						if aligned(j, shape, sa) == k {
							*to += row[j]
						}
					}
				case "reshape", "softmax":
					*to = row[k]
				default:
					*to = expr.Oracle(c.Op)(x, y, c.Alpha)
				}
			}
		}
		if c.Op == "softmax" {
			sum := make([]float64, g.N*w)
			for i, x := range z {
				z[i] = math.Exp(x)
				sum[int(g.Dst[i/w])*w+i%w] += z[i]
			}
			for i := range z {
				z[i] /= sum[int(g.Dst[i/w])*w+i%w]
			}
		}
		regs = append(regs, z)
	}
	return p.reduce(g, regs[p.Result])
}

func (p *Program) reduce(g *Graph, m []float64) []float64 {
	oracle := expr.ReduceOracle(p.Reduce)
	if oracle == nil {
		return m
	}
	w := Width(p.Shapes[p.Result])
	out, messages := make([]float64, g.N*w), make([][]float64, g.N*w) // by element of the result
	for e, v := range g.Dst {
		for k := range w {
			to := int(v)*w + k
			messages[to] = append(messages[to], m[e*w+k])
		}
	}
	for i, x := range messages {
		if len(x) > 0 {
			out[i] = oracle(x)
		}
	}
	return out
}

// Random draws operands of every side and shape and a chain that reads them all.
func Random(rng *rand.Rand) *Program {
	h, d := 1+rng.IntN(4), 1+rng.IntN(9)
	family := [][]int{{h, d}, {h, d}, {h, 1}, {d}, {1, d}, {}, {1}}
	reducers := append(append([]string{"sum"}, expr.Reducers()[1:]...), "none") // sums twice as often
	p := &Program{Reduce: reducers[rng.IntN(len(reducers))]}
	for i := range 2 + rng.IntN(3) {
		side := []string{"u", "u", "v", "e", "p"}[rng.IntN(5)]
		if i == 0 {
			side = "u"
		}
		p.Operands = append(p.Operands, Operand{side, family[rng.IntN(len(family))]})
		p.Shapes = append(p.Shapes, p.Operands[i].Shape)
	}
	p.Operands[0].Shape, p.Shapes[0] = family[0], family[0]
	add := func(c Instruction, shape []int) int {
		if c.Shape == nil {
			c.Shape = []int{}
		}
		p.Code, p.Shapes = append(p.Code, c), append(p.Shapes, shape)
		return len(p.Shapes) - 1
	}
	at := 0
	for i := 1; i < len(p.Operands); i++ {
		for range rng.IntN(3) {
			at = unaryStep(rng, p, at, add)
		}
		b := i
		if rng.IntN(4) == 0 {
			b = rng.IntN(len(p.Shapes)) // something read a second time
		}
		shape := broadcast(p.Shapes[at], p.Shapes[b])
		if shape == nil {
			b, shape = i, broadcast(p.Shapes[at], p.Shapes[i])
		}
		if shape == nil {
			continue
		}
		op := []string{"add", "sub", "mul", "mul", "div"}[rng.IntN(5)]
		if op == "div" { // by something that is not near 0
			b = add(Instruction{Op: "sigmoid", A: b}, p.Shapes[b])
			b = add(Instruction{Op: "shift", A: b, Alpha: 0.5}, p.Shapes[b])
		}
		a, sa, sb := at, p.Shapes[at], p.Shapes[b]
		if len(sa) > 0 && len(sb) > 0 && sa[len(sa)-1] == sb[len(sb)-1] && rng.IntN(3) == 0 {
			op = "dot"
			shape = append(slices.Clone(shape[:len(shape)-1]), 1)
		}
		at = add(Instruction{Op: op, A: a, B: b}, shape)
	}
	if rng.IntN(2) == 0 { // attention: what there is so far weighs the first operand
		weights := add(Instruction{Op: "softmax", A: at}, p.Shapes[at])
		if s := broadcast(p.Shapes[0], p.Shapes[weights]); s != nil {
			at = add(Instruction{Op: "mul", A: 0, B: weights}, s)
		}
	}
	for range rng.IntN(2) {
		at = unaryStep(rng, p, at, add)
	}
	p.Result = at
	return p
}

func unaryStep(rng *rand.Rand, p *Program, at int, add func(Instruction, []int) int) int {
	s := p.Shapes[at]
	switch rng.IntN(10) {
	case 0:
		return add(Instruction{Op: "softmax", A: at}, s)
	case 1:
		if len(s) > 0 {
			to := slices.Clone(s)
			to[rng.IntN(len(to))] = 1
			return add(Instruction{Op: "total", A: at, Shape: to}, to)
		}
	case 2:
		to := []int{Width(s)}
		if len(s) == 1 && s[0]%2 == 0 {
			to = []int{2, s[0] / 2}
		}
		return add(Instruction{Op: "reshape", A: at, Shape: to}, to)
	}
	op := []string{"leaky_relu", "elu", "sigmoid", "tanh", "softplus", "neg", "scale", "shift"}[rng.IntN(8)]
	return add(Instruction{Op: op, A: at, Alpha: 0.3 + rng.Float64()}, s)
}
