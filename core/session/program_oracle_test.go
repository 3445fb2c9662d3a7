package session

import (
	"math"
	"math/rand/v2"
	"slices"
)

// The oracle of edge expressions: every instruction for every edge of the whole graph,
// one number at a time, in double precision.

type instruction struct {
	Op    string  `json:"op"`
	A     int     `json:"a"`
	B     int     `json:"b"`
	Alpha float64 `json:"alpha"`
	Shape []int   `json:"shape"`
}

type operand struct {
	Side  string `json:"side"`
	Shape []int  `json:"shape"`
}

type programText struct {
	Operands []operand     `json:"operands"`
	Code     []instruction `json:"code"`
	Result   int           `json:"result"`
	Reduce   string        `json:"reduce"`

	shapes [][]int // of registers
}

func width(s []int) int {
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

func joined(a, b []int) []int {
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

// run computes the result of the program, [rows, width], and each register of each edge.
func (p *programText) run(g *whole, tensors [][]float64) []float64 {
	edges := len(g.src)
	regs := make([][]float64, 0, len(p.shapes))
	for i, o := range p.Operands {
		w := width(o.Shape)
		x := make([]float64, edges*w)
		for e := range edges {
			row := map[string]int{"u": int(g.src[e]), "v": int(g.dst[e]), "e": e, "p": 0}[o.Side]
			copy(x[e*w:(e+1)*w], tensors[i][row*w:])
		}
		regs = append(regs, x)
	}
	for n, c := range p.Code {
		shape := p.shapes[len(p.Operands)+n]
		w, z := width(shape), []float64(nil)
		z = make([]float64, edges*w)
		a, sa := regs[c.A], p.shapes[c.A]
		wa := width(sa)
		for e := range edges {
			row := a[e*wa : (e+1)*wa]
			for k := range w {
				to := &z[e*w+k]
				var x, y float64
				if c.Op != "total" && c.Op != "dot" && c.Op != "reshape" {
					x = row[aligned(k, sa, shape)]
				}
				if slices.Contains([]string{"add", "sub", "mul", "div"}, c.Op) {
					sb := p.shapes[c.B]
					y = regs[c.B][e*width(sb)+aligned(k, sb, shape)]
				}
				switch c.Op {
				case "add":
					*to = x + y
				case "sub":
					*to = x - y
				case "mul":
					*to = x * y
				case "div":
					*to = x / y
				case "dot":
					sb := p.shapes[c.B]
					all := joined(sa, sb)
					d := all[len(all)-1]
					for j := range d {
						*to += row[aligned(k*d+j, sa, all)] * regs[c.B][e*width(sb)+aligned(k*d+j, sb, all)]
					}
				case "total":
					for j := range wa {
						if aligned(j, shape, sa) == k {
							*to += row[j]
						}
					}
				case "reshape", "softmax":
					*to = row[k]
				case "leaky_relu":
					*to = max(x, 0) + c.Alpha*min(x, 0)
				case "elu":
					*to = max(x, 0) + c.Alpha*math.Expm1(min(x, 0))
				case "sigmoid":
					*to = 1 / (1 + math.Exp(-x))
				case "tanh":
					*to = math.Tanh(x)
				case "softplus":
					*to = math.Log1p(math.Exp(x))
				case "exp":
					*to = math.Exp(x)
				case "neg":
					*to = -x
				case "scale":
					*to = x * c.Alpha
				case "shift":
					*to = x + c.Alpha
				default:
					panic(c.Op)
				}
			}
		}
		if c.Op == "softmax" {
			sum := make([]float64, g.n*w)
			for i, x := range z {
				z[i] = math.Exp(x)
				sum[int(g.dst[i/w])*w+i%w] += z[i]
			}
			for i := range z {
				z[i] /= sum[int(g.dst[i/w])*w+i%w]
			}
		}
		regs = append(regs, z)
	}
	return p.reduce(g, regs[p.Result])
}

func (p *programText) reduce(g *whole, m []float64) []float64 {
	w := width(p.shapes[p.Result])
	if p.Reduce == "none" {
		return m
	}
	out, seen := make([]float64, g.n*w), make([]float64, g.n)
	for e, v := range g.dst {
		for k := range w {
			to, x := &out[int(v)*w+k], m[e*w+k]
			switch {
			case p.Reduce == "sum" || p.Reduce == "mean":
				*to += x
			case seen[v] == 0 || p.Reduce == "max" && x > *to || p.Reduce == "min" && x < *to:
				*to = x
			}
		}
		seen[v]++
	}
	if p.Reduce == "mean" {
		for i := range out {
			out[i] /= max(1, seen[i/w])
		}
	}
	return out
}

// randomProgram draws operands of every side and shape and a chain that reads them all.
func randomProgram(rng *rand.Rand) *programText {
	h, d := 1+rng.IntN(4), 1+rng.IntN(9)
	family := [][]int{{h, d}, {h, d}, {h, 1}, {d}, {1, d}, {}, {1}}
	p := &programText{Reduce: []string{"sum", "sum", "mean", "max", "min", "none"}[rng.IntN(6)]}
	for i := range 2 + rng.IntN(3) {
		side := []string{"u", "u", "v", "e", "p"}[rng.IntN(5)]
		if i == 0 {
			side = "u"
		}
		p.Operands = append(p.Operands, operand{side, family[rng.IntN(len(family))]})
		p.shapes = append(p.shapes, p.Operands[i].Shape)
	}
	p.Operands[0].Shape, p.shapes[0] = family[0], family[0]
	add := func(c instruction, shape []int) int {
		if c.Shape == nil {
			c.Shape = []int{}
		}
		p.Code, p.shapes = append(p.Code, c), append(p.shapes, shape)
		return len(p.shapes) - 1
	}
	at := 0
	for i := 1; i < len(p.Operands); i++ {
		for range rng.IntN(3) {
			at = unaryStep(rng, p, at, add)
		}
		b := i
		if rng.IntN(4) == 0 {
			b = rng.IntN(len(p.shapes)) // something read a second time
		}
		shape := joined(p.shapes[at], p.shapes[b])
		if shape == nil {
			b, shape = i, joined(p.shapes[at], p.shapes[i])
		}
		if shape == nil {
			continue
		}
		op := []string{"add", "sub", "mul", "mul", "div"}[rng.IntN(5)]
		if op == "div" { // by something that is not near 0
			b = add(instruction{Op: "shift", A: add(instruction{Op: "sigmoid", A: b}, p.shapes[b]), Alpha: 0.5}, p.shapes[b])
		}
		a, sa, sb := at, p.shapes[at], p.shapes[b]
		if len(sa) > 0 && len(sb) > 0 && sa[len(sa)-1] == sb[len(sb)-1] && rng.IntN(3) == 0 {
			op = "dot"
			shape = append(slices.Clone(shape[:len(shape)-1]), 1)
		}
		at = add(instruction{Op: op, A: a, B: b}, shape)
	}
	if rng.IntN(2) == 0 { // attention: what there is so far weighs the first operand
		weights := add(instruction{Op: "softmax", A: at}, p.shapes[at])
		if s := joined(p.shapes[0], p.shapes[weights]); s != nil {
			at = add(instruction{Op: "mul", A: 0, B: weights}, s)
		}
	}
	for range rng.IntN(2) {
		at = unaryStep(rng, p, at, add)
	}
	p.Result = at
	return p
}

func unaryStep(rng *rand.Rand, p *programText, at int, add func(instruction, []int) int) int {
	s := p.shapes[at]
	switch rng.IntN(10) {
	case 0:
		return add(instruction{Op: "softmax", A: at}, s)
	case 1:
		if len(s) > 0 {
			to := slices.Clone(s)
			to[rng.IntN(len(to))] = 1
			return add(instruction{Op: "total", A: at, Shape: to}, to)
		}
	case 2:
		to := []int{width(s)}
		if len(s) == 1 && s[0]%2 == 0 {
			to = []int{2, s[0] / 2}
		}
		return add(instruction{Op: "reshape", A: at, Shape: to}, to)
	}
	op := []string{"leaky_relu", "elu", "sigmoid", "tanh", "softplus", "neg", "scale", "shift"}[rng.IntN(8)]
	return add(instruction{Op: op, A: at, Alpha: 0.3 + rng.Float64()}, s)
}
