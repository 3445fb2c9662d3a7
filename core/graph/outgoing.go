package graph

import (
	"slices"

	"sar/core/internal/ascending"
	"sar/core/internal/bitset"
	"sar/core/mem"
)

// Outgoing is the shard from own sources into the rows of one peer, as the owner of the
// sources holds it. It is made only where gradients of an edge expression are cheaper to
// compute here, from rows of destinations that come, than at the peer.
type Outgoing struct {
	// Ptr[i]..Ptr[i+1]-1 are the slots of row i of the send list for the peer.
	Ptr mem.Array[int32]
	// NumRows is the peer's rows that these edges lead to. Slots number them in the
	// order in which they come, in 16 bits where that suffices; ascending in a source.
	NumRows int
	narrow  mem.Array[uint16]
	wide    mem.Array[int32]
}

// Rows writes the numbers of the rows of slots k, k+1, … less base.
func (o *Outgoing) Rows(to []int32, k int64, base int32) {
	if o.NumRows > 1<<16 {
		for i, row := range o.wide.Data[k:][:len(to)] {
			to[i] = row - base
		}
		return
	}
	for i, row := range o.narrow.Data[k:][:len(to)] {
		to[i] = int32(row) - base
	}
}

// row is the number of the row of slot k.
func (o *Outgoing) row(k int64) int32 {
	if o.NumRows > 1<<16 {
		return o.wide.Data[k]
	}
	return int32(o.narrow.Data[k])
}

// runEnd is the first slot of k..last-1 whose row is not below end, or last.
func (o *Outgoing) runEnd(k, last int64, end int32) int64 {
	if o.NumRows > 1<<16 {
		return ascending.RunEnd(o.wide.Data, k, last, end)
	}
	if int(end) >= o.NumRows {
		return last
	}
	return ascending.RunEnd(o.narrow.Data, k, last, uint16(end))
}

// Frames goes through the rows of shards, frame after frame.
type Frames struct {
	o      *Outgoing
	cursor ascending.Cursor[int32] // of each source
	all    mem.Array[int32]
}

// NewFrames makes room for shards of so many sources at most.
func NewFrames(sources int) (*Frames, error) {
	all, err := mem.Make[int32](mem.Scratch, 2*sources)
	n := min(sources, len(all.Data))
	return &Frames{cursor: ascending.Cursor[int32]{Slot: all.Data[:n], Next: all.Data[n:]}, all: all}, err
}

// Begin starts with the first row of o.
func (f *Frames) Begin(o *Outgoing) {
	f.o = o
	for i := range int32(len(o.Ptr.Data) - 1) {
		f.put(i, o.Ptr.Data[i])
	}
}

func (f *Frames) put(i, k int32) {
	if k < f.o.Ptr.Data[i+1] {
		f.cursor.Put(i, k, f.o.row(int64(k)))
	} else {
		f.cursor.End(i, k)
	}
}

// Take is the slots of source i whose rows are below end and that were not taken.
func (f *Frames) Take(i int, end int32) (k0, k1 int64) {
	k0 = int64(f.cursor.Slot[i])
	if f.cursor.Passes(int32(i), end) {
		return k0, k0
	}
	k1 = f.o.runEnd(k0, int64(f.o.Ptr.Data[i+1]), end)
	f.put(int32(i), int32(k1))
	return k0, k1
}

func (f *Frames) Free() { f.all.Free() }

func (o *Outgoing) arrays() []memory { return []memory{&o.Ptr, &o.narrow, &o.wide} }

// Make makes room for so many edges out of so many sources, into so many rows.
func (o *Outgoing) Make(sources, rows int, edges int64) (err error) {
	o.NumRows = rows
	if o.Ptr, err = mem.Make[int32](mem.Structure, sources+1); err != nil {
		return err
	}
	if rows > 1<<16 {
		o.wide, err = mem.Make[int32](mem.Structure, int(edges))
	} else {
		o.narrow, err = mem.Make[uint16](mem.Structure, int(edges))
	}
	return err
}

// Put stores the row of slot k.
func (o *Outgoing) Put(k int, row int32) {
	if o.NumRows > 1<<16 {
		o.wide.Data[k] = row
	} else {
		o.narrow.Data[k] = uint16(row)
	}
}

// Sort brings the rows of every source into ascending order, once all are there.
func (o *Outgoing) Sort(threads int) {
	n := len(o.Ptr.Data) - 1
	each(max(1, min(threads, n)), func(t int) {
		of := max(1, min(threads, n))
		for i := n * t / of; i < n*(t+1)/of; i++ {
			k0, k1 := o.Ptr.Data[i], o.Ptr.Data[i+1]
			if o.NumRows > 1<<16 {
				slices.Sort(o.wide.Data[k0:k1])
			} else {
				slices.Sort(o.narrow.Data[k0:k1])
			}
		}
	})
}

// Reach is the own rows that the edges of one peer lead to, in the order in which they
// would travel to it: that in which rows are computed, so that what comes together has
// sources in common.
type Reach struct {
	*bitset.Set         // of places in that order
	Len         int     // how many rows there are
	place       []int32 // of each row; nil: its number
}

// Places is the place of every own row in the order in which rows are computed; nil
// where that is their number.
func (r *Structure) Places() []int32 {
	if len(r.Order.Data) != r.NumDst || r.NumDst == 0 {
		return nil
	}
	place := make([]int32, r.NumDst)
	for at, row := range r.Order.Data {
		place[row] = int32(at)
	}
	return place
}

// Reach looks at the edges out of columns [begin, end). place is what Places says. Free it.
func (r *Structure) Reach(begin, end int32, place []int32) (*Reach, error) {
	set, err := bitset.New(int64(r.NumDst))
	if err != nil {
		return nil, err
	}
	x := &Reach{Set: set, place: place}
	for _, row := range r.Row.Data[r.ColPtr.Data[begin]:r.ColPtr.Data[end]] {
		x.Add(x.at(row))
	}
	x.Len = int(x.Seal())
	return x, nil
}

func (x *Reach) at(row int32) int64 {
	if x.place != nil {
		return int64(x.place[row])
	}
	return int64(row)
}

// Number is that of a row among them.
func (x *Reach) Number(row int32) int32 { return int32(x.Rank(x.at(row))) }

// List writes the rows in their order.
func (x *Reach) List(to, order []int32) {
	n := 0
	for at := range x.All() {
		to[n] = int32(at)
		if x.place != nil {
			to[n] = order[at]
		}
		n++
	}
}
