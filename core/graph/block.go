package graph

import (
	"cmp"
	"fmt"

	"sar/core/mem"
)

// Induction is the making of the structure of a block (message-flow graph): the
// edges of parent that end in some of its own rows. What a worker must know of
// its peers for it is how many of those edges leave each boundary row, so it
// is made in two steps with an exchange in between:
//
//	Induce: count the wanted edges of every column of parent
//	the counts of halo columns go to their owners, who then know which of their rows the block has
//	Structure: number rows and columns anew and copy the edges
type Induction struct {
	parent *Structure
	rows   []int32 // wanted destination rows of parent, each once
	// Count is, per column of parent, the number of wanted edges that leave it.
	Count mem.Array[int32]
	edges int64
}

// Induce counts the edges of parent that end in rows, own destination rows of
// parent, each once, in the order in which the block numbers them. rows must
// stay as they are until Structure was called.
func Induce(parent *Structure, rows []int32) (*Induction, error) {
	count, err := mem.Make[int32](mem.Scratch, parent.NumCols())
	if err != nil {
		return nil, err
	}
	d := &Induction{parent: parent, rows: rows, Count: count}
	for _, i := range rows {
		for _, j := range parent.Col.Data[parent.RowPtr.Data[i]:parent.RowPtr.Data[i+1]] {
			count.Data[j]++
		}
		d.edges += int64(parent.RowPtr.Data[i+1] - parent.RowPtr.Data[i])
	}
	return d, nil
}

// HaloCount is the part of Count of the boundary rows of round r.
func (d *Induction) HaloCount(r int) []int32 {
	h := d.parent.Halo[r]
	return d.Count.Data[h.Begin:h.End]
}

func (d *Induction) Free() { d.Count.Free() }

// Structure makes the structure of the block. sources lists its source rows, as
// own source rows of parent, in the order in which the block numbers them.
//
// Edges keep the order of parent: where parent has its edge order, so has the
// block, and ParentEdge says where an edge of the block is among those of
// parent. Scratch: 4 bytes a column of parent and 4 a column of the block.
func (d *Induction) Structure(sources []int32, threads int) (r *Structure, err error) {
	p := d.parent
	if !p.stored { // else a block that needs its order of edges makes it from the file
		if err := p.deriveOrder(); err != nil {
			return nil, err
		}
	}
	r = &Structure{Type: p.Type, SrcType: p.SrcType, DstType: p.DstType, Rank: p.Rank, Parts: p.Parts,
		NumSrc: len(sources), NumDst: len(d.rows), NumEdges: d.edges, index: p.index}
	defer func() {
		if err != nil {
			r.Free()
			r = nil
		}
	}()
	number, err := mem.Make[int32](mem.Scratch, p.NumCols())
	if err != nil {
		return r, err
	}
	defer number.Free()
	if err := d.columns(r, sources, number.Data); err != nil {
		return r, err
	}
	if err := d.copyEdges(r, number.Data, threads); err != nil {
		return r, err
	}
	if r.NumSrc == r.NumDst {
		err = r.makeOrder()
	}
	return r, err
}

// columns numbers the columns of the block: fills number, and makes ColPtr and Halo.
func (d *Induction) columns(r *Structure, sources, number []int32) (err error) {
	p, count := d.parent, d.Count.Data
	for j := range number {
		number[j] = -1
	}
	for i, j := range sources {
		number[j] = int32(i)
	}
	for j, n := range count[:p.NumSrc] {
		if n > 0 && number[j] < 0 {
			return fmt.Errorf("block of %s: own row %d is read and not among the source rows", p.Type, j)
		}
	}
	cols := int32(len(sources))
	r.Halo = make([]Halo, p.Parts)
	for q := 1; q < p.Parts; q++ {
		h := p.Halo[q]
		r.Halo[q] = Halo{Peer: h.Peer, Begin: cols}
		for j := h.Begin; j < h.End; j++ {
			if count[j] > 0 {
				number[j] = cols
				cols++
			}
		}
		r.Halo[q].End = cols
		r.Halo[q].AllRows()
	}
	if r.ColPtr, err = mem.Make[int32](mem.Structure, int(cols)+1); err != nil {
		return err
	}
	ptr := r.ColPtr.Data
	for j, to := range number {
		if to >= 0 {
			ptr[to+1] = count[j]
		}
	}
	for j := range cols {
		ptr[j+1] += ptr[j]
	}
	return nil
}

