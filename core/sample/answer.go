package sample

import (
	"sar/core/graph"
)

// answer is edges drawn for the rows of a request: relation by relation, in
// each the rows of its destination type in the order of the request.
type answer struct {
	counts []uint32 // edges per (relation, row)
	first  []int    // [relation]: its first entry in counts; one more at the end
	at     []int    // edges before each entry of counts, and the sum
	edges  []edge
}

// edge is what travels of a drawn edge: 16 bytes, or the first 8 where nobody
// wants edges named.
type edge struct {
	src int64
	id  int64
}

// layout counts the rows of every relation. Relations of types that are not
// asked for have none.
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
	n := 0
	for i, c := range a.counts {
		a.at[i] = n
		n += int(c)
	}
	a.at[len(a.counts)] = n
	a.edges = resize(a.edges, n)
}

func resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n, n+n/4)
	}
	return x[:n]
}

// rowsPerTask bounds what one thread takes at a time.
const rowsPerTask = 2048

// count fills a.counts for the rows of a request.
func (s *Sampler) count(layer int, rows [][]int32, a *answer) {
	s.layout(a, rows)
	for i, rel := range s.g.Rels {
		counts := a.counts[a.first[i]:a.first[i+1]]
		for k, row := range rows[rel.DstType] {
			counts[k] = uint32(s.countRow(layer, i, rel, row))
		}
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

// draw fills a.edges, whose counts are there. In parallel.
func (s *Sampler) draw(layer int, ask *request, a *answer) {
	for i, rel := range s.g.Rels {
		rows := ask.rows[rel.DstType]
		if len(rows) == 0 || s.cfg.Fanouts[layer][i] == 0 {
			continue
		}
		key, at := LayerKey(ask.key, layer, i), a.at[a.first[i]:]
		tasks := (len(rows) + rowsPerTask - 1) / rowsPerTask
		s.pool.Run(tasks, func(task int) {
			lo, hi := task*rowsPerTask, min((task+1)*rowsPerTask, len(rows))
			d := drawing{s: s, rel: rel, index: i, key: key, fanout: s.cfg.Fanouts[layer][i], own: s.g.Types[rel.SrcType][s.g.Rank]}
			d.dst = s.g.Types[rel.DstType][s.g.Rank]
			for k := lo; k < hi; k++ {
				d.row(rows[k], a.edges[at[k]:at[k+1]])
			}
		})
	}
}

// drawing is the work of one task.
type drawing struct {
	s      *Sampler
	rel    *graph.Relation
	index  int
	key    uint64
	fanout int
	own    int64 // id of own source row 0
	dst    int64 // id of own destination row 0
	picker picker
	slots  []int32
}

// row draws len(out) in-edges of an own row.
func (d *drawing) row(row int32, out []edge) {
	begin := d.rel.RowPtr.Data[row]
	n := int(d.rel.RowPtr.Data[row+1] - begin)
	if len(out) == 0 {
		return
	}
	d.slots = resize(d.slots, len(out))
	every := d.fanout == All || !d.s.cfg.Replace && len(out) < d.fanout
	stream := newStream(d.key, d.dst+int64(row))
	if d.s.cfg.Weights != nil {
		w := d.s.weights[d.index].slot.Data[begin : begin+int64(n)]
		switch {
		case every:
			positive(w, d.slots)
		case d.s.cfg.Replace:
			d.picker.weightedRepeated(&stream, w, d.slots)
		default:
			d.picker.weighted(&stream, w, d.slots)
		}
	} else {
		switch {
		case every || len(out) == n && !d.s.cfg.Replace:
			for i := range d.slots {
				d.slots[i] = int32(i)
			}
		case d.s.cfg.Replace:
			d.picker.repeated(&stream, n, d.slots)
		default:
			d.picker.uniform(&stream, n, d.slots)
		}
	}
	col, numSrc, halo := d.rel.Col.Data[begin:], int32(d.rel.NumSrc), d.s.g.halo[d.index].Data
	for i, slot := range d.slots {
		if c := col[slot]; c < numSrc {
			out[i].src = d.own + int64(c)
		} else {
			out[i].src = halo[c-numSrc]
		}
	}
	if d.s.withEdges(d.index) {
		first, order := d.s.g.Edges[d.index][d.s.g.Rank], d.rel.RowEdge.Data[begin:]
		for i, slot := range d.slots {
			out[i].id = first + int64(order[slot])
		}
	}
}
