// Package topology makes the relations of a distributed graph: each worker builds the
// structure of its own in-edges, and then the workers tell each other which rows they
// read (connect.go). A block, made of a graph for some destination rows, is connected in
// the same way (block.go). Where the owners of sources are to compute gradients of edge
// expressions, they are handed the edges (outgoing.go).
//
// Functions that take a communicator are collective: every rank calls them in the same
// order. After an error the graph is of no more use, and the peers have to be told.
package topology

import (
	"fmt"
	"sync"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/kernel"
)

// Graph is this worker's part of a distributed graph: one relation an edge type.
type Graph struct {
	Book      *graph.Book
	Relations []*graph.Relation

	pool   *kernel.Pool
	source Source // nil where edges came from memory
	order  sync.Mutex
	block  *block // nil for a full graph
	shards map[shardsKey]*Shards
}

// Source gives edges that can be read again whenever they are needed.
type Source interface {
	graph.EdgeSource
	// Open makes the edges readable while use runs.
	Open(use func() error) error
}

// Made is a source whose relations were made when the graph was partitioned, with what the
// workers know of each other's rows.
type Made interface {
	Source
	// Relations gives them, and a number of the partitioning that the parts have in common;
	// none where they have to be built from the edges.
	Relations(threads int) (rels []*graph.Relation, partitioning int64, err error)
}

// Build makes the worker's part of a graph. Edges that are a Source are open, and may be
// opened again until the graph is freed.
func Build(c *comm.Communicator, pool *kernel.Pool, book *graph.Book, edges graph.EdgeSource,
	opts graph.BuildOptions) (*Graph, error) {
	g := &Graph{Book: book, pool: pool}
	g.source, _ = edges.(Source)
	opts.Threads = pool.Threads()
	if of, ok := edges.(Made); ok {
		rels, partitioning, err := of.Relations(opts.Threads)
		if err != nil {
			return nil, err
		}
		if rels != nil {
			g.Relations = rels
			return g, g.adopt(c, partitioning, opts)
		}
	}
	made, err := graph.Build(book, c.Rank(), edges, opts)
	if err != nil {
		return nil, err
	}
	for _, s := range made {
		g.Relations = append(g.Relations, &graph.Relation{Structure: s})
	}
	for _, rel := range g.Relations {
		if err := connect(c, rel); err != nil {
			g.Free()
			return nil, fmt.Errorf("relation %s: %w", rel.Type, err)
		}
	}
	if err := tellLeading(c, g.Relations); err != nil {
		g.Free()
		return nil, err
	}
	return g, nil
}

// Free unmaps the graph. It may be called again.
func (g *Graph) Free() {
	for _, rel := range g.Relations {
		rel.Free()
	}
	g.Relations = nil
	g.block.free()
}

// EdgeOrder makes the order of edges of a relation if it is not there yet. It concerns
// this rank alone.
func (g *Graph) EdgeOrder(rel *graph.Relation) error {
	g.order.Lock()
	defer g.order.Unlock()
	switch {
	case rel.HasEdgeOrder():
		return nil
	case g.block != nil:
		return g.orderBlock(rel)
	case g.source == nil || rel.IsStored():
		return rel.EdgeOrder()
	}
	return g.source.Open(rel.EdgeOrder)
}

// adopt takes over relations that were made when the graph was partitioned. The workers
// tell each other which partitioning their parts are of, and how many rows they read of
// each other, since each has files of its own: 8 bytes a pair, and 8 for each relation.
func (g *Graph) adopt(c *comm.Communicator, partitioning int64, opts graph.BuildOptions) (err error) {
	defer func() {
		if err != nil {
			g.Free()
		}
	}()
	rank, world := c.Rank(), c.World()
	tell := make([][]int64, world)
	for q := range tell {
		tell[q] = []int64{partitioning}
		for _, rel := range g.Relations {
			h := rel.Halo[(rank-q+world)%world]
			tell[q] = append(tell[q], int64(h.End-h.Begin))
		}
	}
	heard, err := c.AllToAllInts(tell)
	if err != nil {
		return err
	}
	for q, of := range heard {
		if of[0] != partitioning {
			return fmt.Errorf("rank %d has a part of another partitioning than rank %d: give every worker its part of the "+
				"same run of sar partition", q, rank)
		}
		for i, rel := range g.Relations {
			if send := rel.Send[(q-rank+world)%world].Data; q != rank && int64(len(send)) != of[i+1] {
				return fmt.Errorf("relation %s: rank %d reads %d rows of rank %d, which sends %d: their parts are not of the "+
					"same run of sar partition",
					rel.Type, q, of[i+1], rank, len(send))
			}
		}
	}
	if err := tellLeading(c, g.Relations); err != nil {
		return err
	}
	for _, rel := range g.Relations {
		if opts.EdgeOrder {
			if err := rel.EdgeOrder(); err != nil {
				return err
			}
		}
	}
	return nil
}
