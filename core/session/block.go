package session

import (
	"context"

	"sar/core/internal/bitset"
)

// Block makes a block out of a full graph, as topology.Graph.Block does. Collective.
func (g *Graph) Block(ctx context.Context, seeds [][]int64, keepSeeds bool) (*Graph, error) {
	if g.topo.IsBlock() {
		return nil, Invalid("blocks are made out of full graphs, and this graph is a block: " +
			"give the full graph the source rows of the block as seeds")
	}
	if types := g.NumNodeTypes(); len(seeds) != types {
		return nil, Invalid("seeds of %d node types, and the graph has %d", len(seeds), types)
	}
	for t, rows := range seeds {
		if err := g.checkSeeds(t, rows); err != nil {
			return nil, err
		}
	}
	return g.session.graphWithin(ctx, func() (*Graph, error) {
		made := &Graph{session: g.session}
		err := g.session.collective("making a block", func() error {
			train, err := g.session.Comm(Train)
			if err != nil {
				return err
			}
			made.topo, err = g.topo.Block(train, seeds, keepSeeds)
			return err
		})
		if err != nil {
			return nil, err
		}
		made.number = g.session.count()
		return made, nil
	})
}

// checkSeeds refuses rows that are not own ones, or there twice.
func (g *Graph) checkSeeds(t int, rows []int64) error {
	own := g.topo.Book.NumNodes(t, g.session.Rank())
	seen, err := bitset.New(own)
	if err != nil {
		return err
	}
	defer seen.Free()
	for _, row := range rows {
		if row < 0 || row >= own {
			return Invalid("seeds of node type %q: row %d; this worker owns rows 0 to %d", g.topo.Book.NodeTypes[t], row, own-1)
		}
		if !seen.Add(row) {
			return Invalid("seeds of node type %q: row %d is there twice", g.topo.Book.NodeTypes[t], row)
		}
	}
	return nil
}

// NumNodeTypes is the number of node types.
func (g *Graph) NumNodeTypes() int { return len(g.topo.Book.NodeTypes) }

// BlockRows are, by node type, the source rows of a block as own rows of the
// graph it was made of; with dst, its destination rows.
func (g *Graph) BlockRows(t int, dst bool) ([]int32, error) {
	if !g.topo.IsBlock() {
		return nil, Invalid("this graph is no block")
	}
	if t < 0 || t >= g.NumNodeTypes() {
		return nil, Invalid("there is no node type %d: this graph has %d", t, g.NumNodeTypes())
	}
	if dst {
		return g.topo.BlockSeeds(t), nil
	}
	return g.topo.BlockSources(t), nil
}

// BlockEdges are, for every edge of relation i of a block in the users' order,
// its position among the edges of the graph that the block was made of.
func (g *Graph) BlockEdges(i int) ([]int32, error) {
	rel, err := g.Relation(i)
	if err != nil {
		return nil, err
	}
	if !g.topo.IsBlock() {
		return nil, Invalid("this graph is no block")
	}
	if err := g.edgeOrder(rel); err != nil {
		return nil, err
	}
	return rel.ParentEdge.Data, nil
}
