package topology

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/mem"
)

// block is what a graph that is a block (message-flow graph) knows beside its
// relations. Rows are own row numbers of the graph it was made of.
type block struct {
	sources []mem.Array[int32] // [type] source rows, in the block's order
	seeds   []mem.Array[int32] // [type] destination rows, likewise
	// Rows of all workers: source and destination rows by type.
	srcGlobal, dstGlobal []int64
}

func (b *block) free() {
	if b == nil {
		return
	}
	for t := range b.sources {
		b.sources[t].Free()
		b.seeds[t].Free()
	}
}

// IsBlock tells whether the graph is a block.
func (g *Graph) IsBlock() bool { return g.block != nil }

// BlockSources are the source rows of node type t of a block, as own rows of the graph it
// was made of.
func (g *Graph) BlockSources(t int) []int32 { return g.block.sources[t].Data }

// BlockSeeds are the destination rows, likewise.
func (g *Graph) BlockSeeds(t int) []int32 { return g.block.seeds[t].Data }

// NumNodesGlobal are the rows of all workers that are sources and destinations of a relation.
func (g *Graph) NumNodesGlobal(rel *graph.Relation) (src, dst int64) {
	if g.block != nil {
		return g.block.srcGlobal[rel.SrcType], g.block.dstGlobal[rel.DstType]
	}
	return g.Book.NumNodesGlobal(rel.SrcType), g.Book.NumNodesGlobal(rel.DstType)
}

// Block makes a block out of a full graph: the edges into the own rows seeds[t] of every
// node type t, each once, in the order given, and as source rows of a type all rows that
// some worker reads over them, ascending. With keepSeeds the seeds of a type come first
// among its source rows, in their order; without, they are there where they are read.
// The block shares nothing with g.
//
// One exchange: 4 bytes a halo row of g. Then sizes are added up.
func (g *Graph) Block(c *comm.Communicator, seeds [][]int64, keepSeeds bool) (made *Graph, err error) {
	types := len(g.Book.NodeTypes)
	b := &block{sources: make([]mem.Array[int32], types), seeds: make([]mem.Array[int32], types)}
	made = &Graph{Book: g.Book, pool: g.pool, source: g.source, block: b}
	defer func() {
		if err != nil {
			made.Free()
			made = nil
		}
	}()
	for t, rows := range seeds {
		if b.seeds[t], err = mem.Make[int32](mem.Structure, len(rows)); err != nil {
			return made, err
		}
		for i, row := range rows {
			b.seeds[t].Data[i] = int32(row)
		}
	}
	parts := make([]*graph.Induction, len(g.Relations))
	defer func() {
		for _, d := range parts {
			if d != nil {
				d.Free()
			}
		}
	}()
	for i, rel := range g.Relations {
		if parts[i], err = graph.Induce(rel.Structure, b.seeds[rel.DstType].Data); err != nil {
			return made, err
		}
	}
	asked, free, err := g.askBlock(c, parts)
	defer free()
	if err != nil {
		return made, err
	}
	for t := range b.sources {
		keep := b.seeds[t].Data
		if !keepSeeds {
			keep = nil
		}
		if b.sources[t], err = g.blockSources(t, c.Rank(), parts, asked, keep); err != nil {
			return made, err
		}
	}
	for i, rel := range g.Relations {
		s, err := parts[i].Structure(b.sources[rel.SrcType].Data, g.pool.Threads())
		if err != nil {
			return made, err
		}
		r := &graph.Relation{Structure: s}
		made.Relations = append(made.Relations, r)
		if err := connectBlock(r, rel, b.sources[rel.SrcType].Data, asked[i]); err != nil {
			return made, err
		}
	}
	return made, made.addUp(c)
}

// askBlock tells the owners of halo rows how many wanted edges leave each, for all
// relations in one movement. asked[relation][r] are, by position in Send[r], the edges of
// own rows that the peer of round r wants.
func (g *Graph) askBlock(c *comm.Communicator, parts []*graph.Induction) (asked [][][]int32, free func(), err error) {
	world := c.World()
	x := records{size: 4, send: make([]int, world), recv: make([]int, world)}
	out, in := make([]mem.Array[int32], world), make([]mem.Array[int32], world)
	free = func() {
		for r := range out {
			out[r].Free()
			in[r].Free()
		}
	}
	asked = make([][][]int32, len(parts))
	for i := range asked {
		asked[i] = make([][]int32, world)
	}
	for r := 1; r < world; r++ {
		for i, rel := range g.Relations {
			x.send[r] += len(parts[i].HaloCount(r))
			x.recv[r] += len(rel.Send[r].Data)
		}
		if err = cmp.Or(out[r].Make(mem.Scratch, x.send[r]), in[r].Make(mem.Scratch, x.recv[r])); err != nil {
			return asked, free, err
		}
		at, from := 0, 0
		for i, rel := range g.Relations {
			at += copy(out[r].Data[at:], parts[i].HaloCount(r))
			n := len(rel.Send[r].Data)
			asked[i][r] = in[r].Data[from : from+n]
			from += n
		}
	}
	x.put = func(r, i int, dst []byte) { binary.LittleEndian.PutUint32(dst, uint32(out[r].Data[i])) }
	x.get = func(r, i int, src []byte) error {
		edges := int32(binary.LittleEndian.Uint32(src))
		if edges < 0 {
			return fmt.Errorf("rank %d wants %d edges of a row", (c.Rank()+r)%world, edges)
		}
		in[r].Data[i] = edges
		return nil
	}
	return asked, free, x.toOwners(c, comm.KindBlock)
}

