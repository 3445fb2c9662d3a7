// Package graph holds the structure of one worker: the partition book, and for
// every relation the edges into the worker's own rows, with what is needed to
// exchange boundary rows with peers.
package graph

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// EdgeType names a relation: source node type, relation, destination node type.
type EdgeType struct{ Src, Rel, Dst string }

func (t EdgeType) String() string { return t.Src + ":" + t.Rel + ":" + t.Dst }

// ParseEdgeType is the relation whose String is s.
func ParseEdgeType(s string) (EdgeType, error) {
	p := strings.Split(s, ":")
	if len(p) != 3 || slices.Contains(p, "") {
		return EdgeType{}, fmt.Errorf("edge type %q is not source:relation:destination", s)
	}
	return EdgeType{Src: p[0], Rel: p[1], Dst: p[2]}, nil
}

// OnlyNodeType is what DGL calls the node type of a homogeneous graph.
const OnlyNodeType = "_N"

// OnlyEdgeType is what it calls the relation.
var OnlyEdgeType = EdgeType{Src: "_N", Rel: "_E", Dst: "_N"}

// Book says who owns what. Node ids are homogenized as DGL's partitioner makes
// them: all nodes of partition 0 first, in each partition the node types in
// order, so that (partition, type) is one contiguous range of ids.
type Book struct {
	Parts     int
	NodeTypes []string
	EdgeTypes []EdgeType
	// NodeStart[t][p] is the first homogenized id of type t in partition p,
	// NodeEnd[t][p] one past the last. Likewise for edges.
	NodeStart, NodeEnd [][]int64
	EdgeStart, EdgeEnd [][]int64

	owners []ownerRange // by start, for Owner
}

type ownerRange struct {
	start, end  int64
	ntype, part int32
}

// Finish checks the ranges and prepares look-ups. Call it once the fields are set.
func (b *Book) Finish() error {
	if b.Parts < 1 {
		return fmt.Errorf("partition book: %d partitions", b.Parts)
	}
	if len(b.NodeStart) != len(b.NodeTypes) || len(b.NodeEnd) != len(b.NodeTypes) {
		return fmt.Errorf("partition book: ranges for %d node types, names for %d", len(b.NodeStart), len(b.NodeTypes))
	}
	if len(b.EdgeStart) != len(b.EdgeTypes) || len(b.EdgeEnd) != len(b.EdgeTypes) {
		return fmt.Errorf("partition book: ranges for %d edge types, names for %d", len(b.EdgeStart), len(b.EdgeTypes))
	}
	b.owners = b.owners[:0]
	for t := range b.NodeTypes {
		if len(b.NodeStart[t]) != b.Parts || len(b.NodeEnd[t]) != b.Parts {
			return fmt.Errorf("partition book: node type %q has %d ranges for %d partitions", b.NodeTypes[t],
				len(b.NodeStart[t]), b.Parts)
		}
		for p := 0; p < b.Parts; p++ {
			if b.NodeStart[t][p] < 0 || b.NodeEnd[t][p] < b.NodeStart[t][p] {
				return fmt.Errorf("partition book: node type %q, partition %d: range [%d, %d)", b.NodeTypes[t], p,
					b.NodeStart[t][p], b.NodeEnd[t][p])
			}
			if b.NodeStart[t][p] < b.NodeEnd[t][p] {
				b.owners = append(b.owners, ownerRange{b.NodeStart[t][p], b.NodeEnd[t][p], int32(t), int32(p)})
			}
		}
	}
	sort.Slice(b.owners, func(i, j int) bool { return b.owners[i].start < b.owners[j].start })
	for i := 1; i < len(b.owners); i++ {
		if b.owners[i].start < b.owners[i-1].end {
			return fmt.Errorf("partition book: node ranges overlap at id %d", b.owners[i].start)
		}
	}
	return nil
}

// Owner returns the node type and partition of a homogenized node id.
func (b *Book) Owner(id int64) (ntype, part int, ok bool) {
	i := sort.Search(len(b.owners), func(i int) bool { return b.owners[i].end > id })
	if i == len(b.owners) || id < b.owners[i].start {
		return 0, 0, false
	}
	return int(b.owners[i].ntype), int(b.owners[i].part), true
}

// NumNodes is the number of nodes of type t in partition p, NumEdges that of edges of relation r into them.
func (b *Book) NumNodes(t, p int) int64 { return b.NodeEnd[t][p] - b.NodeStart[t][p] }
func (b *Book) NumEdges(r, p int) int64 { return b.EdgeEnd[r][p] - b.EdgeStart[r][p] }

// Nodes are the ids of all nodes of partition p, the first, and one past the last; Edges of all edges into them.
func (b *Book) Nodes(p int) (start, end int64) { return span(b.NodeStart, b.NodeEnd, p) }
func (b *Book) Edges(p int) (start, end int64) { return span(b.EdgeStart, b.EdgeEnd, p) }

func span(start, end [][]int64, p int) (lo, hi int64) {
	if len(start) == 0 {
		return 0, 0
	}
	return start[0][p], end[len(end)-1][p]
}

// NumNodesGlobal is the number of nodes of type t in the whole graph.
func (b *Book) NumNodesGlobal(t int) int64 {
	var n int64
	for p := 0; p < b.Parts; p++ {
		n += b.NumNodes(t, p)
	}
	return n
}

// NodeType returns the number of a node type.
func (b *Book) NodeType(name string) (int, error) {
	if t := slices.Index(b.NodeTypes, name); t >= 0 {
		return t, nil
	}
	return 0, fmt.Errorf("unknown node type %q (there are %q)", name, b.NodeTypes)
}
