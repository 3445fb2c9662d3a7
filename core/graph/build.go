package graph

import (
	"fmt"

	"sar/core/mem"
)

// BuildOptions are choices of Build.
type BuildOptions struct {
	// EdgeOrder makes RowEdge and ColEdge at once. The relations then do not
	// refer to the source any more.
	EdgeOrder bool
	// KeepOrder does so too, and keeps of both what they can be derived from
	// when EdgeOrder is called: 4 bytes an edge, none where edges came sorted.
	KeepOrder bool
	Threads   int // at least 1 are used
}

// Build makes the relations of worker rank, in the order of book.EdgeTypes,
// from two passes over src (four with EdgeOrder). The result depends neither
// on the order in which src gives the edges nor on the number of threads.
//
//	pass 1: in-edges per row and per column; which halo nodes a relation reads
//	pass 2: rows of each column, in the order of src
//	which boundary rows travel, and which arrive in sums: columns of each peer are arranged by that
//	transpose into CSR (columns ascend), transpose back into CSC (rows ascend)
//	order rows for locality
//
// The passes fill the arrays in place. Beside the structure (8 bytes an edge,
// 4 a row and a column, 12 a row that has an order) building takes 4 bytes per local node, 4 per relation
// and local node of its source type, and cursors of at most 4 bytes an edge.
//
// src belongs to the caller and must stay usable until the relations are freed
// or have their edge order.
func Build(book *Book, rank int, src EdgeSource, opts BuildOptions) (rels []*Structure, err error) {
	loc, err := newLocals(book, rank, src)
	if err != nil {
		return nil, err
	}
	defer loc.free()
	defer func() {
		if err != nil {
			for _, r := range rels {
				r.Free()
			}
			rels = nil
		}
	}()
	from := &origin{book, rank, src, max(1, opts.Threads)}
	for i := range book.EdgeTypes {
		r, err := newStructure(from, i)
		if r != nil {
			rels = append(rels, r)
		}
		if err != nil {
			return rels, err
		}
	}
	if err := fill(loc, from, rels); err != nil {
		return rels, err
	}
	if opts.EdgeOrder || opts.KeepOrder {
		if err := edgeOrder(loc, from, rels); err != nil {
			return rels, err
		}
	}
	if opts.KeepOrder {
		for _, r := range rels {
			r.keepOrder(from.threads)
		}
	}
	return rels, nil
}

func newStructure(from *origin, index int) (*Structure, error) {
	r := &Structure{origin: from}
	if err := r.place(from.book, from.rank, index); err != nil {
		return nil, err
	}
	return r, r.RowPtr.Make(mem.Structure, r.NumDst+1)
}

// place makes r, yet without edges, relation index of worker rank.
func (r *Structure) place(book *Book, rank, index int) (err error) {
	r.Type, r.Rank, r.Parts, r.index = book.EdgeTypes[index], rank, book.Parts, index
	if r.SrcType, err = book.NodeType(r.Type.Src); err == nil {
		r.DstType, err = book.NodeType(r.Type.Dst)
	}
	if err != nil {
		return fmt.Errorf("edge type %s: %w", r.Type, err)
	}
	r.NumSrc, r.NumDst = int(book.NumNodes(r.SrcType, rank)), int(book.NumNodes(r.DstType, rank))
	return nil
}

func fill(loc *locals, from *origin, rels []*Structure) error {
	s, err := newScan(loc, from.source, rels)
	if err != nil {
		return err
	}
	defer s.free()
	if err := s.each(func(b *block) error { return s.count(b, true) }); err != nil {
		return err
	}
	for i := range s.tally {
		t := &s.tally[i]
		t.r.NumEdges, t.r.ids, t.r.digest = t.edges, t.ids, t.digest
		for row := 0; row < t.r.NumDst; row++ {
			t.r.RowPtr.Data[row+1] += t.r.RowPtr.Data[row]
		}
		if err := t.columns(loc); err != nil {
			return err
		}
		t.start()
	}
	if err := s.again(s.placeRows); err != nil {
		return err
	}
	for _, r := range rels {
		if err := r.cover(from.threads); err != nil {
			return err
		}
		if r.Col, err = mem.Make[int32](mem.Structure, int(r.NumEdges)); err != nil {
			return err
		}
		csr, csc := compressed{ptr: r.RowPtr.Data, idx: r.Col.Data}, compressed{ptr: r.ColPtr.Data, idx: r.Row.Data}
		if err := transpose(csc, csr, from.threads); err != nil {
			return err
		}
		if err := transpose(csr, csc, from.threads); err != nil {
			return err
		}
		if err := r.makeOrder(); err != nil {
			return err
		}
	}
	return nil
}

// columns numbers the columns of a relation: makes ColPtr, Halo and Row (yet
// without content) from the counts per place.
func (t *tally) columns(loc *locals) (err error) {
	r, counts, parts := t.r, t.next.Data, t.r.Parts
	ring := loc.ring[r.SrcType]
	r.Halo = make([]Halo, parts)
	cols := r.NumSrc
	for q := 1; q < parts; q++ {
		h := &r.Halo[q]
		h.Peer, h.Begin = (r.Rank-q+parts)%parts, int32(cols)
		for _, n := range counts[ring[q]-t.srcLo : ring[q+1]-t.srcLo] {
			if n > 0 {
				cols++
			}
		}
		h.End = int32(cols)
		if h.Rows, err = mem.Make[int32](mem.Structure, int(h.End-h.Begin)); err != nil {
			return err
		}
		i := 0
		for p := ring[q]; p < ring[q+1]; p++ {
			if counts[p-t.srcLo] > 0 {
				h.Rows.Data[i] = loc.haloRow.Data[p-loc.haloOff[r.SrcType]]
				i++
			}
		}
	}
	if r.ColPtr, err = mem.Make[int32](mem.Structure, cols+1); err != nil {
		return err
	}
	c, ptr := 0, r.ColPtr.Data
	for p, n := range counts {
		if p < r.NumSrc || n > 0 {
			ptr[c+1] = ptr[c] + n
			c++
		}
	}
	r.Row, err = mem.Make[int32](mem.Structure, int(r.NumEdges))
	return err
}

// placeRows puts the destination rows of a block into their columns.
func (s *scan) placeRows(b *block) error {
	for i := 0; i < b.n; i++ {
		t := &s.tally[b.rel[i]]
		k := t.next.Data[b.col[i]]
		if int(k) >= len(t.r.Row.Data) {
			return s.changed(t)
		}
		t.next.Data[b.col[i]] = k + 1
		t.r.Row.Data[k] = b.row[i]
		t.edges++
		t.digest += mix(b.col[i], b.row[i], b.id[i])
	}
	return nil
}
