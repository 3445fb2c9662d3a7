package expr

import "sar/core/internal/view"

const (
	rowBytes    = 64 // a row that is worth a call of its own
	directBytes = 32 // elements that share a coefficient, for products that are added without being made
)

// pattern is a form of expression that has loops of its own. One is a file and a line of patterns; what it does not
// concern is nil. What recognizes it depends on the element size alone, and on no data.
type pattern[T Float] struct {
	// call recognizes a register, and says which others have to be made for it; run makes it.
	call func(s *selection, n node) (form any, in []int, ok bool)
	run  func(t *task[T], z []T, c *call[T])

	// sum recognizes what a sink adds up, add adds a block of it to where it belongs (nil: as addRows does), and
	// scatter a share of a batch.
	sum     func(s *selection, k sink) (addend, bool)
	add     func(t *task[T], a *sum[T])
	scatter func(s *Sweep[T], a *sum[T], b *batch[T], share, shares int)

	// join replaces calls and sums that read the same rows by one that reads them once.
	join func(s *selection, k *calls[T])
}

// patterns are tried in this order.
func patterns[T Float]() []pattern[T] {
	return []pattern[T]{leakyAttention[T](), dotProducts[T](), rowsInPlace[T](), scaledRows[T]()}
}

// scattersInPlace tells whether all that a register is the sum of can be scattered without being made.
func (s *selection) scattersInPlace(reg int) bool {
	for _, x := range s.terms(reg, func(int) bool { return true }) {
		found := false
		for _, p := range patterns[float64]() {
			if p.sum == nil {
				continue
			}
			if a, ok := p.sum(s, sink{kind: sinkScatter, reg: x}); ok {
				found = a.inPlace()
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// gathered tells whether a register is a load of rows that loops of sums and products read where they lie: of the
// element type, or where that is float32 in bfloat16.
func (s *selection) gathered(i int) bool { return s.lies(i) || s.half(i) }

// half tells whether it is one in bfloat16.
func (s *selection) half(i int) bool {
	n := s.nodes[i]
	return n.op == opLoad && !s.native(n.arg) && s.p.side(n.arg) != P && s.size == view.Size[float32]()
}

// ofSource tells whether a register is such a row of the source.
func (s *selection) ofSource(i int) bool { return s.gathered(i) && s.p.side(s.nodes[i].arg) == U }

// parameter tells whether a register is a row that is the same for all edges.
func (c *code) parameter(i int) bool {
	n := c.nodes[i]
	return n.op == opLoad && c.native(n.arg) && c.p.side(n.arg) == P
}

// scaled tells whether a register is a product of one of shape s that is as wanted and one that has a
// coefficient for every d of its elements, d a multiple of lanes.
func (c *code) scaled(reg int, s shape, lanes int, wanted func(i int) bool) (coefficient, other, d int, ok bool) {
	n := c.nodes[reg]
	if n.op != opMul || s.width() == 0 {
		return 0, 0, 0, false
	}
	for _, try := range [][2]int{{n.a, n.b}, {n.b, n.a}} {
		x, y := try[0], try[1]
		if d, ok := grouped(c.nodes[x].shape, s); ok && d%lanes == 0 && c.nodes[y].width == s.width() && wanted(y) {
			return x, y, d, true
		}
	}
	return 0, 0, 0, false
}
