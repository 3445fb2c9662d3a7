package expr

import (
	"sar/core/internal/ascending"
	"sar/core/kernel"
)

// How edges are put into blocks. What is added up for a row is added in the order
// of its columns, and for a column in the order of its rows, however the blocks
// are cut.

const (
	// partWork is the elements that one task computes, and edgeCost what an edge costs
	// beside them.
	partWork, edgeCost = 1 << 19, 24
	// maxParts is the most tasks of a sweep that adds up gradients of parameters,
	// since each has sums of its own.
	maxParts = 256
	stripes  = 16
)

// share is the edges of a part.
func (s *Sweep[T]) share() int64 { return max(256, int64(partWork/(edgeCost+s.work))) }

// each runs f for every part on a task of its own, and adds the parts' sums of
// gradients of parameters in order.
func (s *Sweep[T]) each(parts int, f func(t *task[T], part int)) {
	s.fillNarrow()
	sums := make([][][]float64, parts)
	queue := newBatchQueue(s)
	s.pool().Run(parts, func(part int) {
		t := s.tasks.Get().(*task[T])
		t.m, t.fixedDone = 0, false
		if queue != nil {
			defer queue.guard()()
			t.part, t.queue, t.batch = part, queue, queue.take()
		}
		if s.params {
			t.sums = make([][]float64, len(s.sinks))
			for n, k := range s.sinks {
				if k.kind == sinkParam {
					t.sums[n] = make([]float64, s.nodes[k.reg].width)
				}
			}
		}
		f(t, part)
		t.flush()
		t.own = nil
		if queue != nil {
			queue.deliver(part, t.batch)
			t.queue, t.batch = nil, nil
		}
		sums[part], t.sums = t.sums, nil
		s.tasks.Put(t)
	})
	if !s.params {
		return
	}
	for _, part := range sums {
		for n, sum := range part {
			if sum != nil && s.paramSums[n] == nil {
				s.paramSums[n] = make([]float64, len(sum))
			}
			for j, v := range sum {
				s.paramSums[n][j] += v
			}
		}
	}
}

// Rows sweeps over own rows, and of each over the edges whose columns are from begin on and below end.
// cursor is where sweeps before have come to, at most to begin. nil: all edges of all rows.
func (s *Sweep[T]) Rows(cursor *kernel.Cursor, begin, end int32) {
	rel := s.run.Rel
	ptr, col := rel.RowPtr.Data, rel.Col.Data
	before, order := ptr, rel.Order.Data
	if len(order) > 0 && int(end) <= rel.NumSrc || len(order) > 0 && cursor == nil {
		before = rel.RowsBefore.Data
	} else {
		order = nil
	}
	window, skips := false, false // few columns of many, some before them that nobody sweeps over
	if cursor != nil {
		window, skips = begin > 0, begin > cursor.Seen
		s.thin = max(1, int64(ptr[rel.NumDst])/max(1, int64(rel.ColPtr.Data[end]-rel.ColPtr.Data[begin])))
		defer func() { s.thin = 0 }()
		cursor.Seen = end
	}
	s.over(before, 0, rel.NumDst, false, func(i int) (int32, int64, int64) {
		if order != nil {
			i = int(order[i])
		}
		k0, k1 := int64(ptr[i]), int64(ptr[i+1])
		if cursor != nil {
			k0 = cursor.Slot[i]
			if window && cursor.Passes(int32(i), end) {
				return int32(i), k0, k0
			}
			last := k1
			if skips {
				k0 = ascending.RunEnd(col, k0, last, begin)
			}
			k1 = ascending.RunEnd(col, k0, last, end)
			cursor.Move(int32(i), col, k1, last)
		}
		return int32(i), k0, k1
	})
}

// Columns sweeps over the edges out of columns [from, to).
func (s *Sweep[T]) Columns(from, to int) {
	rel := s.run.Rel
	ptr := rel.ColPtr.Data
	before, order := ptr, rel.Order.Data
	if len(order) > 0 && from == 0 && to == rel.NumSrc && len(rel.ColsBefore.Data) > 0 {
		before = rel.ColsBefore.Data
	} else {
		order = nil
	}
	s.over(before, from, to, true, func(j int) (int32, int64, int64) {
		if order != nil {
			j = int(order[j])
		}
		return int32(j), int64(ptr[j]), int64(ptr[j+1])
	})
}

// ColumnsOf sweeps over the edges out of the columns listed, in that order.
func (s *Sweep[T]) ColumnsOf(list []int32) {
	ptr := s.run.Rel.ColPtr.Data
	before := make([]int32, len(list)+1)
	for i, j := range list {
		before[i+1] = before[i] + ptr[j+1] - ptr[j]
	}
	s.over(before, 0, len(list), true, func(at int) (int32, int64, int64) {
		j := list[at]
		return j, int64(ptr[j]), int64(ptr[j+1])
	})
}

// Scatter sweeps over the edges out of columns [from, to) for what is added up for
// rows, where most rows have none. Tasks divide the rows.
func (s *Sweep[T]) Scatter(from, to int) {
	rel := s.run.Rel
	ptr, row := rel.ColPtr.Data, rel.Row.Data
	n := 1
	if ptr[to]-ptr[from] >= stripes*minEdges {
		n = stripes
	}
	s.each(n, func(t *task[T], part int) {
		r0, r1 := int32(rel.NumDst*part/n), int32(rel.NumDst*(part+1)/n)
		for j := from; j < to; j++ {
			k0, k1 := int64(ptr[j]), int64(ptr[j+1])
			if n > 1 {
				k0 = ascending.RunEnd(row, k0, k1, r0)
				k1 = ascending.RunEnd(row, k0, k1, r1)
			}
			t.edges(int32(j), k0, k1, true)
		}
	})
}

// edges puts edges [k0, k1) of row i, or out of column i, into blocks.
func (t *task[T]) edges(i int32, k0, k1 int64, byColumn bool) {
	rel, same, other := t.s.run.Rel, t.rows, t.cols
	ends, numbers := rel.Col.Data, rel.RowEdge.Data
	if byColumn {
		same, other, ends, numbers = t.cols, t.rows, rel.Row.Data, rel.ColEdge.Data
	}
	t.byColumn = byColumn
	for k0 < k1 {
		n := min(int(k1-k0), t.s.capacity-t.m)
		if o := t.s.outgoing; o != nil && byColumn {
			o.Rows(other[t.m:t.m+n], k0, t.s.firstRow)
		} else {
			copy(other[t.m:], ends[k0:int(k0)+n])
		}
		fillWith(same[t.m:t.m+n], i)
		if t.s.run.slots {
			for k := range n {
				t.edge[t.m+k] = int32(k0) + int32(k)
			}
		} else if t.s.readsEdges {
			copy(t.edge[t.m:], numbers[k0:int(k0)+n])
		}
		t.m += n
		k0 += int64(n)
		if t.m == t.s.capacity {
			t.flush()
		}
	}
}
