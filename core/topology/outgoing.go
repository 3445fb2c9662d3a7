package topology

import (
	"encoding/binary"
	"fmt"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/mem"
)

// Shard is the edges from sources of one worker, as far as their rows do not travel at a price, into rows of
// another, in numbers that both know.
type Shard struct{ Sources, Rows, Edges int64 }

// Shards are those between this worker and the others, by round: Out into rows of peer
// Rank+r, In from sources of peer Rank-r.
type Shards struct{ Out, In []Shard }

// shardsKey is what there are shards of.
type shardsKey struct {
	rel   *graph.Relation
	price graph.Price
}

// ShardsOf tells the owners of halo rows how many edges leave those that do not travel at a price, into how many rows,
// and learns the same of own rows: 16 bytes a pair.
func (g *Graph) ShardsOf(c *comm.Communicator, rel *graph.Relation, price graph.Price) (*Shards, error) {
	key := shardsKey{rel, price}
	if x := g.shards[key]; x != nil {
		return x, nil
	}
	p := rel.Parts
	x := &Shards{Out: make([]Shard, p), In: make([]Shard, p)}
	send := make([][]int64, p)
	send[rel.Rank] = []int64{0, 0}
	place := rel.Places()
	for r := 1; r < p; r++ {
		h := rel.Halo[r]
		begin := h.Begin + h.Lead(price)
		reach, err := rel.Reach(begin, h.End, place)
		if err != nil {
			return nil, err
		}
		reach.Free()
		x.In[r] = Shard{
			Sources: int64(h.End - begin), Rows: int64(reach.Len),
			Edges: int64(rel.ColPtr.Data[h.End] - rel.ColPtr.Data[begin]),
		}
		send[h.Peer] = []int64{x.In[r].Rows, x.In[r].Edges}
	}
	recv, err := c.AllToAllInts(send)
	if err != nil {
		return nil, err
	}
	for r := 1; r < p; r++ {
		from := recv[(rel.Rank+r)%p]
		x.Out[r] = Shard{Sources: int64(len(rel.Send[r].Data) - rel.Lead(r, price)), Rows: from[0], Edges: from[1]}
		if o := x.Out[r]; o.Rows < 0 || o.Rows > o.Edges || o.Edges >= 1<<31 || (o.Edges == 0) != (o.Sources == 0) {
			return nil, fmt.Errorf("rank %d names %d edges from %d rows of this rank into %d of its own", (rel.Rank+r)%p,
				o.Edges, o.Sources, o.Rows)
		}
	}
	if g.shards == nil {
		g.shards = map[shardsKey]*Shards{}
	}
	g.shards[key] = x
	return x, nil
}

// lastEdge marks the last edge of a source among the numbers that travel.
const lastEdge = 1 << 31

// HandOver gives owners of sources the edges over which they will compute at a price, 4 bytes an edge:
// those to the peers of the rounds that out names, from those that in names. Both ends of a
// shard name it. What was handed over before stays there.
func (g *Graph) HandOver(c *comm.Communicator, rel *graph.Relation, price graph.Price, out, in []bool) error {
	all, err := g.ShardsOf(c, rel, price)
	if err != nil {
		return err
	}
	p, pushed := rel.Parts, &rel.Pushed[price]
	if pushed.Outgoing == nil {
		pushed.Outgoing, pushed.Reached = make([]graph.Outgoing, p), make([]mem.Array[int32], p)
	}
	send, recv := make([]int, p), make([]int, p)
	reach, place := make([]*graph.Reach, p), rel.Places()
	defer func() {
		for _, x := range reach {
			if x != nil {
				x.Free()
			}
		}
	}()
	for r := 1; r < p; r++ {
		if in[r] && len(pushed.Reached[r].Data) == 0 {
			h := rel.Halo[r]
			if reach[r], err = rel.Reach(h.Begin+h.Lead(price), h.End, place); err != nil {
				return err
			}
			send[r] = int(all.In[r].Edges)
		}
		if out[r] && len(pushed.Outgoing[r].Ptr.Data) == 0 {
			o := all.Out[r]
			if err := pushed.Outgoing[r].Make(int(o.Sources), int(o.Rows), o.Edges); err != nil {
				return err
			}
			recv[r] = int(o.Edges)
		}
	}
	first, column := make([]int32, p), make([]int32, p) // of the first and of the next edge that leaves, by round
	for r := 1; r < p; r++ {
		column[r] = rel.Halo[r].Begin + rel.Halo[r].Lead(price)
		first[r] = rel.ColPtr.Data[column[r]]
	}
	put := func(r, i int, dst []byte) {
		ptr := rel.ColPtr.Data
		k := first[r] + int32(i)
		for k >= ptr[column[r]+1] {
			column[r]++
		}
		number := uint32(reach[r].Number(rel.Row.Data[k]))
		if k+1 == ptr[column[r]+1] {
			number |= lastEdge
		}
		binary.LittleEndian.PutUint32(dst, number)
	}
	source := 0 // of the next edge that comes
	get := func(r, i int, src []byte) error {
		o, peer := &pushed.Outgoing[r], (rel.Rank+r)%p
		if i == 0 {
			source = 0
		}
		number := binary.LittleEndian.Uint32(src)
		row, sources := int(number&^lastEdge), len(o.Ptr.Data)-1
		if row >= o.NumRows || source >= sources {
			return fmt.Errorf("rank %d names an edge from source %d into row %d, of %d and %d", peer, source, row, sources,
				o.NumRows)
		}
		o.Put(i, int32(row))
		if number&lastEdge != 0 {
			source++
			o.Ptr.Data[source] = int32(i + 1)
		}
		if i+1 == recv[r] && source != sources {
			return fmt.Errorf("rank %d names edges from %d sources of %d", peer, source, sources)
		}
		return nil
	}
	if err := (records{send: send, recv: recv, size: 4, put: put, get: get}).toOwners(c, comm.KindBuild); err != nil {
		return err
	}
	for r := 1; r < p; r++ {
		if recv[r] > 0 {
			pushed.Outgoing[r].Sort(g.pool.Threads())
		}
		if reach[r] == nil {
			continue
		}
		rows, err := mem.Make[int32](mem.Structure, reach[r].Len)
		if err != nil {
			return err
		}
		reach[r].List(rows.Data, rel.Order.Data)
		pushed.Reached[r] = rows
	}
	return nil
}
