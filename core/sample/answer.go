package sample

import (
	"sar/core/graph"
)

// answer is edges drawn for the rows of a request: relation by relation, in
// each the rows of its destination type in the order of the request.
type answer struct {
	counts []uint32 // edges per (relation, row)
	first  []int    // [relation]: its first entry in counts; one more at the end
	at     []int64  // edges before each entry of counts, and the sum

	// The edges, where they wait for their way to another rank. Those of this
	// rank are drawn to where they stay.
	src, id []int64
}

// entries are the places in counts of relation i; at has one more.
func (a *answer) entries(i int) (from, to int) { return a.first[i], a.first[i+1] }

// edges is the range of edges of relation i.
func (a *answer) edges(i int) (from, to int) {
	return int(a.at[a.first[i]]), int(a.at[a.first[i+1]])
}

// total is the number of edges.
func (a *answer) total() int { return int(a.at[len(a.counts)]) }

// layout counts the rows of every relation.
func (s *Sampler) layout(a *answer, rows [][]int32) {
	a.first = append(a.first[:0], 0)
	for _, rel := range s.g.Rels {
		a.first = append(a.first, a.first[len(a.first)-1]+len(rows[rel.DstType]))
	}
	a.counts = resize(a.counts, a.first[len(a.first)-1])
}

// sum fills at from counts.
func (a *answer) sum() {
	a.at = resize(a.at, len(a.counts)+1)
	var n int64
	for i, c := range a.counts {
		a.at[i] = n
		n += int64(c)
	}
	a.at[len(a.counts)] = n
}

func resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n, n+n/4)
	}
	return x[:n]
}

// count fills counts and at for the rows of a request.
func (s *Sampler) count(layer int, rows [][]int32, a *answer) {
	s.layout(a, rows)
	for i, rel := range s.g.Rels {
		from, to := a.entries(i)
		counts, rows := a.counts[from:to], rows[rel.DstType]
		s.tasks(len(rows), func(lo, hi int) {
			for k, row := range rows[lo:hi] {
				counts[lo+k] = uint32(s.countRow(layer, i, rel, row))
			}
		})
	}
	a.sum()
}

func (s *Sampler) countRow(layer, i int, rel *graph.Relation, row int32) int {
	have := int(rel.RowPtr.Data[row+1] - rel.RowPtr.Data[row])
	if s.cfg.Weights != nil {
		have = int(s.weights[i].positive.Data[row])
	}
	fanout := s.cfg.Fanouts[layer][i]
	if have == 0 || fanout == All || fanout >= have && !s.cfg.Replace {
		return have
	}
	return fanout
}

// tasks splits n rows among threads.
func (s *Sampler) tasks(n int, f func(lo, hi int)) {
	const rows = 2048 // that one thread takes at a time
	s.pool.Run((n+rows-1)/rows, func(task int) { f(task*rows, min((task+1)*rows, n)) })
}

// draw draws edges of relation i for rows. Row k's go to places
// [ptr[p], ptr[p+1]) of src and id, where p is place[k], or k where there are no
// places. id is nil where nobody wants edges named. In parallel.
func (s *Sampler) draw(layer, i int, batch uint64, rows []int32, ptr []int64, place []int32, src, id []int64) {
	if len(rows) == 0 || s.cfg.Fanouts[layer][i] == 0 {
		return
	}
	rel := s.g.Rels[i]
	all := drawing{
		rel: rel, replace: s.cfg.Replace, key: LayerKey(batch, layer, i), fanout: s.cfg.Fanouts[layer][i],
		srcID: s.g.Types[rel.SrcType][s.g.Rank], dstID: s.g.Types[rel.DstType][s.g.Rank],
		edgeID: s.g.Edges[i][s.g.Rank], halo: s.g.halo[i].Data,
	}
	if s.cfg.Weights != nil {
		all.weights = s.weights[i].slot.Data
	}
	s.tasks(len(rows), func(lo, hi int) {
		d := all
		for ; lo < hi; lo += ahead {
			now := rows[lo:min(lo+ahead, hi)]
			d.touch(now, id != nil)
			for k, row := range now {
				p := lo + k
				if place != nil {
					p = int(place[p])
				}
				from, to := ptr[p], ptr[p+1]
				if from == to {
					continue
				}
				begin := rel.RowPtr.Data[row]
				d.pick(row, begin, int(to-from))
				d.sources(begin, src[from:to])
				if id != nil {
					d.ids(begin, id[from:to])
				}
			}
		}
	})
}

// drawing is the work of one task.
type drawing struct {
	rel     *graph.Relation
	replace bool
	key     uint64
	fanout  int
	weights []float32 // of the slots; nil: all alike
	srcID   int64     // of own source row 0
	dstID   int64     // of own destination row 0
	edgeID  int64     // of own edge 0
	halo    []int64
	picker  picker
	slots   []int32 // of the row, that were picked
	touched int32
}

// Rows lie far apart in memory, and one is too short for the processor to look
// past the next. So the lines of several rows are asked for together.
const (
	ahead    = 32 // rows
	perLine  = 16 // columns in a cache line
	touchMax = 8 * perLine
)

func (d *drawing) touch(rows []int32, ids bool) {
	ptr, col, order := d.rel.RowPtr.Data, d.rel.Col.Data, d.rel.RowEdge.Data
	sum := d.touched
	for _, row := range rows {
		sum += int32(ptr[row])
	}
	for _, row := range rows {
		begin, end := ptr[row], ptr[row+1]
		for k := begin; k < min(end, begin+touchMax); k += perLine {
			sum += col[k]
			if ids {
				sum += order[k]
			}
		}
	}
	d.touched = sum
}

// pick puts n slots of a row into d.slots.
func (d *drawing) pick(row int32, begin int64, n int) {
	have := int(d.rel.RowPtr.Data[row+1] - begin)
	d.slots = resize(d.slots, n)
	every := d.fanout == All || !d.replace && n < d.fanout
	stream := newStream(d.key, d.dstID+int64(row))
	if d.weights != nil {
		w := d.weights[begin : begin+int64(have)]
		switch {
		case every:
			positive(w, d.slots)
		case d.replace:
			d.picker.weightedRepeated(&stream, w, d.slots)
		default:
			d.picker.weighted(&stream, w, d.slots)
		}
		return
	}
	switch {
	case every || n == have && !d.replace:
		for i := range d.slots {
			d.slots[i] = int32(i)
		}
	case d.replace:
		d.picker.repeated(&stream, have, d.slots)
	default:
		d.picker.uniform(&stream, have, d.slots)
	}
}

// sources writes the ids of the nodes that the picked slots read.
func (d *drawing) sources(begin int64, out []int64) {
	col, numSrc := d.rel.Col.Data[begin:], int32(d.rel.NumSrc)
	for i, slot := range d.slots[:len(out)] {
		if c := col[slot]; c < numSrc {
			out[i] = d.srcID + int64(c)
		} else {
			out[i] = d.halo[c-numSrc]
		}
	}
}

// ids writes the ids of the edges.
func (d *drawing) ids(begin int64, out []int64) {
	order := d.rel.RowEdge.Data[begin:]
	for i, slot := range d.slots[:len(out)] {
		out[i] = d.edgeID + int64(order[slot])
	}
}
