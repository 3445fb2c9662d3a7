package expr

import (
	"math"

	"sar/core/internal/vec"
)

// op is what an instruction does.
type op uint8

const (
	opLoad op = iota
	// of two registers, which broadcast
	opAdd
	opSub
	opMul
	opDiv
	opDot // the product, summed over the last dimension
	// of one register
	opNeg
	opReLU
	opLeaky
	opELU
	opExp
	opLog
	opSqrt
	opSigmoid
	opTanh
	opSoftplus
	opAbs
	opReciprocal
	opScale
	opShift
	opRsub
	opPow
	opClampMin
	opClampMax
	opClampMinOpen // the gradient at the bound is 0
	opClampMaxOpen
	opTotal // to a shape that broadcasts to that of the operand
	opReshape
	opSoftmax
	opDropout
	numOps // what programs may say; the others come up in derived code

	opMask   // what dropout multiplies elements with; arg says which dropout
	opWeigh  // e to the power of a minus the greatest a of the destination so far
	opSpread // broadcast to a shape
	opDots   // products of two registers of one shape, summed over runs of elements
	opWinner // a where this edge won the element of its destination, else 0
	opBest   // a times 1 where b is the result of its destination, else times 0
	opSlope  // the slope of the operation arg at a, or at the argument whose value is a, times b
)

func (o op) binary() bool { return o >= opAdd && o <= opDot }

// opDef is an operation of programs: its name, how it is computed, its gradient, and what
// tests compare it with. An operation that works number by number is this and nothing else.
type opDef[T Float] struct {
	name string
	// value: z = f(x), for the numbers of a block; pair is the loop for z = f(x, y). An
	// operation with neither is more than a loop: loopOf or builder.forward has it.
	value func(t *task[T], z, x []T, alpha float64)
	pair  func(ops *vec.Ops[T]) func(z, x, y []T)
	// gradient, one for each operand, writes down its gradient.
	gradient []gradientRule
	// slope: z = f'·g at x. With slopeAtValue, x is the value of f in place of the argument.
	slope func(t *task[T], z, x, g []T, alpha float64)
	// oracle is the definition, one number at a time; y is the second operand.
	oracle func(x, y, alpha float64) float64
}

// softplusLinear is where softplus becomes the identity, as torch has it.
const softplusLinear = 20

