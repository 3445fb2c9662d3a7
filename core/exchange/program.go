package exchange

import (
	"math/bits"

	"sar/core/comm"
	"sar/core/expr"
	"sar/core/graph"
	"sar/core/internal/view"
)

// Start runs f as an operation of the schedule, in which rows of up to rowBytes travel. rows
// and operands say which, in words that are the same on every rank.
type Start func(dir comm.Dir, rows string, operands uint32, rowBytes int, f func(op *comm.Op) error) error

// program moves what a run of an edge expression needs.
type program[T expr.Float] struct{ *expr.Run[T] }

// Forward computes x.Out, sweep by sweep. need are the operands that this rank will ask
// gradients of; it returns those that any rank does.
func Forward[T expr.Float](x *expr.Run[T], need uint32, start Start) (agreed uint32, err error) {
	for _, phase := range x.Forward() {
		flags, err := program[T]{x}.sweep(phase, comm.Forward, "rows", uint16(need), start)
		if err != nil {
			return 0, err
		}
		need |= uint32(flags)
	}
	return need, nil
}

// Backward computes the gradients of plan, x.Grads, from that of the result, x.Grad. push
// says which pairs of workers compute at the owner of the sources; nil: none.
func Backward[T expr.Float](x *expr.Run[T], plan *expr.GradientPlan, push *PushPlan, start Start) error {
	p := program[T]{x}
	b, err := x.Backward(plan)
	if err != nil {
		return err
	}
	for _, phase := range b.Deltas {
		if _, err := p.sweep(phase, comm.Backward, "rows for the softmax's gradient", 0, start); err != nil {
			return err
		}
	}
	if push != nil {
		size := max(plan.Push.SentBytes, plan.Push.ReturnedBytes)
		err := start(comm.Backward, "rows of destinations for gradients", plan.Operands, size, func(op *comm.Op) error { return p.push(op, plan, push, b) })
		if err != nil {
			return err
		}
	}
	if push == nil || push.Pulls {
		pull := func(op *comm.Op) error { return p.pullBackward(op, plan, push, b) }
		if plan.Fetch|plan.Return == 0 {
			err = pull(nil)
		} else {
			size := max(plan.FetchBytes, plan.ReturnBytes)
			err = start(comm.Backward, "rows of sources for gradients", plan.Operands, size, pull)
		}
		if err != nil {
			return err
		}
	}
	b.Finish()
	return nil
}

// sweep runs one phase. Boundary rows of the operands that it reads come side by
// side in one row, and are read where they arrive. Wire: the widths of these
// operands per boundary row. A phase that reads no sources is no operation.
func (x program[T]) sweep(phase expr.Phase[T], dir comm.Dir, rows string, flags uint16, start Start) (agreed uint16, err error) {
	rel, s := x.Rel, phase.Sweep
	whole := func() {
		s.Rows(nil, int32(rel.NumCols()))
		phase.Finish()
	}
	if phase.Sources == 0 {
		whole()
		return flags, nil
	}
	err = start(dir, rows, phase.Sources, x.rowBytes(phase.Sources), func(op *comm.Op) error {
		if agreed = flags; rel.Parts == 1 {
			whole()
			return nil
		}
		cursor, err := newCursor(rel)
		if err != nil {
			return err
		}
		defer cursor.Free()
		m := x.pull(op, phase.Sources, s, cursor)
		m.Flags = flags
		if agreed, err = m.Move(rel.Rank, rel.Parts); err == nil {
			phase.Finish()
		}
		return err
	})
	return agreed, err
}

// rowBytes is the size of the rows of some operands side by side.
func (x program[T]) rowBytes(set uint32) int { return x.Program.Packed(set) * view.Size[T]() }

