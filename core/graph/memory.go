package graph

import (
	"errors"
	"fmt"
	"slices"
)

// EdgeList is an EdgeSource over arrays in memory: edge k of relation t, whose
// id is k and the number of edges before t, goes from node ends[t].Src[k] to
// node ends[t].Dst[k]. It refers to the caller's arrays and beside them holds
// 0.14 bytes per node of the whole graph.
type EdgeList struct {
	starts []int64
	rank   int
	ends   []Ends
	edges  int64
	halo   *idSet
}

// Ends are the homogenized ids of the two ends of each edge of a relation.
type Ends struct{ Src, Dst []int64 }

// HomogeneousBook is the book of one node type "_N" and one edge type "_E"
// where partition p owns the ids [starts[p], starts[p+1]). Edge ranges stay empty.
func HomogeneousBook(starts []int64) (*Book, error) {
	parts := len(starts) - 1
	if parts < 1 {
		return nil, fmt.Errorf("node ranges need the first id of every partition and the end: at least 2 numbers, not %d",
			len(starts))
	}
	b := &Book{Parts: parts, NodeTypes: []string{"_N"}, EdgeTypes: []EdgeType{{"_N", "_E", "_N"}},
		NodeStart: [][]int64{starts[:parts]}, NodeEnd: [][]int64{starts[1:]},
		EdgeStart: [][]int64{make([]int64, parts)}, EdgeEnd: [][]int64{make([]int64, parts)}}
	return b, b.Finish()
}

// TypedBook is the book of a graph of several node types: partition p owns
// counts[t][p] nodes of type t, and ids are homogenized. Edge ranges stay empty.
func TypedBook(nodeTypes []string, edgeTypes []EdgeType, counts [][]int64) (*Book, error) {
	if len(nodeTypes) == 0 || len(counts) != len(nodeTypes) {
		return nil, fmt.Errorf("%d node types with counts of %d", len(nodeTypes), len(counts))
	}
	b := &Book{Parts: len(counts[0]), NodeTypes: nodeTypes, EdgeTypes: edgeTypes}
	for t, of := range counts {
		if len(of) != b.Parts {
			return nil, fmt.Errorf("node type %q has counts of %d partitions, %q of %d", nodeTypes[t], len(of), nodeTypes[0],
				b.Parts)
		}
		b.NodeStart, b.NodeEnd = append(b.NodeStart, make([]int64, b.Parts)), append(b.NodeEnd, make([]int64, b.Parts))
	}
	var at int64
	for p := range b.Parts {
		for t := range nodeTypes {
			if counts[t][p] < 0 {
				return nil, fmt.Errorf("partition %d has %d nodes of type %q", p, counts[t][p], nodeTypes[t])
			}
			b.NodeStart[t][p] = at
			at += counts[t][p]
			b.NodeEnd[t][p] = at
		}
	}
	for range edgeTypes {
		b.EdgeStart, b.EdgeEnd = append(b.EdgeStart, make([]int64, b.Parts)), append(b.EdgeEnd, make([]int64, b.Parts))
	}
	return b, b.Finish()
}

// Starts are the first id of every partition, over all node types, and the end.
func (b *Book) Starts() []int64 {
	last := len(b.NodeTypes) - 1
	return append(append([]int64(nil), b.NodeStart[0]...), b.NodeEnd[last][b.Parts-1])
}

// FromEdges makes the source of worker rank from its in-edges, by relation: destinations
// are nodes that it owns. starts are those of a Book. The arrays
// must not change while the source is in use; Free releases what the source holds.
// That the ends are of the right types is checked where the graph is built.
func FromEdges(starts []int64, rank int, ends ...Ends) (_ *EdgeList, err error) {
	parts := len(starts) - 1
	if parts < 1 || rank < 0 || rank >= parts {
		return nil, fmt.Errorf("rank %d of %d node ranges", rank, max(parts, 0))
	}
	lo, hi := starts[rank], starts[rank+1]
	halo, err := newIDSet(starts[0], starts[parts], -1)
	if err != nil {
		return nil, err
	}
	list := &EdgeList{starts: starts, rank: rank, ends: ends, halo: halo}
	defer func() {
		if err != nil {
			halo.free()
		}
	}()
	for _, e := range ends {
		if len(e.Src) != len(e.Dst) {
			return nil, fmt.Errorf("edges have %d sources and %d destinations", len(e.Src), len(e.Dst))
		}
		list.edges += int64(len(e.Src))
		for k, u := range e.Src {
			if u < starts[0] || u >= starts[parts] {
				return nil, fmt.Errorf("edge %d: its source is node %d; expected an id in [%d, %d)", k, u, starts[0], starts[parts])
			}
			if v := e.Dst[k]; v < lo || v >= hi {
				return nil, fmt.Errorf("edge %d: its destination is node %d; expected a node that worker %d owns, an id in "+
					"[%d, %d)", k, v, rank, lo, hi)
			}
			if u < lo || u >= hi {
				halo.add(u)
			}
		}
	}
	return list, halo.seal()
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
	return slices.AppendSeq(ids, e.halo.all()), int(hi - lo), nil
}

func (e *EdgeList) NumEdges() int64 { return e.edges }

// Edges yields the edges of one relation after another, in the caller's order.
func (e *EdgeList) Edges(yield func(EdgeBatch) error) error {
	const size = 1 << 14
	lo, hi := e.starts[e.rank], e.starts[e.rank+1]
	room := int(min(size, e.edges))
	buf, types := make([]int64, 3*room), make([]int32, room)
	var before int64
	for t, ends := range e.ends {
		for i := range types {
			types[i] = int32(t)
		}
		for at := 0; at < len(ends.Src); at += size {
			n := min(size, len(ends.Src)-at)
			b := EdgeBatch{Src: buf[:n], Dst: buf[room : room+n], ID: buf[2*room : 2*room+n], Type: types[:n]}
			for i, u := range ends.Src[at : at+n] {
				if u >= lo && u < hi {
					b.Src[i] = u - lo
				} else {
					b.Src[i] = hi - lo + e.halo.rank(u)
				}
				b.Dst[i] = ends.Dst[at+i] - lo
				b.ID[i] = before + int64(at+i)
			}
			if err := yield(b); err != nil {
				return err
			}
		}
		before += int64(len(ends.Src))
	}
	return nil
}

// Free releases what the source holds beside the caller's arrays.
func (e *EdgeList) Free() {
	e.halo.free()
	e.ends, e.halo = nil, nil
}
