package expr

// gradients is what backward computes: a register for the gradient of every
// operand, and for every softmax its weights times their gradient, which have
// to be summed over the in-edges first.
type gradients struct {
	*builder
	operands []int // register of the gradient, or -1
	products []int // by softmax, or -1
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
	number := map[int]int{}
	for s, x := range p.softmaxes {
		number[x.node] = s
	}
	give := func(i, grad int) {
		if grad = b.to(grad, p.nodes[i].shape); of[i] >= 0 {
			grad = b.make(opAdd, of[i], grad)
		}
		of[i] = grad
	}
	if active[p.result] {
		of[p.result] = b.load(p.slotGrad(), p.nodes[p.result].shape)
		if p.Reduce == Max || p.Reduce == Min {
			of[p.result] = b.make(opWinner, of[p.result], -1)
		}
	}
	for i := len(p.nodes) - 1; i >= len(p.Operands); i-- {
		n, grad := p.nodes[i], of[i]
		if grad < 0 || !active[i] {
			continue
		}
		if n.op == opSoftmax {
			s := number[i]
			g.products[s] = b.make(opMul, b.of[i], grad)
			centred := b.make(opSub, grad, b.load(p.slotDelta(s), n.shape))
			give(n.a, b.make(opMul, b.of[i], centred))
			continue
		}
		if active[n.a] {
			give(n.a, g.left(i, n, grad))
		}
		if n.b >= 0 && active[n.b] {
			give(n.b, g.right(n, grad))
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

// left is the gradient of an instruction's first operand.
func (g *gradients) left(i int, n node, grad int) int {
	b, a := g.builder, g.of[n.a]
	s := g.p.nodes[n.a].shape
	slope := func(at int) int {
		return b.add(node{op: opSlope, a: at, b: grad, alpha: n.alpha, shape: n.shape, slot: int(n.op)})
	}
	switch n.op {
	case opAdd, opSub, opShift, opReshape, opTotal:
		return b.to(grad, s)
	case opMul:
		return b.timesTo(grad, g.of[n.b], s)
	case opDiv:
		return b.to(b.make(opDiv, grad, g.of[n.b]), s)
	case opDot:
		return b.to(b.make(opMul, g.of[n.b], grad), s)
	case opNeg, opRsub:
		return b.make(opNeg, grad, -1)
	case opScale:
		return b.with(opScale, grad, n.alpha)
	case opLeaky:
		return slope(a)
	case opExp:
		return b.make(opMul, grad, g.of[i])
	case opLog:
		return b.make(opDiv, grad, a)
	case opSqrt, opSigmoid, opTanh, opReciprocal:
		return slope(g.of[i])
	case opDropout: // the same mask
		return b.dropout(grad, n)
	default:
		return slope(a)
	}
}

// right is the gradient of an instruction's second operand.
func (g *gradients) right(n node, grad int) int {
	b, s := g.builder, g.p.nodes[n.b].shape
	switch n.op {
	case opAdd:
		return b.to(grad, s)
	case opSub:
		return b.make(opNeg, b.to(grad, s), -1)
	case opMul:
		return b.timesTo(grad, g.of[n.a], s)
	case opDot:
		return b.to(b.make(opMul, g.of[n.a], grad), s)
	case opDiv: // -(a/b)/b
		quotient := b.make(opDiv, b.make(opDiv, g.of[n.a], g.of[n.b]), g.of[n.b])
		return b.make(opNeg, b.timesTo(grad, quotient, s), -1)
	}
	panic("expr: no gradient of " + opNames[n.op])
}
