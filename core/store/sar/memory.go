package sar

import (
	"sar/core/mem"
	"sar/core/store/input"
	"sar/core/store/split"
)

// LargestPart is what making the largest of equal parts in SAR's format takes beside its edges.
func LargestPart(src input.Source, parts int) (largest int64) {
	for _, r := range src.EdgeTypes() {
		from, to := split.EndsOf(src, r)
		share := func(rows int64) int64 { return (rows + int64(parts) - 1) / int64(parts) }
		largest = max(largest, partMemory(share(to), min(from, share(from)+share(r.Rows))))
	}
	return largest
}

// NodeMemory is what writing in SAR's format takes for the nodes of the graph as long as it
// lasts: assignment, number, column and boundary mark of each node, in-edges of each destination.
func NodeMemory(src input.Source) (n int64) {
	nodes, largest := split.NumNodes(src)
	n = (4+4)*nodes + 4*largest + largest/4
	for _, r := range src.EdgeTypes() {
		_, to := split.EndsOf(src, r)
		n += 4 * to
	}
	return n
}

// partMemory is what making a relation of a part takes beside its edges: row pointers, 24
// bytes for each row to find their order; column pointers, and as much for the key or to
// transpose.
func partMemory(rows, columns int64) int64 { return (4+24)*rows + (4+4)*columns }

// wantMemory fails where the memory does not do for the parts as they are.
func (s *Writer) wantMemory() error {
	var largest int64
	for i, r := range s.rels {
		for p := range s.Writer.Parts {
			columns := min(s.Node.List[r.src].Rows, s.Node.Count[p][r.src]+s.Edge.Count[p][i])
			largest = max(largest, partMemory(s.Node.Count[p][r.dst], columns))
		}
	}
	if least := s.forNodes + largest + split.FixedMemory/2; s.to.Memory < least {
		return &mem.BudgetError{What: "memory for writing parts", Have: s.to.Memory, Minimum: least}
	}
	return nil
}

// forEdges are the bytes left for edges, beside the nodes and so many more.
func (s *Writer) forEdges(more int64) int64 {
	return max(s.to.Memory-s.forNodes-more-split.FixedMemory/2, split.FixedMemory/8)
}