func defineOps[T Float]() [numOps]opDef[T] {
	rules := func(r ...gradientRule) []gradientRule { return r }
	return [numOps]opDef[T]{
		opAdd: {
			name:     "add",
			pair:     func(ops *vec.Ops[T]) func(z, x, y []T) { return ops.Plus },
			gradient: rules(sameLeft, sameRight),
			oracle:   func(x, y, _ float64) float64 { return x + y },
		},
		opSub: {
			name: "sub",
			pair: func(ops *vec.Ops[T]) func(z, x, y []T) { return ops.Minus },
			gradient: rules(sameLeft, func(g *gradients, i int, n node, grad int) int {
				return g.make(opNeg, sameRight(g, i, n, grad), -1)
			}),
			oracle: func(x, y, _ float64) float64 { return x - y },
		},
		opMul: {
			name: "mul",
			pair: func(ops *vec.Ops[T]) func(z, x, y []T) { return ops.Times },
			gradient: rules(
				func(g *gradients, _ int, n node, grad int) int { return g.timesTo(grad, g.of[n.b], g.shapeOf(n.a)) },
				func(g *gradients, _ int, n node, grad int) int { return g.timesTo(grad, g.of[n.a], g.shapeOf(n.b)) }),
			oracle: func(x, y, _ float64) float64 { return x * y },
		},
		opDiv: {
			name: "div",
			pair: func(ops *vec.Ops[T]) func(z, x, y []T) { return ops.Over },
			gradient: rules(
				func(g *gradients, _ int, n node, grad int) int {
					return g.to(g.make(opDiv, grad, g.of[n.b]), g.shapeOf(n.a))
				},
				func(g *gradients, _ int, n node, grad int) int { // -(a/b)/b
					quotient := g.make(opDiv, g.make(opDiv, g.of[n.a], g.of[n.b]), g.of[n.b])
					return g.make(opNeg, g.timesTo(grad, quotient, g.shapeOf(n.b)), -1)
				}),
			oracle: func(x, y, _ float64) float64 { return x / y },
		},
		opDot: {
			name: "dot",
			gradient: rules(
				func(g *gradients, _ int, n node, grad int) int {
					return g.to(g.make(opMul, g.of[n.b], grad), g.shapeOf(n.a))
				},
				func(g *gradients, _ int, n node, grad int) int {
					return g.to(g.make(opMul, g.of[n.a], grad), g.shapeOf(n.b))
				}),
		},
		opNeg: {
			name:     "neg",
			value:    number(func(v, _ T) T { return -v }),
			gradient: rules(negated),
			oracle:   func(x, _, _ float64) float64 { return -x },
		},
		opReLU: {
			name:     "relu",
			value:    func(t *task[T], z, x []T, _ float64) { t.s.ops.Gate(z, x, x) },
			gradient: rules(slopeAtArgument),
			slope:    func(t *task[T], z, x, g []T, _ float64) { t.s.ops.Gate(z, x, g) },
			oracle:   func(x, _, _ float64) float64 { return max(x, 0) },
		},
		opLeaky: {
			name:     "leaky_relu",
			value:    func(t *task[T], z, x []T, alpha float64) { t.s.ops.Leaky(z, x, x, T(alpha)) },
			gradient: rules(slopeAtArgument),
			slope:    func(t *task[T], z, x, g []T, alpha float64) { t.s.ops.Leaky(z, x, g, T(alpha)) },
			oracle:   func(x, _, alpha float64) float64 { return max(x, 0) + alpha*min(x, 0) },
		},
		opELU: {
			name:     "elu",
			value:    func(t *task[T], z, x []T, alpha float64) { t.s.ops.ELU(z, x, T(alpha)) },
			gradient: rules(slopeAtArgument),
			slope: func(t *task[T], z, x, g []T, alpha float64) {
				e, c := t.left[:len(z)], T(alpha)
				t.s.ops.Exp(e, x)
				for j, v := range x {
					if v > 0 {
						z[j] = g[j]
					} else {
						z[j] = c * e[j] * g[j]
					}
				}
			},
			oracle: func(x, _, alpha float64) float64 { return max(x, 0) + alpha*math.Expm1(min(x, 0)) },
		},
		opExp: {
			name:     "exp",
			value:    func(t *task[T], z, x []T, _ float64) { t.s.ops.Exp(z, x) },
			gradient: rules(func(g *gradients, i int, _ node, grad int) int { return g.make(opMul, grad, g.of[i]) }),
			oracle:   func(x, _, _ float64) float64 { return math.Exp(x) },
		},
		opLog: {
			name:     "log",
			value:    func(t *task[T], z, x []T, _ float64) { t.s.ops.Log(z, x) },
			gradient: rules(func(g *gradients, _ int, n node, grad int) int { return g.make(opDiv, grad, g.of[n.a]) }),
			oracle:   func(x, _, _ float64) float64 { return math.Log(x) },
		},
		opSqrt: {
			name:     "sqrt",
			value:    number(func(v, _ T) T { return T(math.Sqrt(float64(v))) }),
			gradient: rules(slopeAtValue),
			slope:    byNumber[T](func(y, _ float64) float64 { return 0.5 / y }),
			oracle:   func(x, _, _ float64) float64 { return math.Sqrt(x) },
		},
		opSigmoid: {
			name:     "sigmoid",
			value:    func(t *task[T], z, x []T, _ float64) { t.s.ops.Sigmoid(z, x) },
			gradient: rules(slopeAtValue),
			slope: func(_ *task[T], z, y, g []T, _ float64) {
				eachPair(z, y, g, func(v, w T) T { return v * (1 - v) * w })
			},
			oracle: func(x, _, _ float64) float64 { return 1 / (1 + math.Exp(-x)) },
		},
		opTanh: {
			name:     "tanh",
			value:    func(t *task[T], z, x []T, _ float64) { t.s.ops.Tanh(z, x) },
			gradient: rules(slopeAtValue),
			slope: func(_ *task[T], z, y, g []T, _ float64) {
				eachPair(z, y, g, func(v, w T) T { return (1 - v*v) * w })
			},
			oracle: func(x, _, _ float64) float64 { return math.Tanh(x) },
		},
		opSoftplus: {
			name:     "softplus",
			value:    func(t *task[T], z, x []T, _ float64) { t.s.ops.Softplus(z, x) },
			gradient: rules(slopeAtArgument),
			slope: func(t *task[T], z, x, g []T, _ float64) {
				s := t.left[:len(z)]
				t.s.ops.Sigmoid(s, x)
				for j, v := range x {
					if v > softplusLinear {
						s[j] = 1
					}
				}
				t.s.ops.Times(z, s, g)
			},
			oracle: func(x, _, _ float64) float64 { return math.Log1p(math.Exp(x)) },
		},
		opAbs: {
			name:     "abs",
			value:    number(func(v, _ T) T { return T(math.Abs(float64(v))) }),
			gradient: rules(slopeAtArgument),
			slope: byNumber[T](func(x, _ float64) float64 {
				switch {
				case x > 0:
					return 1
				case x < 0:
					return -1
				}
				return 0 // NaN too
			}),
			oracle: func(x, _, _ float64) float64 { return math.Abs(x) },
		},
		opReciprocal: {
			name:     "reciprocal",
			value:    number(func(v, _ T) T { return 1 / v }),
			gradient: rules(slopeAtValue),
			slope:    byNumber[T](func(y, _ float64) float64 { return -y * y }),
			oracle:   func(x, _, _ float64) float64 { return 1 / x },
		},
		opScale: {
			name:     "scale",
			value:    number(func(v, c T) T { return v * c }),
			gradient: rules(func(g *gradients, _ int, n node, grad int) int { return g.with(opScale, grad, n.alpha) }),
			oracle:   func(x, _, alpha float64) float64 { return x * alpha },
		},
		opShift: {
			name:     "shift",
			value:    number(func(v, c T) T { return v + c }),
			gradient: rules(sameLeft),
			oracle:   func(x, _, alpha float64) float64 { return x + alpha },
		},
		opRsub: {
			name:     "rsub",
			value:    number(func(v, c T) T { return c - v }),
			gradient: rules(negated),
			oracle:   func(x, _, alpha float64) float64 { return alpha - x },
		},
		opPow: {
			name: "pow",
			value: func(_ *task[T], z, x []T, alpha float64) {
				for j, v := range x[:len(z)] {
					z[j] = T(power(float64(v), alpha))
				}
			},
			gradient: rules(slopeAtArgument),
			slope: byNumber[T](func(x, alpha float64) float64 {
				if alpha == 0 {
					return 0
				}
				return alpha * power(x, alpha-1)
			}),
			oracle: func(x, _, alpha float64) float64 { return math.Pow(x, alpha) },
		},
		opClampMin:     clamp[T]("clamp_min", true, func(x, alpha float64) bool { return x >= alpha }),
		opClampMax:     clamp[T]("clamp_max", false, func(x, alpha float64) bool { return x <= alpha }),
		opClampMinOpen: clamp[T]("clamp_min_open", true, func(x, alpha float64) bool { return x > alpha }),
		opClampMaxOpen: clamp[T]("clamp_max_open", false, func(x, alpha float64) bool { return x < alpha }),
		opTotal:        {name: "total", gradient: rules(sameLeft)},
		opReshape:      {name: "reshape", gradient: rules(sameLeft)},
		opSoftmax:      {name: "softmax", gradient: rules(softmaxGradient)},
		opDropout: { // the same mask
			name:     "dropout",
			gradient: rules(func(g *gradients, _ int, n node, grad int) int { return g.dropout(grad, n) }),
		},
	}
}

