package input

import (
	"sar/core/internal/argument"
	"sar/core/internal/bitset"
	"sar/core/store/disk"
)

// withLoops is a graph of one type with an edge from every node to itself: the
// edges of the file, then one for each node that has none, in ascending id.
type withLoops struct {
	Graph
	has     *bitset.Set // the nodes with a loop of their own
	lacking int64
}

// AddSelfLoops gives every node that lacks one an edge to itself. It reads the
// edges once, and holds a bit a node until the graph is closed. The graph given
// belongs to what is returned.
func AddSelfLoops(g Graph) (Graph, error) {
	if _, twice := g.(*withLoops); twice || len(g.NodeTypes()) != 1 || len(g.EdgeTypes()) != 1 {
		return nil, argument.Errorf("self loops are added to graphs of one type, and this one has several, or has " +
			"them already")
	}
	if list := g.EdgeTypes()[0].Features(); len(list) > 0 {
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
	return &withLoops{g, has, g.NumNodes() - has.Seal()}, nil
}

func (l *withLoops) NumEdges() int64 { return l.Graph.NumEdges() + l.lacking }

func (l *withLoops) EdgeTypes() []Table {
	return []Table{{Name: l.Graph.EdgeTypes()[0].Name, Rows: l.NumEdges()}}
}

// EdgesBatch implements Source.
func (l *withLoops) EdgesBatch(yield func(first int64, src, dst []int64) error) error {
	if err := l.Graph.EdgesBatch(yield); err != nil {
		return err
	}
	first := l.Graph.NumEdges()
	ids := make([]int64, 0, min(disk.Batch, l.lacking))
	for left, u := l.lacking, int64(0); left > 0; u++ {
		if l.has.Has(u) {
			continue
		}
		left--
		if ids = append(ids, u); len(ids) == cap(ids) || left == 0 {
			if err := yield(first, ids, ids); err != nil {
				return err
			}
			first += int64(len(ids))
			ids = ids[:0]
		}
	}
	return nil
}

// Close closes the file.
func (l *withLoops) Close() error {
	l.has.Free()
	return l.Graph.Close()
}
