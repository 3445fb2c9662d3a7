package exchange

import (
	"math/bits"

	"sar/core/comm"
	"sar/core/expr"
	"sar/core/graph"
)

// Program is an edge expression over one relation, with its operands.
type Program[T expr.Float] struct {
	*expr.Run[T]
	// Ways is set where backward is computed by the owners of sources for some pairs of
	// workers: Push then comes before Backward.
	Ways *Ways
}

// Sweep runs one phase. Boundary rows of the operands that it reads come side by
// side in one row, and are read where they arrive. Wire: the widths of these
// operands per boundary row. A phase that reads no sources needs no op.
func (x *Program[T]) Sweep(op *comm.Op, flags uint16, phase expr.Phase[T]) (uint16, error) {
	rel, s := x.Rel, phase.Sweep
	if rel.Parts == 1 || phase.Sources == 0 {
		s.Rows(nil, int32(rel.NumCols()))
		phase.Finish()
		return flags, nil
	}
	cursor, err := newCursor(rel)
	if err != nil {
		return 0, err
	}
	defer cursor.Free()
	m := x.pull(op, flags, phase.Sources, s, cursor)
	agreed, err := m.Move(rel.Rank, rel.Parts)
	if err == nil {
		phase.Finish()
	}
	return agreed, err
}

// RowBytes is the size of the rows of some operands side by side.
func (x *Program[T]) RowBytes(set uint32) int { return x.Program.Packed(set) * sizeOf[T]() }

// pull brings boundary rows of the operands in set to a sweep by rows.
func (x *Program[T]) pull(op *comm.Op, flags uint16, set uint32, s *expr.Sweep[T], cursor *cursor) *Movement {
	rel := x.Rel
	scatter := sparseChunks(rel, op, x.RowBytes(set))
	return &Movement{
		Op: op, Flags: flags, RowBytes: x.RowBytes(set),
		Send: sendRows(rel), Recv: HaloRows(rel),
		Produce: func(r, first, n int, dst []byte) error {
			x.pack(set, view[T](dst), rel.Send[r].Data[first:first+n])
			return nil
		},
		Local: func() error {
			if s != nil {
				s.Rows(&cursor.Cursor, int32(rel.NumSrc))
			}
			return nil
		},
		Consume: func(r, first, n int, src []byte) error {
			if s != nil {
				x.bind(s, set, view[T](src), column(rel, r, first))
				window(s, cursor, scatter, column(rel, r, first), n)
			}
			return nil
		},
	}
}

// window sweeps over the edges of n columns from begin on.
func window[T expr.Float](s *expr.Sweep[T], cursor *cursor, scatter bool, begin int32, n int) {
	if scatter {
		s.Scatter(int(begin), int(begin)+n)
	} else {
		s.Rows(&cursor.Cursor, begin+int32(n))
	}
}

// column is that of boundary row first of round r.
func column(rel *graph.Relation, r, first int) int32 { return rel.Halo[r].Begin + int32(first) }

// operands calls f for the operands in set with where they begin in a packed row.
func (x *Program[T]) operands(set uint32, f func(i, offset int)) {
	offset := 0
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(set)
		f(i, offset)
		offset += x.Program.Operands[i].Width
	}
}

// pack puts rows idx of the operands in set side by side.
func (x *Program[T]) pack(set uint32, dst []T, idx []int32) {
	stride := x.Program.Packed(set)
	x.operands(set, func(i, offset int) {
		expr.GatherRows(x.Pool, dst, offset, stride, x.Operands[i], x.Program.Operands[i].Width, idx)
	})
}

// bind makes a sweep read operands from packed rows, the first of which is that of
// column base.
func (x *Program[T]) bind(s *expr.Sweep[T], set uint32, src []T, base int32) {
	stride := x.Program.Packed(set)
	x.operands(set, func(i, offset int) { s.Source(i, src, offset, stride, base) })
}

// Backward computes the gradients that b prepares, where the ranks together want those
// of the operands in agreed. Own rows' part of the gradients of sources is added to
// what the peers send in the order p+1, p+2, …. Wire, per boundary row: the widths of
// the sources whose values are read, and those of the sources with a gradient. b is not
// finished then.
func (x *Program[T]) Backward(op *comm.Op, agreed uint32, b *expr.Backward[T], own uint32, grads [][]T) error {
	rel := x.Rel
	values, home := x.Program.Plan(agreed)
	var err error
	switch {
	case rel.Parts == 1 || values|home == 0:
		if b.Own != nil {
			b.Own.Columns(0, rel.NumCols())
		}
		if b.Target != nil {
			b.Target.Rows(nil, int32(rel.NumCols()))
		}
	case values == 0:
		err = x.sendHome(op, home, own, b, grads)
	default:
		err = x.pullAgain(op, values, home, own, b, grads)
	}
	return err
}

