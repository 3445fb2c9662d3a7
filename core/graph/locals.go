package graph

import (
	"cmp"
	"fmt"
	"math"

	"sar/core/mem"
)

// locals gives every local node a place: per node type first the own rows, then
// the halo nodes of peer rank-1, rank-2, … (mod P), each peer's by id. Places
// are thus in the order of columns, for every relation at once: the columns of
// a relation are the places of its source type without the halo nodes that it
// does not read. One range check of a place tells both type and ownership.
type locals struct {
	book    *Book
	rank    int
	ids     []int64          // of the source; for error messages
	place   mem.Array[int32] // [local node]
	base    []int32          // [type + 1] first place of the type
	own     []int32          // [type] own rows
	ring    [][]int32        // [type][r] first place of peer rank-r, r = 1..P; [0] unused, [P] the end
	haloRow mem.Array[int32] // the owner's row number of the halo nodes, in order of places
	haloOff []int32          // [type] place - haloOff is the index into haloRow
}

func newLocals(book *Book, rank int, src EdgeSource) (l *locals, err error) {
	if rank < 0 || rank >= book.Parts {
		return nil, fmt.Errorf("rank %d of a graph in %d partitions", rank, book.Parts)
	}
	ids, inner, err := src.Nodes()
	if err != nil {
		return nil, err
	}
	if inner < 0 || inner > len(ids) {
		return nil, fmt.Errorf("partition %d: %d of %d local nodes are said to be its own", rank, inner, len(ids))
	}
	if int64(len(ids)) > math.MaxInt32 {
		return nil, fmt.Errorf("partition %d has %d local nodes; at most %d are supported: use more partitions", rank,
			len(ids), math.MaxInt32)
	}
	l = &locals{book: book, rank: rank, ids: ids}
	defer func() {
		if err != nil {
			l.free()
			l = nil
		}
	}()
	var owned int64
	for t := range book.NodeTypes {
		owned += book.NumNodes(t, rank)
		for p := 0; p < book.Parts; p++ {
			if n := book.NumNodes(t, p); n > math.MaxInt32 {
				return l, fmt.Errorf("partition %d has %d nodes of type %q; at most %d are supported: use more partitions", p, n,
					book.NodeTypes[t], math.MaxInt32)
			}
		}
	}
	if owned != int64(inner) {
		return l, fmt.Errorf("partition %d lists %d own nodes, its partition book %d", rank, inner, owned)
	}
	set, err := l.collect(inner)
	defer set.free()
	if err != nil {
		return l, err
	}
	return l, l.number(set, inner)
}

// collect checks owners and gathers the local ids.
func (l *locals) collect(inner int) (*idSet, error) {
	lo, hi := int64(math.MaxInt64), int64(0)
	for i, id := range l.ids {
		_, part, ok := l.book.Owner(id)
		switch {
		case !ok:
			return nil, fmt.Errorf("partition %d, local node %d: id %d is outside every range of the partition book", l.rank, i,
				id)
		case i < inner && part != l.rank:
			return nil, fmt.Errorf("partition %d, local node %d: id %d is listed as own, but partition %d owns it", l.rank, i,
				id, part)
		case i >= inner && part == l.rank:
			return nil, fmt.Errorf("partition %d, local node %d: id %d is listed as a halo node, but the partition owns it",
				l.rank, i, id)
		}
		lo, hi = min(lo, id), max(hi, id+1)
	}
	set, err := newIDSet(min(lo, hi), hi, int64(len(l.ids)))
	if err != nil {
		return nil, err
	}
	for i, id := range l.ids {
		if !set.add(id) {
			return set, fmt.Errorf("partition %d, local node %d: id %d is listed twice", l.rank, i, id)
		}
	}
	if err := set.seal(); err != nil {
		return set, fmt.Errorf("partition %d, local nodes: %w", l.rank, err)
	}
	return set, nil
}

// number fills the places. All members of a (type, partition) range are
// neighbours in the set, so a rank within the range is a difference of ranks.
func (l *locals) number(set *idSet, inner int) error {
	b, parts := l.book, l.book.Parts
	clampRank := func(id int64) int64 { return set.rank(min(max(id, set.lo), set.hi)) }
	l.base = make([]int32, len(b.NodeTypes)+1)
	l.own = make([]int32, len(b.NodeTypes))
	l.ring = make([][]int32, len(b.NodeTypes))
	l.haloOff = make([]int32, len(b.NodeTypes))
	first := make([][]int64, len(b.NodeTypes)) // [type][peer] members before the range
	var halo int32
	for t := range b.NodeTypes {
		l.own[t] = int32(b.NumNodes(t, l.rank))
		l.ring[t] = make([]int32, parts+1)
		first[t] = make([]int64, parts)
		at := l.base[t] + l.own[t]
		l.haloOff[t] = at - halo
		for r := 1; r < parts; r++ {
			q := (l.rank - r + parts) % parts
			l.ring[t][r] = at
			first[t][q] = clampRank(b.NodeStart[t][q])
			n := int32(clampRank(b.NodeEnd[t][q]) - first[t][q])
			at, halo = at+n, halo+n
		}
		l.ring[t][parts] = at
		l.base[t+1] = at
	}
	if err := cmp.Or(l.place.Make(mem.Scratch, len(l.ids)), l.haloRow.Make(mem.Scratch, int(halo))); err != nil {
		return err
	}
	for i, id := range l.ids {
		t, q, _ := b.Owner(id)
		row := int32(id - b.NodeStart[t][q])
		if i < inner {
			l.place.Data[i] = l.base[t] + row
			continue
		}
		p := l.ring[t][(l.rank-q+parts)%parts] + int32(set.rank(id)-first[t][q])
		l.place.Data[i] = p
		l.haloRow.Data[p-l.haloOff[t]] = row
	}
	return nil
}

// describe names a local node in an error.
func (l *locals) describe(node int64) string {
	if node < 0 || node >= int64(len(l.ids)) {
		return fmt.Sprintf("local node %d, of %d", node, len(l.ids))
	}
	t, p, _ := l.book.Owner(l.ids[node])
	return fmt.Sprintf("node %d (type %q, partition %d)", l.ids[node], l.book.NodeTypes[t], p)
}

func (l *locals) free() {
	l.place.Free()
	l.haloRow.Free()
}
