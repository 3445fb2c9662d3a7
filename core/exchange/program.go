package exchange

import (
	"math/bits"

	"sar/core/comm"
	"sar/core/expr"
	"sar/core/graph"
	"sar/core/internal/view"
	"sar/core/kernel"
)

// Start runs f as an operation of the schedule, in which rows of up to rowBytes travel. rows
// and operands say which, in words that are the same on every rank.
type Start func(kind comm.Kind, dir comm.Dir, rows string, operands uint32, rowBytes int,
	f func(op *comm.Op) error) error

const sourceRows = "rows of sources for gradients"

// program moves what a run of an edge expression needs.
type program[T expr.Float] struct{ *expr.Run[T] }

// Forward computes x.Out, sweep by sweep. need are the operands that this rank will ask
// gradients of; it returns those that any rank does. So do further bits of need, below 16. c is of
// plain sums, and of programs that have partial results.
func Forward[T expr.Float](x *expr.Run[T], need uint32, c Covering, start Start) (agreed uint32, err error) {
	if a := plainSumOf(x); a != nil {
		sum := func(op *comm.Op) error {
			flags, err := a.forward(op, uint16(need), x.Out, c)
			agreed = need | uint32(flags)
			return err
		}
		size := a.rowBytes()
		if c.Cover != nil {
			size = max(size, a.sumBytes())
		}
		err = start(comm.KindAggregate, comm.Forward, c.named("rows"), 1<<a.rows, size, sum)
		return agreed, err
	}
	for _, phase := range x.Forward() {
		flags, err := program[T]{x}.sweep(phase, comm.Forward, "rows", uint16(need), c, start)
		if err != nil {
			return 0, err
		}
		need |= uint32(flags)
	}
	return need, nil
}

