package split

import (
	"sar/core/graph"
	"sar/core/store/input"
)

// DefaultMemory is what writing parts may take where nobody says how much.
const DefaultMemory = 4 << 30

// FixedMemory are buffers whose size does not depend on the graph, and half of it the least
// that edges get. A variable for tests.
var FixedMemory int64 = 64 << 20

// EndsOf are the numbers of sources and of destinations of a relation.
func EndsOf(src input.Source, relation input.TypeRows) (from, to int64) {
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

// NumNodes are the nodes of all types, and those of the largest type.
func NumNodes(src input.Source) (all, largest int64) {
	for _, t := range src.NodeTypes() {
		all += t.Rows
		largest = max(largest, t.Rows)
	}
	return all, largest
}
