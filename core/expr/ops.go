package expr

import "math"

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
	opTotal // to a shape that broadcasts to that of the operand
	opReshape
	opSoftmax
	opDropout
	numOps // what programs may say; the others come up in derived code

	opMask   // what dropout multiplies elements with; slot says which dropout
	opWeigh  // e to the power of a minus the greatest a of the destination so far
	opSpread // broadcast to a shape
	opDots   // products of two registers of one shape, summed over runs of elements
	opWinner // a where this edge won the element of its destination, else 0
	opSlope  // the slope of the function in slot at a, or at the argument whose value is a, times b
)

var opNames = [numOps]string{
	opAdd: "add", opSub: "sub", opMul: "mul", opDiv: "div", opDot: "dot",
	opNeg: "neg", opReLU: "relu", opLeaky: "leaky_relu", opELU: "elu", opExp: "exp", opLog: "log", opSqrt: "sqrt",
	opSigmoid: "sigmoid", opTanh: "tanh", opSoftplus: "softplus", opAbs: "abs", opReciprocal: "reciprocal",
	opScale: "scale", opShift: "shift", opRsub: "rsub", opPow: "pow", opClampMin: "clamp_min", opClampMax: "clamp_max",
	opTotal: "total", opReshape: "reshape", opSoftmax: "softmax", opDropout: "dropout",
}

func (o op) binary() bool { return o >= opAdd && o <= opDot }

// softplusLinear is where softplus becomes the identity, as torch has it.
const softplusLinear = 20

// value is a function of one number. Those that have a loop of their own are
// not here.
func (n *node) value(x float64) float64 {
	c := n.alpha
	if n.op == opPow {
		return math.Pow(x, c)
	}
	panic("expr: " + opNames[n.op] + " is not computed number by number")
}

// slope is the derivative at x of the function whose code a node keeps in slot,
// or, of functions that are easier seen from their value, at the x whose value y
// is.
func slope(f op, c, x float64) float64 {
	switch f {
	case opSqrt: // of the value
		return 0.5 / x
	case opAbs:
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return x // 0 and NaN
	case opReciprocal: // of the value
		return -x * x
	case opPow:
		if c == 0 {
			return 0
		}
		return c * math.Pow(x, c-1)
	case opClampMin:
		if x >= c {
			return 1
		}
		return 0
	case opClampMax:
		if x <= c {
			return 1
		}
		return 0
	}
	panic("expr: no slope")
}