// Backward computes the gradients of plan, x.Grads, from that of the result, x.Grad. push
// says which pairs of workers compute at the owner of the sources; nil: none. c is of plain sums, and of
// greatest and least messages that are rows of sources.
func Backward[T expr.Float](x *expr.Run[T], plan *expr.GradientPlan, push *PushPlan, c Covering, start Start) error {
	if a := plainSumOf(x); a != nil {
		return a.backward(plan, c, start)
	}
	p := program[T]{x}
	b, err := x.Backward(plan)
	if err != nil {
		return err
	}
	for _, phase := range b.Deltas {
		if _, err := p.sweep(phase, comm.Backward, "rows for the softmax's gradient", 0, Covering{}, start); err != nil {
			return err
		}
	}
	if push != nil {
		size := max(plan.Push.SentBytes, plan.Push.ReturnedBytes)
		send := func(op *comm.Op) error { return p.push(op, plan, push, b) }
		err := start(comm.KindExpression, comm.Backward, "rows of destinations for gradients", plan.Operands, size, send)
		if err != nil {
			return err
		}
	}
	if push == nil || push.Pulls {
		pull := func(op *comm.Op) error { return p.pullBackward(op, plan, push, c, b) }
		if plan.Fetch|plan.Return == 0 {
			err = pull(nil)
		} else {
			size := max(plan.FetchBytes, plan.ReturnBytes, plan.PickBytes)
			err = start(comm.KindExpression, comm.Backward, c.named(sourceRows), plan.Operands, size, pull)
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
// operands per boundary row. A phase that reads no sources is no operation. Where there is a cover, partial
// results come first, which is an operation of its own.
func (x program[T]) sweep(phase expr.Phase[T], dir comm.Dir, rows string, flags uint16, c Covering, start Start) (
	agreed uint16, err error) {
	rel, s := x.Rel, phase.Sweep
	whole := func() {
		s.Rows(nil, 0, int32(rel.NumCols()))
		phase.Finish()
	}
	if phase.Sources == 0 {
		whole()
		return flags, nil
	}
	if rel.Parts == 1 {
		return flags, start(comm.KindExpression, dir, rows, phase.Sources, x.rowBytes(phase.Sources),
			func(*comm.Op) error {
				whole()
				return nil
			})
	}
	reader := &reader[T]{program: x, set: phase.Sources, sweep: s}
	defer reader.free()
	var ahead *Ahead
	size := x.rowBytes(phase.Sources)
	if c.Cover != nil {
		layout := x.Program.Partial(view.Size[T]())
		if layout.SentBytes == 0 {
			ahead, size = x.resultsAhead(c, layout), max(size, layout.ReturnedBytes)
		} else if err := x.partialResults(c, layout, dir, reader, start); err != nil {
			return 0, err
		}
	}
	err = start(comm.KindExpression, dir, c.named(rows), phase.Sources, size,
		func(op *comm.Op) error {
			send, recv := c.rows(rel)
			if agreed, err = reader.move(op, flags, send, recv, ahead); err == nil {
				phase.Finish()
			}
			return err
		})
	return agreed, err
}

// rowBytes is the size of the rows of some operands side by side.
func (x program[T]) rowBytes(set uint32) int { return x.Program.RowBytes(set, view.Size[T]()) }

// reader is what a sweep by rows, which may be nil, does with boundary rows of the operands in set.
type reader[T expr.Float] struct {
	program[T]
	set     uint32
	sweep   *expr.Sweep[T]
	cursor  *cursor // nil: no edge has been swept over
	scatter bool
}

func (x *reader[T]) free() {
	if x.cursor != nil {
		x.cursor.Free()
	}
}

func (x *reader[T]) produce(r, first, n int, dst []byte) error {
	x.gather(x.set, dst, x.Rel.Send[r].Data[first:first+n])
	return nil
}

// local sweeps over the edges out of own rows, unless that has been done.
func (x *reader[T]) local() (err error) {
	if x.sweep == nil || x.cursor != nil {
		return nil
	}
	if x.cursor, err = newCursor(x.Rel); err == nil {
		x.sweep.Rows(&x.cursor.Cursor, 0, int32(x.Rel.NumSrc))
	}
	return err
}

func (x *reader[T]) consume(r, first, n int, src []byte) error {
	if x.sweep == nil {
		return nil
	}
	begin := column(x.Rel, r, first)
	x.bind(x.sweep, x.set, src, begin)
	if x.scatter {
		x.sweep.Scatter(int(begin), int(begin)+n)
	} else {
		x.sweep.Rows(&x.cursor.Cursor, begin, begin+int32(n))
	}
	return nil
}

// move brings the rows, of which so many travel in each round, behind those that travel ahead.
func (x *reader[T]) move(op *comm.Op, flags uint16, send, recv []int, ahead *Ahead) (uint16, error) {
	rel := x.Rel
	x.scatter = sparseChunks(rel, op, x.rowBytes(x.set))
	m := &Movement{
		Op: op, Flags: flags, RowBytes: x.rowBytes(x.set), Send: send, Recv: recv,
		Produce: x.produce, Local: x.local, Consume: x.consume, Ahead: ahead,
	}
	return m.Move(rel.Rank, rel.Parts)
}

// column is that of boundary row first of round r.
func column(rel *graph.Relation, r, first int) int32 { return rel.Halo[r].Begin + int32(first) }

// operands calls f for the operands in set, with where they begin in a row that has them side by side: of their
// elements, or of their bytes.
func (x program[T]) operands(set uint32, bytes bool, f func(i, offset int)) {
	offset := 0
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(set)
		f(i, offset)
		if bytes {
			offset += x.rowBytes(1 << i)
		} else {
			offset += x.Program.Operands[i].Width
		}
	}
}

// gather puts rows idx of the operands in set side by side, as they are stored.
func (x program[T]) gather(set uint32, dst []byte, idx []int32) {
	stride := x.rowBytes(set)
	x.operands(set, true, func(i, offset int) {
		data, w := x.Bytes(i)
		kernel.CopyRows(x.Pool, len(idx), kernel.RowsAt(dst, offset, stride, w), kernel.RowsOf(data, w, idx))
	})
}

// bind makes a sweep read operands from such rows, the first of which is that of column base.
func (x program[T]) bind(s *expr.Sweep[T], set uint32, src []byte, base int32) {
	stride := x.rowBytes(set)
	x.operands(set, true, func(i, offset int) { s.Source(i, src, offset, stride, base) })
}

// pullBackward computes the part of b that readers of sources compute. Own rows' part of the
// gradients of sources is added to what the peers send in the order p+1, p+2, …. Wire, per
// boundary row: the widths of the operands that the plan fetches, and of those it returns.
func (x program[T]) pullBackward(op *comm.Op, plan *expr.GradientPlan, push *PushPlan, c Covering,
	b *expr.Backward[T]) error {
	switch rel := x.Rel; {
	case rel.Parts == 1:
		return x.computeAlone(plan, b)
	case plan.Fetch|plan.Return == 0:
		computeOwn(b, rel)
		return nil
	case plan.Fetch == 0:
		return x.returnGradients(op, plan, c, b)
	default:
		return x.fetchAgain(op, plan, push, b)
	}
}

// computeAlone computes all gradients where there are no peers. Those that HalfGrads take are summed and rounded group
// by group.
func (x program[T]) computeAlone(plan *expr.GradientPlan, b *expr.Backward[T]) error {
	rounded := uint32(0)
	for i := range x.Program.Operands {
		if x.HalfGradOf(i) != nil {
			rounded |= plan.Operands & (1 << i)
		}
	}
	if rounded == 0 {
		computeOwn(b, x.Rel)
		return nil
	}
	o, err := newOwnColumns(x, b.Own, rounded)
	if err != nil {
		return err
	}
	defer o.sums.Free()
	o.take = o.round
	for group := range o.groups {
		o.part(group)
	}
	computeByRows(b, x.Rel)
	return nil
}

// computeOwn computes what needs no peer: gradients of own rows, and all that is summed by rows.
func computeOwn[T expr.Float](b *expr.Backward[T], rel *graph.Relation) {
	if b.Own != nil {
		b.Own.Columns(0, rel.NumSrc)
	}
	computeByRows(b, rel)
}

func computeByRows[T expr.Float](b *expr.Backward[T], rel *graph.Relation) {
	if b.Target != nil {
		b.Target.Rows(nil, 0, int32(rel.NumCols()))
	}
}

// returnGradients computes the gradients of boundary rows, for which nothing has to be
// fetched, into the send buffers.
func (x program[T]) returnGradients(op *comm.Op, plan *expr.GradientPlan, c Covering, b *expr.Backward[T]) error {
	rel := x.Rel
	m := &Movement{
		Op: op, ToOwner: true, RowBytes: plan.ReturnBytes,
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
	if m.Recv, m.Send = c.rows(rel); c.Cover != nil {
		m.Ahead = x.pickedAhead(c, plan, b)
	}
	_, err := m.Move(rel.Rank, rel.Parts)
	return err
}

// boundary computes the gradients of the operands in set for n columns from begin on.
func (x program[T]) boundary(s *expr.Sweep[T], set uint32, dst []T, begin int32, n int) {
	clear(dst)
	stride := x.Program.RowWidth(set)
	x.operands(set, false, func(i, offset int) { s.Target(i, dst, offset, stride, begin) })
	s.Columns(int(begin), int(begin)+n)
}

// addReturned adds what a peer has computed for own rows.
func (x program[T]) addReturned(set uint32, src []T, idx []int32) {
	stride := x.Program.RowWidth(set)
	x.operands(set, false, func(i, offset int) {
		w := x.Program.Operands[i].Width
		kernel.AddRows(x.Pool, len(idx), kernel.RowsOf(x.Grads[i], w, idx), kernel.RowsAt(src, offset, stride, w))
	})
}

// fetchAgain fetches boundary rows once more, and returns their gradients in the
// same movement where there are any.
func (x program[T]) fetchAgain(op *comm.Op, plan *expr.GradientPlan, push *PushPlan, b *expr.Backward[T]) error {
	rel := x.Rel
	rows := &reader[T]{program: x, set: plan.Fetch, sweep: b.Target}
	defer rows.free()
	send, recv := push.rows(rel)
	if plan.Return == 0 {
		_, err := rows.move(op, 0, send, recv, nil)
		return err
	}
	rows.scatter = sparseChunks(rel, op, x.rowBytes(plan.Fetch))
	add := func(src []T, idx []int32) { x.addReturned(plan.Return, src, idx) }
	m := &RoundTrip{
		Op: op, RowBytes: plan.FetchBytes, ReplyBytes: plan.ReturnBytes, Send: send, Recv: recv,
		Produce: rows.produce, Local: rows.local,
		Compute: func(r, first, n int, src, reply []byte) error {
			begin := column(rel, r, first)
			x.bind(b.Peers, plan.Fetch, src, begin)
			x.boundary(b.Peers, plan.Return, view.Numbers[T](reply), begin, n)
			return rows.consume(r, first, n, src)
		},
		Take: func(r, first, n int, src []byte) error {
			add(view.Numbers[T](src), rel.Send[r].Data[first:first+n])
			return nil
		},
	}
	if push != nil { // own columns have been computed
		_, err := m.Move(rel.Rank, rel.Parts)
		return err
	}
	concurrent, err := b.Concurrent()
	if err != nil {
		return err
	}
	if concurrent {
		o, err := newOwnColumns(x, b.Own, plan.Return)
		if err != nil {
			return err
		}
		defer o.sums.Free()
		add, m.Own = o.add, Parts{N: o.groups, Run: o.part, Needs: o.needs}
	} else if b.Own != nil {
		m.Local = func() error {
			b.Own.Columns(0, rel.NumSrc)
			return rows.local()
		}
	}
	_, err = m.Move(rel.Rank, rel.Parts)
	return err
}
