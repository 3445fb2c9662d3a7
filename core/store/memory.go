package store

import (
	"sar/core/graph"
	"sar/core/mem"
)

// DefaultMemory is what writing parts may take where nobody says how much.
const DefaultMemory = 4 << 30

// fixedMemory are buffers whose size does not depend on the graph, and half of it the least
// that edges get. A variable for tests.
var fixedMemory int64 = 64 << 20

// LeastMemory is what WritePartitions takes at least, for parts of equal sizes.
func LeastMemory(src Source, parts int, format string) int64 {
	n := nodeMemory(src, format) + fixedMemory
	if format == SARFormat {
		n += largestPart(src, parts)
	}
	return n
}

// largestPart is what making the largest of equal parts in SAR's format takes beside its edges.
func largestPart(src Source, parts int) (largest int64) {
	for _, r := range src.EdgeTypes() {
		from, to := endsOf(src, r)
		share := func(rows int64) int64 { return (rows + int64(parts) - 1) / int64(parts) }
		largest = max(largest, partMemory(share(to), min(from, share(from)+share(r.Rows))))
	}
	return largest
}

// endsOf are the numbers of sources and of destinations of a relation.
func endsOf(src Source, relation TypeRows) (from, to int64) {
	t, err := graph.ParseEdgeType(relation.Name)
	if err != nil {
		return 0, 0 // writing it says what is wrong
	}
	for _, n := range src.NodeTypes() {
		if n.Name == t.Src {
			from = n.Rows
		}
		if n.Name == t.Dst {
			to = n.Rows
		}
	}
	return from, to
}

// sarNodeMemory is what writing in SAR's format takes for the nodes of the graph as long as it
// lasts: assignment, number, column and boundary mark of each node, in-edges of each destination.
func sarNodeMemory(src Source) (n int64) {
	nodes, largest := numNodes(src)
	n = (4+4)*nodes + 4*largest + largest/4
	for _, r := range src.EdgeTypes() {
		_, to := endsOf(src, r)
		n += 4 * to
	}
	return n
}

// dglNodeMemory is the same for DGL's format: assignment, number and boundary mark.
func dglNodeMemory(src Source) int64 {
	nodes, _ := numNodes(src)
	return (4+8)*nodes + nodes/4
}

// numNodes are the nodes of all types, and those of the largest type.
func numNodes(src Source) (all, largest int64) {
	for _, t := range src.NodeTypes() {
		all += t.Rows
		largest = max(largest, t.Rows)
	}
	return all, largest
}

// nodeMemory is what writing in a format takes for the nodes.
func nodeMemory(src Source, format string) int64 {
	if format == SARFormat {
		return sarNodeMemory(src)
	}
	return dglNodeMemory(src)
}

// partMemory is what making a relation of a part takes beside its edges: row pointers, 24
// bytes for each row to find their order; column pointers, and as much for the key or to
// transpose.
func partMemory(rows, columns int64) int64 { return (4+24)*rows + (4+4)*columns }

// wantMemory fails where the memory does not do for the parts as they are.
func (s *sarWriter) wantMemory() error {
	var largest int64
	for i, r := range s.rels {
		for p := range s.writer.parts {
			columns := min(s.node.list[r.src].Rows, s.node.count[p][r.src]+s.edge.count[p][i])
			largest = max(largest, partMemory(s.node.count[p][r.dst], columns))
		}
	}
	if least := s.forNodes + largest + fixedMemory/2; s.to.Memory < least {
		return &mem.BudgetError{What: "memory for writing parts", Have: s.to.Memory, Minimum: least}
	}
	return nil
}

// forEdges are the bytes left for edges, beside the nodes and so many more.
func (s *sarWriter) forEdges(more int64) int64 {
	return max(s.to.Memory-s.forNodes-more-fixedMemory/2, fixedMemory/8)
}
