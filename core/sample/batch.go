package sample

import (
	"fmt"

	"sar/core/comm"
)

// Batch is seeds, and after Run the blocks of their neighbourhood.
type Batch struct {
	Seeds [][]int32 // [node type]: own rows, none twice
	Key   uint64    // of the draws

	Layers  []Layer
	Inputs  [][][]byte // [node type][column], rows of the nodes that the first layer reads
	Outputs [][][]byte // [node type][column], rows of the seeds
	memory  arena
}

// Layer is one block: edges from source to destination nodes, which are the
// first of the source nodes.
type Layer struct {
	Nodes  [][]int64 // [node type]: ids of the source nodes
	NumDst []int     // [node type]
	Edges  []Edges   // by relation
}

// Edges of one relation by destination, numbered within the block.
type Edges struct {
	Indptr, Indices []int64
	IDs             []int64  // nil without Config.EdgeIDs
	Data            [][]byte // by column
}

// Free gives the memory back.
func (b *Batch) Free() {
	if b.memory.pool != nil {
		b.memory.free()
	}
	b.Layers, b.Inputs, b.Outputs = nil, nil, nil
}

// Run draws the batch. Collective, also for ranks without seeds.
//
// Wire, per remote node of a frontier: 4 bytes once, and per layer 4 bytes back
// for each relation, 8 (4 without edge ids and data) for each edge drawn there; per
// remote input node 4 bytes and its features, where they are not in the cache.
// Steps: one exchange there and back a layer, and one for features.
func (s *Sampler) Run(c *comm.Communicator, b *Batch) error {
	b.memory.pool = s.Slabs
	if err := s.begin(b); err != nil {
		return err
	}
	b.Layers = make([]Layer, len(s.cfg.Fanouts))
	for l := len(s.cfg.Fanouts) - 1; l >= 0; l-- {
		if err := s.layer(c, b, l); err != nil {
			return err
		}
	}
	for t, table := range s.tables {
		nodes, err := b.memory.ints(len(table.Nodes))
		if err != nil {
			return err
		}
		first := s.g.Types[t][0]
		for n, id := range table.Nodes {
			nodes[n] = first + id
		}
		for l := range b.Layers { // each layer's nodes are the first of the next one's
			b.Layers[l].Nodes[t] = nodes[:len(b.Layers[l].Nodes[t])]
		}
	}
	if err := s.outputs(b); err != nil {
		return err
	}
	return s.inputs(c, b)
}

// begin numbers the seeds.
func (s *Sampler) begin(b *Batch) error {
	for q := range s.g.World {
		for t := range s.g.Types {
			s.ask[q].rows[t], s.asked[q].rows[t] = s.ask[q].rows[t][:0], s.asked[q].rows[t][:0]
			s.ask[q].at[t] = s.ask[q].at[t][:0]
		}
	}
	for t, table := range s.tables {
		table.reset()
		for i, row := range b.Seeds[t] {
			if row < 0 || int(row) >= s.g.Own(t) {
				return fmt.Errorf("seed %d is row %d: this worker owns %d nodes of that type", i, row, s.g.Own(t))
			}
			if int(table.number(table.first+int64(row))) != i {
				return fmt.Errorf("seed %d, row %d, is there twice", i, row)
			}
		}
	}
	return nil
}
