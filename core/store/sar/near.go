package sar

import (
	"math"

	"sar/core/graph"
	"sar/core/internal/must"
	"sar/core/mem"
)

// Nodes of a part are numbered so that those come one after the other which the same nodes read (graph.Locality), where
// there is such an order and memory to find it and to arrange features by it: a worker then finds source rows side by
// side. Elsewhere they keep the order they had. Appenders put what is read in that order in its place.

// near is an order of the nodes of a type, by the edges that lead from the type to itself; empty where they keep
// theirs.
func (s *writer) near(t int) (order mem.Array[int32]) {
	of, first := &s.node.list[t], s.node.first[t]
	var edges int64
	loops := make([]bool, len(s.edge.list))
	for i, r := range s.edge.list {
		if loops[i] = r.Src == t && r.Dst == t; loops[i] {
			edges += r.Rows
		}
	}
	if edges == 0 || of.Rows > math.MaxInt32 || s.to.IDs[of.Name] != "" || !s.roomForOrder(t, edges) {
		return order
	}
	ptr, col := scratch[int64](of.Rows+1), scratch[int32](edges)
	defer ptr.Free()
	defer col.Free()
	each := func(do func(src, dst int64)) {
		s.runs(func(i int, _ int64, src, dst []int64) {
			if loops[i] {
				for k, v := range dst {
					do(src[k]-first, v-first)
				}
			}
			s.progress(0)
		})
	}
	each(func(_, dst int64) { ptr.Data[dst+1]++ })
	for v := range of.Rows {
		ptr.Data[v+1] += ptr.Data[v]
	}
	each(func(src, dst int64) { // the pointer of a node ends at that of the next one
		col.Data[ptr.Data[dst]] = int32(src)
		ptr.Data[dst]++
	})
	copy(ptr.Data[1:], ptr.Data)
	ptr.Data[0] = 0
	return must.Get(graph.Locality(ptr.Data, col.Data))
}

// roomForOrder tells whether memory has room for so many edges of a type, for the scratch of Locality, and for the
// largest feature of its nodes, or of the edges that lead to them, with the place of each row.
func (s *writer) roomForOrder(t int, edges int64) bool {
	rows, largest := s.node.list[t].Rows, int64(0)
	for _, a := range s.node.list[t].Arrays {
		largest = max(largest, a.Bytes())
	}
	for _, r := range s.edge.list {
		for _, a := range r.Arrays {
			if r.Dst == t {
				largest = max(largest, a.Bytes()+4*r.Rows)
			}
		}
	}
	return LeastMemory(s.src, s.to.Parts)+max(largest, 4*edges)+48*rows <= s.to.Memory
}

// nodePlaces is, of the nodes of a type, part by part and in the order they had, the row of each; empty where that is
// the order of rows.
func (s *writer) nodePlaces(t int) []int32 { return s.place[t].Data }

// placeNodes fills nodePlaces.
func (s *writer) placeNodes(t int) {
	first := s.node.first[t]
	s.place[t] = scratch[int32](s.node.list[t].Rows)
	s.forNodes += 4 * s.node.list[t].Rows
	next := append([]int64(nil), s.base[t]...)
	for i, p := range s.to.Assignment[first:s.node.first[t+1]] {
		s.place[t].Data[next[p]] = int32(int64(s.id.Data[first+int64(i)]) - s.base[t][p])
		next[p]++
	}
}

// edgePlaces is the same of the edges of a sorted relation, which are numbered by row: empty where rows are in order,
// or edges have no features.
func (s *writer) edgePlaces(i int) (place mem.Array[int32]) {
	r := s.rels[i]
	if !r.sorted || len(s.edge.list[i].Arrays) == 0 || len(s.nodePlaces(r.dst)) == 0 {
		return place
	}
	begin := scratch[int32](s.node.list[r.dst].Rows) // of each row, in its part
	defer begin.Free()
	next := make([]int64, s.to.Parts) // where the places of a part begin
	var all int64
	for p := range s.to.Parts {
		next[p] = all
		var at int32
		for v := s.base[r.dst][p]; v < s.base[r.dst][p+1]; v++ {
			begin.Data[v] = at
			at += int32(r.slots.Data[v])
		}
		all += int64(at)
	}
	place = scratch[int32](all)
	first := s.node.first[r.dst]
	for k, p := range s.to.Assignment[first:s.node.first[r.dst+1]] {
		v := s.id.Data[first+int64(k)]
		for j := range int32(r.slots.Data[v]) {
			place.Data[next[p]] = begin.Data[v] + j
			next[p]++
		}
	}
	return place
}
