package graph

import (
	"fmt"
	"math"

	"sar/core/mem"
)

// blockSize edges are resolved at a time: the block stays in the first cache
// level while it is counted or placed.
const blockSize = 2048

// block is a run of checked in-edges: number of the relation in scan.rels,
// source place relative to the source type's first, own destination row, id.
type block struct {
	n        int
	rel      [blockSize]int32
	col, row [blockSize]int32
	id       [blockSize]int64
}

// tally is what a pass over the edges knows of one relation.
type tally struct {
	r                          *Structure
	srcLo, srcHi, dstLo, dstHi int32 // places
	// next is, over the places of the source type, the number of edges that
	// leave the place, and after start the next free slot of its column.
	next   mem.Array[int32]
	edges  int64
	ids    idSummary
	digest uint64
}

// idSummary describes the edge ids of a relation in the order of the source.
type idSummary struct {
	min, max, last int64
	descends       bool // somewhere an id is not above the one before
}

// scan reads the edges of a source for some relations of it.
type scan struct {
	loc    *locals
	src    EdgeSource
	tally  []tally
	byType []int32 // edge type -> index into tally, -1: edges are skipped
	block  *block
}

func newScan(loc *locals, src EdgeSource, rels []*Structure) (s *scan, err error) {
	s = &scan{loc: loc, src: src, tally: make([]tally, len(rels)), byType: make([]int32, len(loc.book.EdgeTypes)),
		block: new(block)}
	for i := range s.byType {
		s.byType[i] = -1
	}
	for i, r := range rels {
		t := &s.tally[i]
		*t = tally{r: r, srcLo: loc.base[r.SrcType], srcHi: loc.base[r.SrcType+1],
			dstLo: loc.base[r.DstType], dstHi: loc.base[r.DstType] + loc.own[r.DstType]}
		s.byType[r.index] = int32(i)
		if t.next, err = mem.Make[int32](mem.Scratch, int(t.srcHi-t.srcLo)); err != nil {
			s.free()
			return nil, err
		}
	}
	return s, nil
}