// copyEdges fills CSR and CSC, and the order of edges where parent has it.
func (d *Induction) copyEdges(r *Structure, number []int32, threads int) (err error) {
	p := d.parent
	edges := int(r.NumEdges)
	err = cmp.Or(r.RowPtr.Make(mem.Structure, r.NumDst+1), r.Row.Make(mem.Structure, edges),
		r.Col.Make(mem.Structure, edges))
	if err != nil {
		return err
	}
	csc := compressed{ptr: r.ColPtr.Data, idx: r.Row.Data}
	csr := compressed{ptr: r.RowPtr.Data, idx: r.Col.Data}
	var place *idSet
	if p.ordered {
		if place, err = d.places(r); err != nil {
			return err
		}
		defer place.free()
		if err := cmp.Or(r.ColEdge.Make(mem.Structure, edges), r.RowEdge.Make(mem.Structure, edges)); err != nil {
			return err
		}
		csc.val, csr.val = r.ColEdge.Data, r.RowEdge.Data
	}
	next, err := mem.Make[int32](mem.Scratch, r.NumCols())
	if err != nil {
		return err
	}
	defer next.Free()
	copy(next.Data, r.ColPtr.Data)
	for i, row := range d.rows {
		begin, end := p.RowPtr.Data[row], p.RowPtr.Data[row+1]
		r.RowPtr.Data[i+1] = r.RowPtr.Data[i] + end - begin
		for k := begin; k < end; k++ {
			j := number[p.Col.Data[k]]
			to := next.Data[j]
			next.Data[j] = to + 1
			r.Row.Data[to] = int32(i)
			if place != nil {
				csc.val[to] = int32(place.rank(int64(p.RowEdge.Data[k])))
			}
		}
	}
	r.ordered = p.ordered
	return transpose(csc, csr, max(1, threads))
}

// places makes ParentEdge and the set of its numbers.
func (d *Induction) places(r *Structure) (*idSet, error) {
	p := d.parent
	place, err := newIDSet(0, p.NumEdges, d.edges)
	if err != nil {
		return nil, err
	}
	for _, row := range d.rows {
		for _, e := range p.RowEdge.Data[p.RowPtr.Data[row]:p.RowPtr.Data[row+1]] {
			place.add(int64(e))
		}
	}
	if err = place.seal(); err == nil {
		r.ParentEdge, err = mem.Make[int32](mem.Structure, int(r.NumEdges))
	}
	if err != nil {
		place.free()
		return nil, err
	}
	i := 0
	for e := range place.all() {
		r.ParentEdge.Data[i] = int32(e)
		i++
	}
	return place, nil
}

// TakeEdgeOrder moves the edge order of other, which holds the same edges,
// over to r.
func (r *Structure) TakeEdgeOrder(other *Structure) error {
	if other.NumEdges != r.NumEdges || other.NumDst != r.NumDst || other.NumCols() != r.NumCols() {
		return fmt.Errorf("edge order of %s: the source gave other edges when it was read again", r.Type)
	}
	if !other.ordered {
		return fmt.Errorf("edge order of %s: the other relation has none", r.Type)
	}
	r.RowEdge, r.ColEdge, r.ParentEdge = other.RowEdge, other.ColEdge, other.ParentEdge
	r.ordered = true
	other.RowEdge, other.ColEdge, other.ParentEdge = mem.Array[int32]{}, mem.Array[int32]{}, mem.Array[int32]{}
	return nil
}
