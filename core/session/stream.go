package session

import (
	"fmt"

	"sar/core/comm"
	"sar/core/exchange"
)

// Stream describes the visit of every in-edge of own rows, StreamField one tensor of it, StreamBlock what a visit gets.
type (
	Stream      = exchange.Stream
	StreamField = exchange.Field
	StreamBlock = exchange.Block
)

// Stream visits every in-edge of own rows of a relation; it returns the union of all ranks'
// flags. Collective.
func (g *Graph) Stream(relation int, s Stream) (flags uint16, err error) {
	if s.Rel, err = g.Relation(relation); err != nil {
		return 0, err
	}
	if n := len(s.Src); n < 1 || len(s.Dst) != n || s.Edge != nil && len(s.Edge) != n {
		return 0, Invalid("blocks have room for %d sources, %d destinations and %d edge positions: "+
			"give the same number, at least 1", n, len(s.Dst), len(s.Edge))
	}
	sends := fmt.Sprintf("fields of relation %d:", relation) // for the schedule
	for i, f := range s.Fields {
		if f.N != s.Rel.NumSrc {
			return 0, Invalid("field %d has %d rows, and this worker has %d source nodes", i, f.N, s.Rel.NumSrc)
		}
		if f.Grad != nil && len(f.Grad) != len(f.Data) {
			return 0, Invalid("the gradient of field %d has %d bytes and the field %d: they must have one shape and dtype",
				i, len(f.Grad), len(f.Data))
		}
		sends += fmt.Sprintf(" %d bytes (numbers of %d)", f.Bytes, f.Float)
	}
	if s.Edge != nil {
		if err := g.edgeOrder(s.Rel); err != nil {
			return 0, err
		}
	}
	s.Pool = pool
	out, back := s.RowBytes()
	dir := comm.Forward
	if back > 0 {
		dir = comm.Backward
	}
	err = g.run(comm.KindMessage, dir, max(out, back), sends, func(op *comm.Op) error {
		s.Op = op
		flags, err = s.Run()
		return err
	})
	return flags, err
}