// each resolves the edges of the source and hands them to visit in blocks.
func (s *scan) each(visit func(*block) error) error {
	var seen int64
	b := s.block
	b.n = 0
	err := s.src.Edges(func(e EdgeBatch) error {
		n := len(e.Src)
		if len(e.Dst) != n || len(e.ID) != n || e.Type != nil && len(e.Type) != n || e.Inner != nil && len(e.Inner) != n {
			return fmt.Errorf("edges after the first %d: %d sources, %d destinations, %d ids, %d types, %d inner flags",
				seen, n, len(e.Dst), len(e.ID), len(e.Type), len(e.Inner))
		}
		if e.Type == nil && n > 0 && len(s.byType) != 1 {
			return fmt.Errorf("edge %d has no type, and the graph has %d edge types", e.ID[0], len(s.byType))
		}
		seen += int64(n)
		for i := 0; i < n; {
			i = s.resolve(&e, i)
			if b.n == blockSize {
				if err := visit(b); err != nil {
					return err
				}
				b.n = 0
			} else if i < n {
				return s.fault(&e, i)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if want := s.src.NumEdges(); seen != want {
		return fmt.Errorf("partition %d: the source gave %d edges of the %d it announced", s.loc.rank, seen, want)
	}
	return visit(b)
}

// again is each for edges that were counted before. It fails where they are others.
func (s *scan) again(visit func(*block) error) error {
	for i := range s.tally {
		s.tally[i].edges, s.tally[i].digest = 0, 0
	}
	if err := s.each(visit); err != nil {
		return err
	}
	for i := range s.tally {
		if t := &s.tally[i]; t.edges != t.r.NumEdges || t.digest != t.r.digest {
			return s.changed(t)
		}
	}
	return nil
}

// resolve appends edges from i on to the block until it is full, the batch
// ends, or an edge is wrong, and returns where it stopped.
func (s *scan) resolve(e *EdgeBatch, i int) int {
	b, place := s.block, s.loc.place.Data
	src, dst, id := e.Src, e.Dst[:len(e.Src)], e.ID[:len(e.Src)]
	for ; i < len(src) && b.n < blockSize; i++ {
		if e.Inner != nil && e.Inner[i] == 0 {
			continue
		}
		var et int32
		if e.Type != nil {
			if et = e.Type[i]; uint32(et) >= uint32(len(s.byType)) {
				return i
			}
		}
		rel := s.byType[et]
		if rel < 0 {
			continue
		}
		if uint64(src[i]) >= uint64(len(place)) || uint64(dst[i]) >= uint64(len(place)) {
			return i
		}
		t := &s.tally[rel]
		u, v := place[src[i]], place[dst[i]]
		if u < t.srcLo || u >= t.srcHi || v < t.dstLo || v >= t.dstHi {
			return i
		}
		b.rel[b.n], b.col[b.n], b.row[b.n], b.id[b.n] = rel, u-t.srcLo, v-t.dstLo, id[i]
		b.n++
	}
	return i
}

// fault says what is wrong with an edge that resolve refused.
func (s *scan) fault(e *EdgeBatch, i int) error {
	var et int32
	if e.Type != nil {
		et = e.Type[i]
	}
	if int(et) < 0 || int(et) >= len(s.byType) {
		return fmt.Errorf("edge %d has type %d; the graph has the %d edge types %v", e.ID[i], et, len(s.byType),
			s.loc.book.EdgeTypes)
	}
	t := &s.tally[s.byType[et]]
	n := int64(len(s.loc.place.Data))
	if u := e.Src[i]; u < 0 || u >= n || s.loc.place.Data[u] < t.srcLo || s.loc.place.Data[u] >= t.srcHi {
		return fmt.Errorf("edge %d of type %s: its source is %s; expected a local node of type %q", e.ID[i], t.r.Type,
			s.loc.describe(u), t.r.Type.Src)
	}
	return fmt.Errorf("edge %d of type %s: its destination is %s; expected a node of type %q that partition %d owns",
		e.ID[i], t.r.Type, s.loc.describe(e.Dst[i]), t.r.Type.Dst, s.loc.rank)
}

// count adds a block to the tallies, and to the row counts at RowPtr[row+1]
// where the relations are still being built.
func (s *scan) count(b *block, rows bool) error {
	for i := 0; i < b.n; i++ {
		t := &s.tally[b.rel[i]]
		id := b.id[i]
		if t.edges == 0 {
			t.ids = idSummary{id, id, id, false}
		} else {
			if id <= t.ids.last {
				t.ids.descends = true
			}
			t.ids.last = id
			t.ids.min = min(t.ids.min, id)
			t.ids.max = max(t.ids.max, id)
		}
		if t.edges++; t.edges > maxEdges {
			return fmt.Errorf("edge type %s has more than %d in-edges on partition %d: use more partitions", t.r.Type,
				int64(maxEdges), s.loc.rank)
		}
		t.next.Data[b.col[i]]++
		t.digest += mix(b.col[i], b.row[i], id)
		if rows {
			t.r.RowPtr.Data[b.row[i]+1]++
		}
	}
	return nil
}

// maxEdges is a variable for tests; slots are int32 in edge positions.
var maxEdges int64 = math.MaxInt32

// mix hashes an edge. The sum over edges tells whether a second pass over the
// source gave the same edges, before anything relies on it.
func mix(col, row int32, id int64) uint64 {
	x := (uint64(uint32(col))<<32 | uint64(uint32(row))) ^ uint64(id)*0x9e3779b97f4a7c15
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	return x * 0xd6e8feb86659fd93
}

// start turns the counts of a relation into first slots of its columns.
func (t *tally) start() {
	r, column := t.r, 0
	for i, n := range t.next.Data {
		if i >= r.NumSrc && n == 0 {
			continue
		}
		at := column
		if i >= r.NumSrc && len(r.moved.Data) > 0 {
			at = int(r.moved.Data[column-r.NumSrc])
		}
		t.next.Data[i] = r.ColPtr.Data[at]
		column++
	}
}

// changed is the error of a source that does not repeat itself.
func (s *scan) changed(t *tally) error {
	return fmt.Errorf("edge type %s of partition %d: the source gave other edges when it was read again", t.r.Type,
		s.loc.rank)
}

func (s *scan) free() {
	for i := range s.tally {
		s.tally[i].next.Free()
	}
}
