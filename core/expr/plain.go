package expr

// PlainSum is a program that is the product of a sparse matrix with rows: it sums or averages rows of sources, or such
// rows times weights of edges. Whoever moves rows computes it without a sweep.
type PlainSum struct {
	Rows    int // the operand of sources, native or in bfloat16
	Weights int // the operand of edges, -1: none
	Heads   int // weights of an edge, each of which as many elements share
}

// PlainSum recognizes it.
func (p *Program) PlainSum() (s PlainSum, ok bool) {
	c := &code{p: p, nodes: p.nodes}
	if !p.reduce().sum || p.Width() == 0 {
		return s, false
	}
	source := func(i int) bool {
		n := p.nodes[i]
		return n.op == opLoad && p.side(n.arg) == U && p.Operands[n.arg].Storage <= BFloat16
	}
	if source(p.result) {
		return PlainSum{Rows: p.nodes[p.result].arg, Weights: -1, Heads: 1}, true
	}
	weights, rows, d, ok := c.scaled(p.result, p.nodes[p.result].shape, 1, source)
	if !ok || !c.lies(weights) || p.side(p.nodes[weights].arg) != E {
		return s, false
	}
	return PlainSum{Rows: p.nodes[rows].arg, Weights: p.nodes[weights].arg, Heads: p.Width() / d}, true
}
