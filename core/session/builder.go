package session

import (
	"encoding/json"
	"slices"

	"sar/core/expr"
)

// Builder makes a program: what the message of an edge is, out of rows of its source, of its
// destination, of the edge itself, and of parameters.
//
//	var b session.Builder
//	h, el, er := b.U(heads, dim), b.U(heads, 1), b.V(heads, 1)
//	attention := el.Add(er).LeakyReLU(0.2).Softmax()
//	program, err := h.Mul(attention).Sum()
//
// Programs that are to run together are built alike on every worker.
type Builder struct {
	operands []operand
	code     []instruction
}

type operand struct {
	Side    string `json:"side"`
	Shape   []int  `json:"shape"`
	Storage string `json:"storage,omitempty"`
}

// instruction is one of expr's programs, but that operands of it are numbered -1, -2, … while
// there may be more of them.
type instruction struct {
	Op    string  `json:"op"`
	A     int     `json:"a"`
	B     *int    `json:"b,omitempty"`
	Alpha float64 `json:"alpha"`
	Shape []int   `json:"shape,omitempty"`
}

// Expr is a value of each edge.
type Expr struct {
	builder *Builder
	at      int // an instruction; below 0 an operand
}

func (b *Builder) operand(side string, shape []int) Expr {
	b.operands = append(b.operands, operand{Side: side, Shape: append([]int{}, shape...)})
	return Expr{b, -len(b.operands)}
}

// U is a tensor [source nodes, shape...], of which a message reads the row of its source.
func (b *Builder) U(shape ...int) Expr { return b.operand("u", shape) }

// V is a tensor [destination nodes, shape...].
func (b *Builder) V(shape ...int) Expr { return b.operand("v", shape) }

// E is a tensor [edges, shape...], in the users' order of edges.
func (b *Builder) E(shape ...int) Expr { return b.operand("e", shape) }

// P is a parameter [1, shape...], which all edges read.
func (b *Builder) P(shape ...int) Expr { return b.operand("p", shape) }

// InBFloat16 says that a tensor, which x is, is stored and travels in bfloat16: a run takes Rows.Half of it. What is
// computed of it is not.
func (x Expr) InBFloat16() Expr {
	x.builder.operands[-1-x.at].Storage = expr.BFloat16.String()
	return x
}

func (x Expr) then(i instruction) Expr {
	i.A = x.at
	x.builder.code = append(x.builder.code, i)
	return Expr{x.builder, len(x.builder.code) - 1}
}

func (x Expr) with(op string, y Expr) Expr { return x.then(instruction{Op: op, B: &y.at}) }

// Operations on two values of one builder broadcast from the right.

func (x Expr) Add(y Expr) Expr { return x.with("add", y) }
func (x Expr) Sub(y Expr) Expr { return x.with("sub", y) }
func (x Expr) Mul(y Expr) Expr { return x.with("mul", y) }
func (x Expr) Div(y Expr) Expr { return x.with("div", y) }

// Dot sums products over the last dimension, and keeps it as 1.
func (x Expr) Dot(y Expr) Expr { return x.with("dot", y) }

func (x Expr) Neg() Expr      { return x.then(instruction{Op: "neg"}) }
func (x Expr) ReLU() Expr     { return x.then(instruction{Op: "relu"}) }
func (x Expr) Exp() Expr      { return x.then(instruction{Op: "exp"}) }
func (x Expr) Log() Expr      { return x.then(instruction{Op: "log"}) }
func (x Expr) Sqrt() Expr     { return x.then(instruction{Op: "sqrt"}) }
func (x Expr) Sigmoid() Expr  { return x.then(instruction{Op: "sigmoid"}) }
func (x Expr) Tanh() Expr     { return x.then(instruction{Op: "tanh"}) }
func (x Expr) Softplus() Expr { return x.then(instruction{Op: "softplus"}) }
func (x Expr) Abs() Expr      { return x.then(instruction{Op: "abs"}) }

// LeakyReLU is x above 0, and slope times x below.
func (x Expr) LeakyReLU(slope float64) Expr {
	return x.then(instruction{Op: "leaky_relu", Alpha: slope})
}

// ELU is x above 0, and alpha times exp(x)-1 below.
func (x Expr) ELU(alpha float64) Expr { return x.then(instruction{Op: "elu", Alpha: alpha}) }

// Scale multiplies by a number, Shift adds it, Pow raises to it.
func (x Expr) Scale(by float64) Expr { return x.then(instruction{Op: "scale", Alpha: by}) }
func (x Expr) Shift(by float64) Expr { return x.then(instruction{Op: "shift", Alpha: by}) }
func (x Expr) Pow(by float64) Expr   { return x.then(instruction{Op: "pow", Alpha: by}) }

// Dropout zeroes entries with a probability and scales the others. A run takes a seed for each.
func (x Expr) Dropout(p float64) Expr { return x.then(instruction{Op: "dropout", Alpha: p}) }

// Softmax is over the in-edges of each destination.
func (x Expr) Softmax() Expr { return x.then(instruction{Op: "softmax"}) }

// Total sums x into a shape that it broadcasts from.
func (x Expr) Total(shape ...int) Expr { return x.then(instruction{Op: "total", Shape: shape}) }

// Reshape changes the shape of x, not its numbers.
func (x Expr) Reshape(shape ...int) Expr { return x.then(instruction{Op: "reshape", Shape: shape}) }

// A program gives, for each destination, what its messages x are reduced to.

func (x Expr) Sum() (Program, error)  { return x.reduce("sum") }
func (x Expr) Mean() (Program, error) { return x.reduce("mean") }
func (x Expr) Max() (Program, error)  { return x.reduce("max") }
func (x Expr) Min() (Program, error)  { return x.reduce("min") }

// PerEdge makes a program whose result has a row for each edge.
func (x Expr) PerEdge() (Program, error) { return x.reduce("none") }

func (x Expr) reduce(how string) (Program, error) {
	b := x.builder
	register := func(at int) int {
		if at < 0 {
			return -1 - at
		}
		return len(b.operands) + at
	}
	code := slices.Clone(b.code)
	for i := range code {
		code[i].A = register(code[i].A)
		if code[i].B != nil {
			at := register(*code[i].B)
			code[i].B = &at
		}
	}
	text, err := json.Marshal(map[string]any{
		"operands": b.operands, "code": code, "result": register(x.at), "reduce": how,
	})
	if err != nil {
		return Program{}, err
	}
	return NewProgram(string(text))
}
