package sar

import (
	"sar/core/mem"
	"sar/core/store/input"
)

// FixedMemory is for buffers whose size does not depend on the graph, and half of it the least
// that edges get. A variable for tests.
var FixedMemory int64 = 64 << 20

// LeastMemory is what Write takes at least, for parts of equal sizes.
func LeastMemory(src input.Source, parts int) int64 {
	var largest int64
	nodes := src.NodeTypes()
	for _, r := range src.EdgeTypes() {
		from, to := nodes[r.Src].Rows, nodes[r.Dst].Rows
		share := func(rows int64) int64 { return (rows + int64(parts) - 1) / int64(parts) }
		largest = max(largest, partMemory(share(to), min(from, share(from)+share(r.Rows))))
	}
	return nodeMemory(src) + FixedMemory + largest
}

// CheckMemory refuses memory that does not do for the nodes.
func CheckMemory(src input.Source, parts int, memory int64) error {
	if memory < nodeMemory(src)+FixedMemory/2 {
		return &mem.BudgetError{What: "memory for writing parts", Have: memory, Minimum: LeastMemory(src, parts)}
	}
	return nil
}

// nodeMemory is what writing in SAR's format takes for the nodes of the graph as long as it
// lasts: assignment, number, column and boundary mark of each node, in-edges of each destination.
func nodeMemory(src input.Source) (n int64) {
	nodes, largest := src.NodeTypes(), int64(0)
	for _, t := range nodes {
		n += (4 + 4) * t.Rows
		largest = max(largest, t.Rows)
	}
	for _, r := range src.EdgeTypes() {
		n += 4 * nodes[r.Dst].Rows
	}
	return n + 4*largest + largest/4
}

// partMemory is what making a relation of a part takes beside its edges: row pointers, 24
// bytes for each row to find their order; column pointers, and 24 bytes for each column to find which rows
// travel.
func partMemory(rows, columns int64) int64 { return (4+24)*rows + (4+24)*columns }

// wantMemory fails where the memory does not do for the parts as they are.
func (s *writer) wantMemory() error {
	var largest int64
	for i, r := range s.rels {
		for p := range s.to.Parts {
			columns := min(s.node.list[r.src].Rows, s.node.count[p][r.src]+s.edge.count[p][i])
			largest = max(largest, partMemory(s.node.count[p][r.dst], columns))
		}
	}
	if least := s.forNodes + largest + FixedMemory/2; s.to.Memory < least {
		return &mem.BudgetError{What: "memory for writing parts", Have: s.to.Memory, Minimum: least}
	}
	return nil
}

// forEdges are the bytes left for edges, beside the nodes and so many more.
func (s *writer) forEdges(more int64) int64 {
	return max(s.to.Memory-s.forNodes-more-FixedMemory/2, FixedMemory/8)
}