// blockSources lists the source rows of node type t: keep first, then those that are read.
func (g *Graph) blockSources(t, rank int, parts []*graph.Induction, asked [][][]int32,
	keep []int32) (rows mem.Array[int32], err error) {
	read, err := mem.Make[uint8](mem.Scratch, int(g.Book.NumNodes(t, rank)))
	if err != nil {
		return rows, err
	}
	defer read.Free()
	for i, rel := range g.Relations {
		if rel.SrcType != t {
			continue
		}
		for row, n := range parts[i].Count.Data[:rel.NumSrc] {
			if n > 0 {
				read.Data[row] = 1
			}
		}
		for r := 1; r < rel.Parts; r++ {
			for k, n := range asked[i][r] {
				if n > 0 {
					read.Data[rel.Send[r].Data[k]] = 1
				}
			}
		}
	}
	for _, row := range keep {
		read.Data[row] = 0 // they come first
	}
	n := len(keep)
	for _, is := range read.Data {
		n += int(is)
	}
	if rows, err = mem.Make[int32](mem.Structure, n); err != nil {
		return rows, err
	}
	n = copy(rows.Data, keep)
	for row, is := range read.Data {
		if is == 1 {
			rows.Data[n] = int32(row)
			n++
		}
	}
	return rows, nil
}

// connectBlock makes send lists and out-degrees of a block's relation r from those of
// parent and from what the peers asked for.
func connectBlock(r, parent *graph.Relation, sources []int32, asked [][]int32) (err error) {
	number, err := mem.Make[int32](mem.Scratch, parent.NumSrc) // in the block, of rows that it has
	if err != nil {
		return err
	}
	defer number.Free()
	for i, row := range sources {
		number.Data[row] = int32(i)
	}
	if r.OutDegree, err = mem.Make[int64](mem.Structure, r.NumSrc); err != nil {
		return err
	}
	for j := range r.OutDegree.Data {
		r.OutDegree.Data[j] = int64(r.ColPtr.Data[j+1] - r.ColPtr.Data[j])
	}
	r.Send = make([]mem.Array[int32], r.Parts)
	for q := 1; q < r.Parts; q++ {
		n := 0
		for _, edges := range asked[q] {
			if edges > 0 {
				n++
			}
		}
		if r.Send[q], err = mem.Make[int32](mem.Structure, n); err != nil {
			return err
		}
		n = 0
		for i, edges := range asked[q] {
			if edges > 0 {
				row := number.Data[parent.Send[q].Data[i]]
				r.Send[q].Data[n] = row
				r.OutDegree.Data[row] += int64(edges)
				n++
			}
		}
	}
	return nil
}

// addUp learns the sizes of a block over all workers.
func (g *Graph) addUp(c *comm.Communicator) error {
	var sizes []int64
	for _, rel := range g.Relations {
		sizes = append(sizes, rel.NumEdges)
	}
	b := g.block
	for t := range b.seeds {
		sizes = append(sizes, int64(len(b.sources[t].Data)), int64(len(b.seeds[t].Data)))
	}
	all, err := c.SumInts(sizes...)
	if err != nil {
		return err
	}
	for i, rel := range g.Relations {
		rel.NumEdgesGlobal = all[i]
	}
	for all = all[len(g.Relations):]; len(all) > 0; all = all[2:] {
		b.srcGlobal, b.dstGlobal = append(b.srcGlobal, all[0]), append(b.dstGlobal, all[1])
	}
	return nil
}

// orderBlock makes the edge order of a block whose full graph had none when the block was
// made: from the source, and without the peers.
func (g *Graph) orderBlock(rel *graph.Relation) error {
	if g.source == nil {
		return fmt.Errorf("edge order of %s: the block was made of a graph that has none", rel.Type)
	}
	return g.source.Open(func() error {
		full, err := graph.Build(g.Book, rel.Rank, g.source, graph.BuildOptions{EdgeOrder: true, Threads: g.pool.Threads()})
		if err != nil {
			return err
		}
		defer func() {
			for _, s := range full {
				s.Free()
			}
		}()
		for i, own := range g.Relations {
			if own.HasEdgeOrder() {
				continue
			}
			d, err := graph.Induce(full[i], g.block.seeds[own.DstType].Data)
			if err != nil {
				return err
			}
			again, err := d.Structure(g.block.sources[own.SrcType].Data, g.pool.Threads())
			d.Free()
			if err != nil {
				return err
			}
			err = own.TakeEdgeOrder(again)
			again.Free()
			if err != nil {
				return err
			}
		}
		return nil
	})
}
