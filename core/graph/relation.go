package graph

import "sar/core/mem"

// Relation is what a worker knows of one edge type once the workers have told each other
// what they read of each other's rows (core/topology).
type Relation struct {
	*Structure
	NumEdgesGlobal int64 // over all workers

	// Send[r], for r = 1..P-1, are the own source rows that peer (Rank+r) mod P
	// reads, in the order in which it numbers them.
	Send []mem.Array[int32]
	// OutDegree[i] is the number of edges, on all workers, that leave own source row i.
	OutDegree mem.Array[int64]

	// Of the pairs of workers between which the owners of sources compute gradients (nil
	// before there is one): Outgoing[r] are the edges from own sources into rows of peer
	// (Rank+r) mod P, Reached[r] the own rows that edges from peer (Rank-r) mod P lead to,
	// in the order in which they travel.
	Outgoing []Outgoing
	Reached  []mem.Array[int32]
}

// Bytes is what the relation holds off the Go heap, in whole pages.
func (r *Relation) Bytes() int64 {
	n := r.Structure.Bytes() + r.OutDegree.Bytes()
	for i := range r.Send {
		n += r.Send[i].Bytes()
	}
	for i := range r.Outgoing {
		n += r.Outgoing[i].Bytes() + r.Reached[i].Bytes()
	}
	return n
}

// Free releases every array. It may be called again. The source of edges belongs to
// whoever made it.
func (r *Relation) Free() {
	r.Structure.Free()
	r.OutDegree.Free()
	for i := range r.Send {
		r.Send[i].Free()
	}
	for i := range r.Outgoing {
		r.Outgoing[i].free()
		r.Reached[i].Free()
	}
}
