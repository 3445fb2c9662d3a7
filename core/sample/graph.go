// Package sample draws neighbourhoods of seed nodes from a distributed graph,
// layer by layer, and fetches the features of the nodes that it meets.
//
// Every in-edge of a node lies at the node's owner. So a layer is one operation
// there and back: the frontier's nodes go to their owners, who draw edges and
// reply with sources and edges. After the last layer the owners of all nodes met
// send their features. What comes in is put straight into the arrays of the blocks.
//
// Draws are keyed by (key of the batch, layer, relation, destination node), so
// they depend neither on threads nor on the order in which messages come, and
// two workers that ask with the same key for the same node get the same edges.
package sample

import (
	"encoding/binary"
	"fmt"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/graph"
	"sar/core/internal/view"
	"sar/core/mem"
)

// Space numbers the nodes, or the edges, of one type over all workers: rank p
// owns the ids [s[p], s[p+1]).
type Space []int64

// Owner is the rank that owns an id of the space.
func (s Space) Owner(id int64) int { return after(s, id) }

// Graph is what sampling needs besides the relations of a worker: ids that mean
// the same everywhere. 8 bytes a boundary row.
type Graph struct {
	Rank, World int
	Types       []Space // nodes, by node type
	Edges       []Space // edges, by relation
	Rels        []*graph.Relation
	halo        []mem.Array[int64] // [relation][column - NumSrc]: the position of the node of the column
}

// NewGraph has every owner tell its readers the ids of the rows they read.
// Collective.
func NewGraph(c *comm.Communicator, book *graph.Book, rels []*graph.Relation) (*Graph, error) {
	g := &Graph{Rank: c.Rank(), World: c.World(), Rels: rels, halo: make([]mem.Array[int64], len(rels))}
	for t := range book.NodeTypes {
		sizes := make([]int64, book.Parts)
		for p := range sizes {
			sizes[p] = book.NumNodes(t, p)
		}
		g.Types = append(g.Types, consecutive(sizes))
	}
	if len(g.Types) == 1 && contiguous(book.NodeStart[0], book.NodeEnd[0]) {
		// the ids that users know; they need not begin at 0
		g.Types[0] = append(append(Space{}, book.NodeStart[0]...), book.NodeEnd[0][book.Parts-1])
	}
	counts := make([]int64, len(rels))
	for i, rel := range rels {
		counts[i] = rel.NumEdges
	}
	all, err := c.AllGatherInts(counts...)
	if err != nil {
		return nil, err
	}
	for i, rel := range rels {
		sizes := make([]int64, g.World)
		for p := range sizes {
			if len(all[p]) != len(rels) {
				return nil, fmt.Errorf("rank %d has %d relations and rank %d has %d", p, len(all[p]), g.Rank, len(rels))
			}
			sizes[p] = all[p][i]
		}
		g.Edges = append(g.Edges, consecutive(sizes))
		if err := g.learn(c, i, rel); err != nil {
			g.Free()
			return nil, err
		}
	}
	return g, nil
}

func consecutive(sizes []int64) Space {
	s := make(Space, len(sizes)+1)
	for p, n := range sizes {
		s[p+1] = s[p] + n
	}
	return s
}

func contiguous(start, end []int64) bool {
	for p := 1; p < len(start); p++ {
		if start[p] != end[p-1] {
			return false
		}
	}
	return true
}

// learn fills halo[i]. 8 bytes a boundary row.
func (g *Graph) learn(c *comm.Communicator, i int, rel *graph.Relation) (err error) {
	first := g.Types[rel.SrcType][g.Rank] - g.Types[rel.SrcType][0]
	if g.halo[i], err = mem.Make[int64](mem.Structure, rel.NumCols()-rel.NumSrc); err != nil {
		return err
	}
	op, err := c.Begin(comm.KindSample, comm.None)
	if err != nil {
		return err
	}
	m := &exchange.Movement{
		Op: op, RowBytes: 8, Send: exchange.SendRows(rel), Recv: exchange.HaloRows(rel),
		Produce: func(r, from, n int, dst []byte) error {
			for k, row := range rel.Send[r].Data[from : from+n] {
				binary.LittleEndian.PutUint64(dst[8*k:], uint64(first+int64(row)))
			}
			return nil
		},
		Consume: func(r, from, n int, src []byte) error {
			at := int(rel.Halo[r].Begin) - rel.NumSrc + from
			copy(g.halo[i].Data[at:at+n], view.Numbers[int64](src))
			return nil
		},
	}
	_, err = m.Move(g.Rank, g.World)
	return op.End(err)
}

// Own is how many nodes of type t this worker owns.
func (g *Graph) Own(t int) int { return int(g.Types[t][g.Rank+1] - g.Types[t][g.Rank]) }

// Free unmaps what the graph holds besides the relations.
func (g *Graph) Free() {
	for i := range g.halo {
		g.halo[i].Free()
	}
}
