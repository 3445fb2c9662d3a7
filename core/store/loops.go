package store

import (
	"sar/core/internal/argument"
	"sar/core/internal/bitset"
)

// looped is a graph of one type with an edge from every node to itself: the
// edges of the file, then one for each node that has none, in ascending id.
type looped struct {
	WholeGraph
	has     *bitset.Set // the nodes with a loop of their own
	lacking int64
}

// AddSelfLoops gives every node that lacks one an edge to itself. It reads the
// edges once, and holds a bit a node until the graph is closed. The graph given
// belongs to what is returned.
func AddSelfLoops(g WholeGraph) (WholeGraph, error) {
	if _, twice := g.(*looped); twice || len(g.NodeTypes()) != 1 || len(g.EdgeTypes()) != 1 {
		return nil, argument.Errorf("self loops are added to graphs of one type, and this one has several, or has them already")
	}
	if list := g.EdgeTypes()[0].Arrays; len(list) > 0 {
		return nil, argument.Errorf("self loops would have no values of edge feature %q", list[0].Name)
	}
	has, err := bitset.New(g.NumNodes())
	if err != nil {
		return nil, err
	}
	err = g.EdgesBatch(func(_ int64, src, dst []int64) error {
		for i, u := range src {
			if u == dst[i] {
				has.Add(u)
			}
		}
		return nil
	})
	if err != nil {
		has.Free()
		return nil, err
	}
	return &looped{g, has, g.NumNodes() - has.Seal()}, nil
}

func (l *looped) NumEdges() int64 { return l.WholeGraph.NumEdges() + l.lacking }

func (l *looped) EdgeTypes() []TypeRows {
	return []TypeRows{{Name: l.WholeGraph.EdgeTypes()[0].Name, Rows: l.NumEdges()}}
}

// EdgesBatch implements Source.
func (l *looped) EdgesBatch(yield func(first int64, src, dst []int64) error) error {
	if err := l.WholeGraph.EdgesBatch(yield); err != nil {
		return err
	}
	first, nodes := l.WholeGraph.NumEdges(), l.NumNodes()
	ids := make([]int64, 0, min(batch, l.lacking))
	flush := func() error {
		if len(ids) == 0 {
			return nil
		}
		err := yield(first, ids, ids)
		first += int64(len(ids))
		ids = ids[:0]
		return err
	}
	for u := int64(0); u < nodes; u++ {
		if l.has.Has(u) {
			continue
		}
		if ids = append(ids, u); len(ids) == cap(ids) {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// Close closes the file.
func (l *looped) Close() error {
	l.has.Free()
	return l.WholeGraph.Close()
}