// pull brings boundary rows of the operands in set to a sweep by rows, which may be nil.
func (x program[T]) pull(op *comm.Op, set uint32, s *expr.Sweep[T], cursor *cursor) *Movement {
	rel := x.Rel
	scatter := sparseChunks(rel, op, x.rowBytes(set))
	return &Movement{
		Op: op, RowBytes: x.rowBytes(set),
		Send: SendRows(rel), Recv: HaloRows(rel),
		Produce: func(r, first, n int, dst []byte) error {
			x.pack(set, view.Numbers[T](dst), rel.Send[r].Data[first:first+n])
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
				x.bind(s, set, view.Numbers[T](src), column(rel, r, first))
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
func (x program[T]) operands(set uint32, f func(i, offset int)) {
	offset := 0
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(set)
		f(i, offset)
		offset += x.Program.Operands[i].Width
	}
}

// pack puts rows idx of the operands in set side by side.
func (x program[T]) pack(set uint32, dst []T, idx []int32) {
	stride := x.Program.Packed(set)
	x.operands(set, func(i, offset int) {
		expr.GatherRows(x.Pool, expr.ColumnsAt(dst, offset, stride, x.Program.Operands[i].Width), x.Operands[i], idx)
	})
}

// bind makes a sweep read operands from packed rows, the first of which is that of
// column base.
func (x program[T]) bind(s *expr.Sweep[T], set uint32, src []T, base int32) {
	stride := x.Program.Packed(set)
	x.operands(set, func(i, offset int) { s.Source(i, src, offset, stride, base) })
}

// pullBackward computes the part of b that readers of sources compute. Own rows' part of the
// gradients of sources is added to what the peers send in the order p+1, p+2, …. Wire, per
// boundary row: the widths of the operands that the plan fetches, and of those it returns.
func (x program[T]) pullBackward(op *comm.Op, plan *expr.GradientPlan, push *PushPlan, b *expr.Backward[T]) error {
	switch rel := x.Rel; {
	case rel.Parts == 1 || plan.Fetch|plan.Return == 0:
		computeOwn(b, rel)
		return nil
	case plan.Fetch == 0:
		return x.returnGradients(op, plan, b)
	default:
		return x.fetchAgain(op, plan, push, b)
	}
}

// computeOwn computes what needs no peer: gradients of own rows, and all that is summed by rows.
func computeOwn[T expr.Float](b *expr.Backward[T], rel *graph.Relation) {
	if b.Own != nil {
		b.Own.Columns(0, rel.NumSrc)
	}
	if b.Target != nil {
		b.Target.Rows(nil, int32(rel.NumCols()))
	}
}

// returnGradients computes the gradients of boundary rows, for which nothing has to be
// fetched, into the send buffers.
func (x program[T]) returnGradients(op *comm.Op, plan *expr.GradientPlan, b *expr.Backward[T]) error {
	rel := x.Rel
	m := &Movement{
		Op: op, ToOwner: true, RowBytes: plan.ReturnBytes,
		Send: HaloRows(rel), Recv: SendRows(rel),
		Produce: func(r, first, n int, dst []byte) error {
			x.boundary(b.Peers, plan.Return, view.Numbers[T](dst), column(rel, r, first), n)
			return nil
		},
		Local: func() error {
			computeOwn(b, rel)
			return nil
		},
		Consume: func(r, first, n int, src []byte) error {
			x.addReturned(plan.Return, view.Numbers[T](src), rel.Send[r].Data[first:first+n])
			return nil
		},
	}
	_, err := m.Move(rel.Rank, rel.Parts)
	return err
}

// boundary computes the gradients of the operands in set for n columns from begin on.
func (x program[T]) boundary(s *expr.Sweep[T], set uint32, dst []T, begin int32, n int) {
	clear(dst)
	stride := x.Program.Packed(set)
	x.operands(set, func(i, offset int) { s.Target(i, dst, offset, stride, begin) })
	s.Columns(int(begin), int(begin)+n)
}

// addReturned adds what a peer has computed for own rows.
func (x program[T]) addReturned(set uint32, src []T, idx []int32) {
	stride := x.Program.Packed(set)
	x.operands(set, func(i, offset int) {
		expr.ScatterAddRows(x.Pool, x.Grads[i], expr.ColumnsAt(src, offset, stride, x.Program.Operands[i].Width), idx)
	})
}

// fetchAgain fetches boundary rows once more, and returns their gradients in the
// same movement where there are any.
func (x program[T]) fetchAgain(op *comm.Op, plan *expr.GradientPlan, push *PushPlan, b *expr.Backward[T]) error {
	rel := x.Rel
	cursor, err := newCursor(rel)
	if err != nil {
		return err
	}
	defer cursor.Free()
	m := x.pull(op, plan.Fetch, b.Target, cursor)
	if push != nil {
		m.Send, m.Recv = pulled(m.Send, push.Out), pulled(m.Recv, push.In)
	}
	if plan.Return == 0 {
		_, err := m.Move(rel.Rank, rel.Parts)
		return err
	}
	add := func(src []T, idx []int32) { x.addReturned(plan.Return, src, idx) }
	local, consume := m.Local, m.Consume
	m.Consume, m.Reply = nil, &Reply{
		RowBytes: plan.ReturnBytes,
		Compute: func(r, first, n int, src, reply []byte) error {
			begin := column(rel, r, first)
			x.bind(b.Peers, plan.Fetch, view.Numbers[T](src), begin)
			x.boundary(b.Peers, plan.Return, view.Numbers[T](reply), begin, n)
			return consume(r, first, n, src)
		},
		Take: func(r, first, n int, src []byte) error {
			add(view.Numbers[T](src), rel.Send[r].Data[first:first+n])
			return nil
		},
	}
	if push != nil { // own columns have been computed
		_, err = m.Move(rel.Rank, rel.Parts)
		return err
	}
	concurrent, err := b.Concurrent()
	if err != nil {
		return err
	}
	if concurrent {
		o, err := newLocalGradients(x, b.Own, plan.Return)
		if err != nil {
			return err
		}
		defer o.sums.Free()
		add = o.add
		m.Parts, m.Part = len(o.parts), o.part
		m.Needs = func(r, first, n int) int { return o.needs(r, rel.Send[r].Data[first:first+n]) }
	} else if b.Own != nil {
		m.Local = func() error {
			b.Own.Columns(0, rel.NumSrc)
			return local()
		}
	}
	_, err = m.Move(rel.Rank, rel.Parts)
	return err
}
