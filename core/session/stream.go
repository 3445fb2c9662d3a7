package session

import (
	"fmt"

	"sar/core/comm"
	"sar/core/exchange"
)

// StreamField is one tensor of a stream, StreamBlock what a visit gets.
type (
	StreamField = exchange.Field
	StreamBlock = exchange.Block
)

// Stream describes the visit of every in-edge of own rows. See exchange.Stream.
type Stream struct {
	Relation       int
	Flags          uint32
	Fields         []StreamField
	Src, Dst, Edge []int64
	Visit          func(b *StreamBlock) error
}

// sends says what travels, for the schedule.
func (what Stream) sends() string {
	said := fmt.Sprintf("fields of relation %d:", what.Relation)
	for _, f := range what.Fields {
		said += fmt.Sprintf(" %d bytes (numbers of %d)", f.Bytes, f.Float)
	}
	return said
}

// Stream visits every in-edge of own rows; it returns the union of all ranks'
// flags. Collective.
func (g *Graph) Stream(what Stream) (uint32, error) {
	rel, err := g.Relation(what.Relation)
	if err != nil {
		return 0, err
	}
	if what.Flags>>16 != 0 {
		return 0, Invalid("flags are %#x: a stream has 16 of them", what.Flags)
	}
	if n := len(what.Src); n < 1 || len(what.Dst) != n || what.Edge != nil && len(what.Edge) != n {
		return 0, Invalid("blocks have room for %d sources, %d destinations and %d edge positions: "+
			"give the same number, at least 1", n, len(what.Dst), len(what.Edge))
	}
	for i, f := range what.Fields {
		name := fmt.Sprintf("field %d", i)
		if f.N != rel.NumSrc {
			return 0, Invalid("%s has %d rows, and this worker has %d source nodes", name, f.N, rel.NumSrc)
		}
		if f.Grad != nil && len(f.Grad) != len(f.Data) {
			return 0, Invalid("the gradient of %s has %d bytes and the field %d: they must have one shape and dtype",
				name, len(f.Grad), len(f.Data))
		}
	}
	if what.Edge != nil {
		if err := g.edgeOrder(rel); err != nil {
			return 0, err
		}
	}
	s := &exchange.Stream{
		Rel: rel, Pool: pool, Flags: uint16(what.Flags), Fields: what.Fields,
		Src: what.Src, Dst: what.Dst, Edge: what.Edge, Visit: what.Visit,
	}
	out, back := s.RowBytes()
	dir := comm.Forward
	if back > 0 {
		dir = comm.Backward
	}
	var flags uint16
	err = g.run(comm.KindMessage, dir, max(out, back), what.sends(), func(op *comm.Op) error {
		s.Op = op
		flags, err = s.Run()
		return err
	})
	return uint32(flags), err
}
