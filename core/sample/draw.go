package sample

import "sar/core/graph"

// wireID is the type of positions of nodes and of edges on the wire: 4 bytes,
// and 8 where a type has more nodes than those can tell apart.
type wireID interface{ uint32 | int64 }

// drawing is the work of one task.
type drawing struct {
	rel     *graph.Relation
	replace bool
	key     uint64
	fanout  int
	weights []float32 // of the slots; nil: all alike
	dstID   int64     // id of own destination row 0
	first   int64     // position of own source row 0
	halo    []int64   // positions of the columns that are not own
	picker  picker
	slots   []int32 // of the row, that were picked
	touched int32
}

// drawing prepares draws of relation i in a layer of a batch.
func (s *Sampler) drawing(layer, i int, batch uint64) drawing {
	rel := s.g.Rels[i]
	src := s.g.Types[rel.SrcType]
	d := drawing{
		rel: rel, replace: s.cfg.Replace, key: LayerKey(batch, layer, i), fanout: s.cfg.Fanouts[layer][i],
		dstID: s.g.Types[rel.DstType][s.g.Rank], first: src[s.g.Rank] - src[0], halo: s.g.halo[i].Data,
	}
	if s.cfg.Weights != nil {
		d.weights = s.weights[i].slot.Data
	}
	return d
}

// drawOwn draws the edges of relation i for this rank's own rows to where they
// stay: those of row k to places [ptr[p], ptr[p+1]) with p = place[k]. Sources
// are positions. In parallel.
func (s *Sampler) drawOwn(layer, i int, b *Batch, out *Edges) {
	rows, place := s.ask[s.g.Rank].rows[s.g.Rels[i].DstType], s.ask[s.g.Rank].at[s.g.Rels[i].DstType]
	if s.cfg.Fanouts[layer][i] == 0 {
		return
	}
	all, edge := s.drawing(layer, i, b.Key), s.g.Edges[i][s.g.Rank]
	s.tasks(len(rows), func(lo, hi int) {
		d := all
		for ; lo < hi; lo += ahead {
			now := rows[lo:min(lo+ahead, hi)]
			d.touch(now, out.IDs != nil)
			for k, row := range now {
				p := place[lo+k]
				from, to := out.Indptr[p], out.Indptr[p+1]
				if from == to {
					continue
				}
				begin := int64(d.rel.RowPtr.Data[row])
				d.pick(row, begin, int(to-from))
				sources(&d, begin, d.slots, out.Indices[from:to])
				if out.IDs != nil {
					edges(&d, begin, d.slots, edge, out.IDs[from:to])
				}
			}
		}
	})
}

// drawFor draws edges of what rank q asked for, from the first-th on, as many as src
// holds, and which own edges they are into id, which is nil where nobody wants to know. A
// row that begins before or ends after the range is drawn again for the next
// one. In parallel.
func drawFor[T wireID](s *Sampler, layer, q, first int, src, id []T) {
	a, n := &s.serve[q], len(src)
	for i, rel := range s.g.Rels {
		lo, hi := a.edges(i)
		lo, hi = max(lo, first), min(hi, first+n)
		if lo >= hi {
			continue
		}
		from, to := a.entries(i)
		at, rows := a.at[from:to+1], s.asked[q].rows[rel.DstType]
		named, kept := id != nil && s.withEdges(i), s.cfg.hasData(i)
		begin, end := after(at, int64(lo)), after(at, int64(hi-1))+1
		all := s.drawing(layer, i, s.asked[q].key)
		s.tasks(end-begin, func(r0, r1 int) {
			d := all
			for r := begin + r0; r < begin+r1; r += ahead {
				now := rows[r:min(r+ahead, begin+r1)]
				d.touch(now, named)
				for k, row := range now {
					from, to := int(at[r+k]), int(at[r+k+1])
					if from == to {
						continue
					}
					slot := int64(d.rel.RowPtr.Data[row])
					d.pick(row, slot, to-from)
					slots := d.slots
					if from < lo || to > hi {
						slots = slots[max(0, lo-from) : len(slots)-max(0, to-hi)]
					}
					from, to = max(from, lo), min(to, hi)
					sources(&d, slot, slots, src[from-first:to-first])
					if named {
						edges(&d, slot, slots, 0, id[from-first:to-first])
					}
					if kept {
						edges(&d, slot, slots, 0, a.id[from:to])
					}
				}
			}
		})
	}
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
		begin, end := int64(ptr[row]), int64(ptr[row+1])
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
	have := int(int64(d.rel.RowPtr.Data[row+1]) - begin)
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

// sources writes the positions of the nodes that slots of a row read. Without
// branches: own columns and others are mixed.
func sources[T wireID](d *drawing, begin int64, slots []int32, out []T) {
	col, numSrc := d.rel.Col.Data[begin:], int32(d.rel.NumSrc)
	out = out[:len(slots)]
	if len(d.halo) == 0 {
		for i, slot := range slots {
			out[i] = T(d.first + int64(col[slot]))
		}
		return
	}
	for i, slot := range slots {
		c := col[slot]
		own := c - numSrc                     // negative: an own column
		far := d.halo[uint32(own&^(own>>31))] // entry 0 for own ones
		near := d.first + int64(c)
		out[i] = T(far ^ (far^near)&int64(own>>31))
	}
}

// edges writes the edges of slots, counted from first.
func edges[T wireID | int32](d *drawing, begin int64, slots []int32, first int64, out []T) {
	order := d.rel.RowEdge.Data[begin:]
	out = out[:len(slots)]
	for i, slot := range slots {
		out[i] = T(first + int64(order[slot]))
	}
}