// sendHome computes the gradients of boundary rows, for which nothing has to be
// fetched, into the send buffers.
func (x *Program[T]) sendHome(op *comm.Op, home, own uint32, b *expr.Backward[T], grads [][]T) error {
	rel := x.Rel
	m := &Movement{
		Op: op, Home: true, RowBytes: x.RowBytes(home),
		Send: HaloRows(rel), Recv: sendRows(rel),
		Produce: func(r, first, n int, dst []byte) error {
			x.boundary(b.Peers, home, view[T](dst), column(rel, r, first), n)
			return nil
		},
		Local: func() error {
			if b.Own != nil {
				b.Own.Columns(0, rel.NumSrc)
			}
			if b.Target != nil {
				b.Target.Rows(nil, int32(rel.NumCols()))
			}
			return nil
		},
		Consume: func(r, first, n int, src []byte) error {
			x.takeHome(home, own, grads, view[T](src), rel.Send[r].Data[first:first+n])
			return nil
		},
	}
	_, err := m.Move(rel.Rank, rel.Parts)
	return err
}

// boundary computes the gradients of the operands in home for n columns from begin on.
func (x *Program[T]) boundary(s *expr.Sweep[T], home uint32, dst []T, begin int32, n int) {
	clear(dst)
	stride := x.Program.Packed(home)
	x.operands(home, func(i, offset int) { s.Target(i, dst, offset, stride, begin) })
	s.Columns(int(begin), int(begin)+n)
}

// takeHome adds what a peer has computed for own rows.
func (x *Program[T]) takeHome(home, own uint32, grads [][]T, src []T, idx []int32) {
	stride := x.Program.Packed(home)
	x.operands(home, func(i, offset int) {
		if own>>i&1 != 0 {
			expr.ScatterAddRows(x.Pool, grads[i], x.Program.Operands[i].Width, idx, src, offset, stride)
		}
	})
}

// pullAgain fetches boundary rows once more, and sends their gradients back in the
// same movement where there are any.
func (x *Program[T]) pullAgain(op *comm.Op, values, home, own uint32, b *expr.Backward[T], grads [][]T) error {
	rel := x.Rel
	cursor, err := newCursor(rel)
	if err != nil {
		return err
	}
	defer cursor.Free()
	m := x.pull(op, 0, values, b.Target, cursor)
	if x.Ways != nil {
		m.Send, m.Recv = pulled(m.Send, x.Ways.Out), pulled(m.Recv, x.Ways.In)
	}
	if home == 0 {
		_, err := m.Move(rel.Rank, rel.Parts)
		return err
	}
	add := func(src []T, idx []int32) { x.takeHome(home, own, grads, src, idx) }
	t := &RoundTrip{
		Op: op, RowBytes: m.RowBytes, BackBytes: x.RowBytes(home),
		Send: m.Send, Recv: m.Recv, Produce: m.Produce, Local: m.Local,
		Consume: func(r, first, n int, src, back []byte) error {
			begin := column(rel, r, first)
			x.bind(b.Peers, values, view[T](src), begin)
			x.boundary(b.Peers, home, view[T](back), begin, n)
			return m.Consume(r, first, n, src)
		},
		Return: func(r, first, n int, src []byte) error {
			add(view[T](src), rel.Send[r].Data[first:first+n])
			return nil
		},
	}
	if x.Ways != nil { // own columns have been computed
		_, err = t.Move(rel.Rank, rel.Parts)
		return err
	}
	apart, err := b.Beside()
	if err != nil {
		return err
	}
	if apart {
		o, err := newOwnColumns(x, b.Own, home, own, grads)
		if err != nil {
			return err
		}
		defer o.sums.Free()
		add = o.add
		t.Parts, t.Part = len(o.parts), o.part
		t.Needs = func(r, first, n int) int { return o.needs(r, rel.Send[r].Data[first:first+n]) }
	} else if b.Own != nil {
		t.Local = func() error {
			b.Own.Columns(0, rel.NumSrc)
			return m.Local()
		}
	}
	_, err = t.Move(rel.Rank, rel.Parts)
	return err
}
