package topology

import (
	"fmt"

	"sar/core/comm"
	"sar/core/graph"
)

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
	for _, rel := range g.Relations {
		if opts.EdgeOrder {
			if err := rel.EdgeOrder(); err != nil {
				return err
			}
		}
	}
	return nil
}