// clamp keeps numbers at or above alpha, or at or below it. slope is that at the number x.
func clamp[T Float](name string, above bool, slope func(x, alpha float64) bool) opDef[T] {
	return opDef[T]{
		name: name,
		value: number(func(v, c T) T {
			if above && v < c || !above && v > c {
				return c
			}
			return v
		}),
		gradient: []gradientRule{slopeAtArgument},
		slope: byNumber[T](func(x, alpha float64) float64 {
			if slope(x, alpha) {
				return 1
			}
			return 0
		}),
		oracle: func(x, _, alpha float64) float64 {
			if above {
				return max(x, alpha)
			}
			return min(x, alpha)
		},
	}
}

// power is x to the power of alpha: as in torch a root where alpha is a half, also of -Inf and -0.
func power(x, alpha float64) float64 {
	switch alpha {
	case 0.5:
		return math.Sqrt(x)
	case -0.5:
		return 1 / math.Sqrt(x)
	}
	return math.Pow(x, alpha)
}

// number is a value that is computed number by number: z[j] = f(x[j], alpha)
func number[T Float](f func(v, c T) T) func(t *task[T], z, x []T, alpha float64) {
	return func(_ *task[T], z, x []T, alpha float64) {
		c := T(alpha)
		for j, v := range x[:len(z)] {
			z[j] = f(v, c)
		}
	}
}

// eachPair: z[j] = f(x[j], y[j])
func eachPair[T Float](z, x, y []T, f func(v, w T) T) {
	x, y = x[:len(z)], y[:len(z)]
	for j, v := range x {
		z[j] = f(v, y[j])
	}
}

// byNumber is a slope that is computed number by number.
func byNumber[T Float](slope func(x, alpha float64) float64) func(t *task[T], z, x, g []T, alpha float64) {
	return func(_ *task[T], z, x, g []T, alpha float64) {
		eachPair(z, x, g, func(v, w T) T { return T(slope(float64(v), alpha)) * w })
	}
}

// definitions are the tables for an element type.
type definitions[T Float] struct {
	ops     [numOps]opDef[T]
	reduces [numReduces]reduceDef[T]
}

var (
	defs32 = &definitions[float32]{defineOps[float32](), defineReduces[float32]()}
	defs64 = &definitions[float64]{defineOps[float64](), defineReduces[float64]()}
)

func defsOf[T Float]() *definitions[T] {
	if defs, ok := any(defs32).(*definitions[T]); ok {
		return defs
	}
	return any(defs64).(*definitions[T])
}

// opNamed is the operation of a name.
func opNamed(name string) (op, bool) {
	for o, d := range defs64.ops {
		if d.name == name && name != "" {
			return op(o), true
		}
	}
	return 0, false
}

// Oracle is the definition of an operation, f(x, y) with its number alpha, for tests. It is
// nil for operations that do not work number by number.
func Oracle(name string) func(x, y, alpha float64) float64 {
	o, _ := opNamed(name)
	return defs64.ops[o].oracle
}

// Operations are the names of all operations, for tests.
func Operations() (names []string) {
	for _, d := range defs64.ops {
		if d.name != "" {
			names = append(names, d.name)
		}
	}
	return names
}
