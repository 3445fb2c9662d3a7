package graph

import (
	"cmp"
	"fmt"

	"sar/core/mem"
)

// EdgeOrder makes RowEdge and ColEdge, unless they are there, by reading the
// source again. Where several edges join the same two nodes, their slots take
// their positions in the order of the source, the same in RowEdge and ColEdge.
// The relation then lets go of the source.
//
// Two passes over the source; 8 bytes an edge stay, 4 more are taken meanwhile.
// A relation built with KeepOrder derives them from what it kept.
func (r *Structure) EdgeOrder() error {
	if err := r.deriveOrder(); err != nil || r.ordered {
		return err
	}
	from := r.origin
	if from == nil {
		return fmt.Errorf("edge order of %s: the relation has no source of edges; was it freed?", r.Type)
	}
	loc, err := newLocals(from.book, from.rank, from.source)
	if err != nil {
		return err
	}
	defer loc.free()
	return edgeOrder(loc, from, []*Structure{r})
}

// orderer is the making of the edge order of one relation.
type orderer struct {
	rows mem.Array[int32] // row of every slot, columns in the order of the source
	ids  *idSet           // nil where the source gives ids in ascending order
	seen int32
	last int64
}

func edgeOrder(loc *locals, from *origin, rels []*Structure) (err error) {
	s, err := newScan(loc, from.source, rels)
	if err != nil {
		return err
	}
	defer s.free()
	work := make([]orderer, len(rels))
	defer func() {
		for i := range work {
			work[i].rows.Free()
			work[i].ids.free()
			if err != nil {
				rels[i].RowEdge.Free()
				rels[i].ColEdge.Free()
			}
		}
	}()
	for i, r := range rels {
		if r.NumEdges > 0 && r.ids.descends {
			if work[i].ids, err = newIDSet(r.ids.min, r.ids.max+1, r.NumEdges); err != nil {
				return err
			}
		}
	}
	if err := s.again(func(b *block) error { return s.survey(b, work) }); err != nil {
		return err
	}
	for i, r := range rels {
		if work[i].ids != nil {
			if err := work[i].ids.seal(); err != nil {
				return fmt.Errorf("edges of type %s of partition %d: %w", r.Type, loc.rank, err)
			}
		}
		s.tally[i].start()
		edges := int(r.NumEdges)
		if err := cmp.Or(work[i].rows.Make(mem.Scratch, edges), r.ColEdge.Make(mem.Structure, edges)); err != nil {
			return err
		}
	}
	if err := s.again(func(b *block) error { return s.placeEdges(b, work) }); err != nil {
		return err
	}
	for i, r := range rels {
		if r.RowEdge, err = mem.Make[int32](mem.Structure, int(r.NumEdges)); err != nil {
			return err
		}
		csc := compressed{ptr: r.ColPtr.Data, idx: work[i].rows.Data, val: r.ColEdge.Data}
		csr := compressed{ptr: r.RowPtr.Data, val: r.RowEdge.Data}
		if err := transpose(csc, csr, from.threads); err != nil {
			return err
		}
		work[i].rows.Free()
		csr.idx, csc.idx = r.Col.Data, nil
		if err := transpose(csr, csc, from.threads); err != nil {
			return err
		}
	}
	for _, r := range rels {
		r.ordered, r.origin = true, nil
		r.moved.Free()
	}
	return nil
}

// survey counts a block and collects the ids that are not in ascending order.
func (s *scan) survey(b *block, work []orderer) error {
	if err := s.count(b, false); err != nil {
		return err
	}
	for i := 0; i < b.n; i++ {
		w, t := &work[b.rel[i]], &s.tally[b.rel[i]]
		if t.edges > t.r.NumEdges {
			return s.changed(t)
		}
		if w.ids == nil {
			continue
		}
		if b.id[i] < w.ids.lo || b.id[i] >= w.ids.hi {
			return s.changed(t)
		}
		if !w.ids.add(b.id[i]) {
			return fmt.Errorf("edges of type %s of partition %d: id %d %w", t.r.Type, s.loc.rank, b.id[i], ErrTwice)
		}
	}
	return nil
}

// placeEdges puts rows and positions of a block into their columns.
func (s *scan) placeEdges(b *block, work []orderer) error {
	for i := 0; i < b.n; i++ {
		t, w, id := &s.tally[b.rel[i]], &work[b.rel[i]], b.id[i]
		k := t.next.Data[b.col[i]]
		if int(k) >= len(w.rows.Data) {
			return s.changed(t)
		}
		position := w.seen
		if w.ids == nil {
			if w.seen > 0 && id <= w.last {
				return s.changed(t)
			}
			w.last = id
			w.seen++
		} else {
			if id < w.ids.lo || id >= w.ids.hi {
				return s.changed(t)
			}
			position = int32(w.ids.rank(id))
		}
		t.next.Data[b.col[i]] = k + 1
		w.rows.Data[k] = b.row[i]
		t.r.ColEdge.Data[k] = position
		t.edges++
		t.digest += mix(b.col[i], b.row[i], id)
	}
	return nil
}
