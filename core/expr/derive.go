package expr

import "slices"

// gradients is what backward computes: a register for the gradient of every
// operand, and for every softmax its weights times their gradient, which have
// to be summed over the in-edges first.
type gradients struct {
	*builder
	operands []int // register of the gradient, or -1
	products []int // by softmax, or -1
	half     bool  // that of the result is in bfloat16
}

// derive writes down the gradients of the operands in set.
func (p *Program) derive(set uint32) *gradients {
	b := newBuilder(p)
	b.forward(func(int) bool { return false })
	g := &gradients{builder: b, operands: make([]int, len(p.Operands)), products: make([]int, len(p.softmaxes))}
	active := p.depends(func(i int) bool { return i < len(p.Operands) && wanted(set, i) })
	of := make([]int, len(p.nodes)) // gradients of the program's registers
	for i := range of {
		of[i] = -1
	}
	for i := range g.products {
		g.products[i] = -1
	}
	give := func(i, grad int) {
		if grad = b.to(grad, p.nodes[i].shape); of[i] >= 0 {
			grad = b.make(opAdd, of[i], grad)
		}
		of[i] = grad
	}
	if active[p.result] {
		of[p.result] = b.load(p.inputGrad(), p.nodes[p.result].shape)
		if rule := p.reduce().gradient; rule != nil {
			of[p.result] = rule(g, b.of[p.result], of[p.result])
		}
	}
	for i := len(p.nodes) - 1; i >= len(p.Operands); i-- {
		n, grad := p.nodes[i], of[i]
		if grad < 0 || !active[i] {
			continue
		}
		if active[n.a] {
			give(n.a, defs64.ops[n.op].gradient[0](g, i, n, grad))
		}
		if n.b >= 0 && active[n.b] {
			give(n.b, defs64.ops[n.op].gradient[1](g, i, n, grad))
		}
	}
	for i := range p.Operands {
		g.operands[i] = -1
		if wanted(set, i) {
			g.operands[i] = of[i]
		}
	}
	return g
}

// shapeOf is the shape of a register of the program.
func (g *gradients) shapeOf(i int) shape { return g.p.nodes[i].shape }

// gradientRule writes down the gradient of an operand of instruction i, n, from grad, that
// of its value.
type gradientRule func(g *gradients, i int, n node, grad int) int

func sameLeft(g *gradients, _ int, n node, grad int) int { return g.to(grad, g.shapeOf(n.a)) }

func sameRight(g *gradients, _ int, n node, grad int) int { return g.to(grad, g.shapeOf(n.b)) }

func negated(g *gradients, _ int, _ node, grad int) int { return g.make(opNeg, grad, -1) }

// slopeAtArgument is for functions whose slope is computed from the argument, slopeAtValue
// for those whose slope is easier seen from their value.
func slopeAtArgument(g *gradients, _ int, n node, grad int) int { return g.slope(n, g.of[n.a], grad) }

func slopeAtValue(g *gradients, i int, n node, grad int) int { return g.slope(n, g.of[i], grad) }

func (g *gradients) slope(n node, at, grad int) int {
	return g.add(node{op: opSlope, a: at, b: grad, alpha: n.alpha, shape: n.shape, arg: int(n.op)})
}

// softmaxGradient: weight · (grad - Σ over the in-edges of weight · grad)
func softmaxGradient(g *gradients, i int, n node, grad int) int {
	s := slices.IndexFunc(g.p.softmaxes, func(x softmax) bool { return x.node == i })
	g.products[s] = g.make(opMul, g.of[i], grad)
	centred := g.make(opSub, grad, g.load(g.p.inputDelta(s), n.shape))
	return g.make(opMul, g.of[i], centred)
}
