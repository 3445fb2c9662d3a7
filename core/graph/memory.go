package graph

import (
	"errors"
	"fmt"
)

// EdgeList is an EdgeSource over two arrays in memory: edge k, whose id is k,
// goes from node src[k] to node dst[k]. It refers to the caller's arrays and
// beside them holds 0.14 bytes per node of the whole graph.
type EdgeList struct {
	starts   []int64
	rank     int
	src, dst []int64
	halo     *idSet
}

// HomogeneousBook is the book of one node type "_N" and one edge type "_E"
// where partition p owns the ids [starts[p], starts[p+1]). Edge ranges stay empty.
func HomogeneousBook(starts []int64) (*Book, error) {
	parts := len(starts) - 1
	if parts < 1 {
		return nil, fmt.Errorf("node ranges need the first id of every partition and the end: at least 2 numbers, not %d", len(starts))
	}
	b := &Book{Parts: parts, NodeTypes: []string{"_N"}, EdgeTypes: []EdgeType{{"_N", "_E", "_N"}},
		NodeStart: [][]int64{starts[:parts]}, NodeEnd: [][]int64{starts[1:]},
		EdgeStart: [][]int64{make([]int64, parts)}, EdgeEnd: [][]int64{make([]int64, parts)}}
	return b, b.Finish()
}

// FromEdges makes the source of worker rank from its in-edges: dst are nodes
// that it owns. starts are the ranges of HomogeneousBook. The arrays must not
// change while the source is in use; Free releases what the source holds.
func FromEdges(starts []int64, rank int, src, dst []int64) (*EdgeList, error) {
	parts := len(starts) - 1
	if parts < 1 || rank < 0 || rank >= parts {
		return nil, fmt.Errorf("rank %d of %d node ranges", rank, max(parts, 0))
	}
	if len(src) != len(dst) {
		return nil, fmt.Errorf("edges have %d sources and %d destinations", len(src), len(dst))
	}
	for p := range parts {
		if starts[p] < 0 || starts[p+1] < starts[p] {
			return nil, fmt.Errorf("node range of partition %d is [%d, %d)", p, starts[p], starts[p+1])
		}
	}
	lo, hi := starts[rank], starts[rank+1]
	halo, err := newIDSet(starts[0], starts[parts], -1)
	if err != nil {
		return nil, err
	}
	for k, u := range src {
		if u < starts[0] || u >= starts[parts] {
			halo.free()
			return nil, fmt.Errorf("edge %d: its source is node %d; expected an id in [%d, %d)", k, u, starts[0], starts[parts])
		}
		if v := dst[k]; v < lo || v >= hi {
			halo.free()
			return nil, fmt.Errorf("edge %d: its destination is node %d; expected a node that worker %d owns, an id in [%d, %d)", k, v, rank, lo, hi)
		}
		if u < lo || u >= hi {
			halo.add(u)
		}
	}
	return &EdgeList{starts, rank, src, dst, halo}, halo.seal()
}

// Nodes lists the own ids, then the halo ids, both ascending.
func (e *EdgeList) Nodes() (ids []int64, inner int, err error) {
	if e.halo == nil {
		return nil, 0, errors.New("edges in memory: the source was freed")
	}
	lo, hi := e.starts[e.rank], e.starts[e.rank+1]
	ids = make([]int64, 0, hi-lo+e.halo.n)
	for id := lo; id < hi; id++ {
		ids = append(ids, id)
	}
	return e.halo.appendTo(ids), int(hi - lo), nil
}

// NumEdges is the number of in-edges.
func (e *EdgeList) NumEdges() int64 { return int64(len(e.src)) }

// Edges yields the edges in the caller's order.
func (e *EdgeList) Edges(yield func(EdgeBatch) error) error {
	const size = 1 << 14
	lo, hi := e.starts[e.rank], e.starts[e.rank+1]
	buf := make([]int64, 3*min(size, len(e.src)))
	for at := 0; at < len(e.src); at += size {
		n := min(size, len(e.src)-at)
		b := EdgeBatch{Src: buf[:n], Dst: buf[n : 2*n], ID: buf[2*n : 3*n]}
		for i, u := range e.src[at : at+n] {
			if u >= lo && u < hi {
				b.Src[i] = u - lo
			} else {
				b.Src[i] = hi - lo + e.halo.rank(u)
			}
			b.Dst[i] = e.dst[at+i] - lo
			b.ID[i] = int64(at + i)
		}
		if err := yield(b); err != nil {
			return err
		}
	}
	return nil
}

// Free releases what the source holds beside the caller's arrays.
func (e *EdgeList) Free() {
	e.halo.free()
	e.src, e.dst, e.halo = nil, nil, nil
}
