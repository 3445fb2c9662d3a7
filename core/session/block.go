package session

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/graph"
	"sar/core/mem"
)

// block is what a Graph that is a block (message-flow graph) knows beside its
// relations. Rows are own row numbers of the graph it was induced from.
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

// Block makes a block out of a full graph: the edges into the own rows seeds[t]
// of every node type t, each once, in the order given, and as source rows of a
// type all rows that some worker reads over them, ascending. With keepSeeds the
// seeds of a type come first among its source rows, in their order; without,
// they are there where they are read. The block shares nothing with g. Collective.
//
// One exchange: 4 bytes a boundary row of g. Then sizes are added up.
func (g *Graph) Block(seeds [][]int64, keepSeeds bool) (*Graph, error) {
	if g.block != nil {
		return nil, Invalid("blocks are made out of full graphs, and this graph is a block: give the full graph the source rows of the block as seeds")
	}
	b, err := g.newBlock(seeds)
	if err != nil {
		return nil, err
	}
	made := &Graph{session: g.session, book: g.book, block: b}
	if g.source != nil {
		made.source = &fileSource{path: g.source.path, part: g.source.part}
	}
	err = g.session.collective("making a block", func() error { return g.induce(made, keepSeeds) })
	if err != nil {
		made.Free()
		return nil, err
	}
	return made, nil
}

// newBlock checks and copies the seeds.
func (g *Graph) newBlock(seeds [][]int64) (*block, error) {
	types := len(g.book.NodeTypes)
	if len(seeds) != types {
		return nil, Invalid("seeds of %d node types, and the graph has %d", len(seeds), types)
	}
	b := &block{sources: make([]mem.Array[int32], types), seeds: make([]mem.Array[int32], types)}
	for t, rows := range seeds {
		if err := g.checkSeeds(t, rows); err != nil {
			b.free()
			return nil, err
		}
		array, err := mem.Make[int32](mem.Structure, len(rows))
		if err != nil {
			b.free()
			return nil, err
		}
		for i, row := range rows {
			array.Data[i] = int32(row)
		}
		b.seeds[t] = array
	}
	return b, nil
}

// checkSeeds refuses rows that are not own ones, or there twice.
func (g *Graph) checkSeeds(t int, rows []int64) error {
	own := g.book.NumNodes(t, g.session.Rank())
	seen, err := mem.Make[uint64](mem.Scratch, int(own/64+1))
	if err != nil {
		return err
	}
	defer seen.Free()
	for _, row := range rows {
		if row < 0 || row >= own {
			return Invalid("seeds of node type %q: row %d; this worker owns rows 0 to %d", g.book.NodeTypes[t], row, own-1)
		}
		if bit := uint64(1) << (row % 64); seen.Data[row/64]&bit == 0 {
			seen.Data[row/64] |= bit
		} else {
			return Invalid("seeds of node type %q: row %d is there twice", g.book.NodeTypes[t], row)
		}
	}
	return nil
}

// induce fills made with relations that are connected.
func (g *Graph) induce(made *Graph, keepSeeds bool) error {
	ways := make([]*graph.Induction, len(g.relations))
	defer func() {
		for _, d := range ways {
			if d != nil {
				d.Free()
			}
		}
	}()
	for i, rel := range g.relations {
		var err error
		if ways[i], err = graph.Induce(rel, made.block.seeds[rel.DstType].Data); err != nil {
			return err
		}
	}
	asked, free, err := g.askBlock(ways)
	defer free()
	if err != nil {
		return err
	}
	for t := range made.block.sources {
		if made.block.sources[t], err = g.blockSources(t, ways, asked, made.block.seeds[t].Data, keepSeeds); err != nil {
			return err
		}
	}
	for i, rel := range g.relations {
		r, err := ways[i].Relation(made.block.sources[rel.SrcType].Data, asked[i], pool.Threads())
		if err != nil {
			return err
		}
		made.relations = append(made.relations, r)
	}
	return g.addUp(made)
}

// askBlock tells the owners of boundary rows how many wanted edges leave each,
// for all relations in one movement. asked[relation][r] are, by position in
// Send[r], the edges of own rows that the peer of round r wants.
func (g *Graph) askBlock(ways []*graph.Induction) (asked [][][]int32, free func(), err error) {
	rank, parts := g.session.Rank(), g.session.World()
	send, recv := make([]int, parts), make([]int, parts)
	out, in := make([]mem.Array[int32], parts), make([]mem.Array[int32], parts)
	free = func() {
		for r := range out {
			out[r].Free()
			in[r].Free()
		}
	}
	asked = make([][][]int32, len(ways))
	for i := range asked {
		asked[i] = make([][]int32, parts)
	}
	for r := 1; r < parts; r++ {
		for i, rel := range g.relations {
			send[r] += len(ways[i].HaloCount(r))
			recv[r] += len(rel.Send[r].Data)
		}
		if out[r], err = mem.Make[int32](mem.Scratch, send[r]); err != nil {
			return asked, free, err
		}
		if in[r], err = mem.Make[int32](mem.Scratch, recv[r]); err != nil {
			return asked, free, err
		}
		at, from := 0, 0
		for i, rel := range g.relations {
			at += copy(out[r].Data[at:], ways[i].HaloCount(r))
			n := len(rel.Send[r].Data)
			asked[i][r] = in[r].Data[from : from+n]
			from += n
		}
	}
	const size = 4
	err = g.run(comm.KindBlock, comm.Backward, size, "", func(op *comm.Op) error {
		m := &exchange.Movement{
			Op: op, ToOwner: true, RowBytes: size, Send: send, Recv: recv,
			Produce: func(r, first, n int, dst []byte) error {
				copy(dst, counts(out[r].Data[first:first+n]))
				return nil
			},
			Consume: func(r, first, n int, src []byte) error {
				copy(counts(in[r].Data[first:first+n]), src)
				for _, edges := range in[r].Data[first : first+n] {
					if edges < 0 {
						return fmt.Errorf("rank %d wants %d edges of a row", (rank+r)%parts, edges)
					}
				}
				return nil
			},
		}
		_, err := m.Move(rank, parts)
		return err
	})
	return asked, free, err
}

// counts are numbers as they travel: between workers of one byte order.
func counts(n []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(n))), 4*len(n))
}

// blockSources lists the source rows of node type t.
func (g *Graph) blockSources(t int, ways []*graph.Induction, asked [][][]int32, seeds []int32, keepSeeds bool) (rows mem.Array[int32], err error) {
	own := int(g.book.NumNodes(t, g.session.Rank()))
	read, err := mem.Make[uint8](mem.Scratch, own)
	if err != nil {
		return rows, err
	}
	defer read.Free()
	for i, rel := range g.relations {
		if rel.SrcType != t {
			continue
		}
		for row, n := range ways[i].Count.Data[:rel.NumSrc] {
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
	n := 0
	if keepSeeds {
		for _, row := range seeds {
			read.Data[row] = 0 // they come first
		}
		n = len(seeds)
	}
	for _, is := range read.Data {
		if is == 1 {
			n++
		}
	}
	if rows, err = mem.Make[int32](mem.Structure, n); err != nil {
		return rows, err
	}
	n = 0
	if keepSeeds {
		n = copy(rows.Data, seeds)
	}
	for row, is := range read.Data {
		if is == 1 {
			rows.Data[n] = int32(row)
			n++
		}
	}
	return rows, nil
}

// addUp learns the sizes of the block over all workers.
func (g *Graph) addUp(made *Graph) error {
	b, types := made.block, len(made.block.seeds)
	var buf []byte
	for _, rel := range made.relations {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(rel.NumEdges))
	}
	for t := range types {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(len(b.sources[t].Data)))
		buf = binary.LittleEndian.AppendUint64(buf, uint64(len(b.seeds[t].Data)))
	}
	train, err := g.session.Comm(Train)
	if err != nil {
		return err
	}
	if err := train.AllReduce(buf, comm.Int64, comm.Sum); err != nil {
		return err
	}
	next := func() (n int64) {
		n, buf = int64(binary.LittleEndian.Uint64(buf)), buf[8:]
		return n
	}
	for _, rel := range made.relations {
		rel.NumEdgesGlobal = next()
	}
	for range types {
		b.srcGlobal, b.dstGlobal = append(b.srcGlobal, next()), append(b.dstGlobal, next())
	}
	return nil
}

// orderBlock makes the edge order of a block whose full graph had none when the
// block was made: from the file, and without the peers.
func (g *Graph) orderBlock(rel *graph.Relation) error {
	if g.source == nil {
		return fmt.Errorf("edge order of %s: the block was made of a graph that has none", rel.Type)
	}
	return g.source.open(func() error {
		full, err := graph.Build(g.book, rel.Rank, g.source, graph.BuildOptions{EdgeOrder: true, Threads: pool.Threads()})
		if err != nil {
			return err
		}
		defer func() {
			for _, r := range full {
				r.Free()
			}
		}()
		for i, own := range g.relations {
			if own.HasEdgeOrder() {
				continue
			}
			d, err := graph.Induce(full[i], g.block.seeds[own.DstType].Data)
			if err != nil {
				return err
			}
			again, err := d.Relation(g.block.sources[own.SrcType].Data, nil, pool.Threads())
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

// NumNodeTypes is the number of node types.
func (g *Graph) NumNodeTypes() int { return len(g.book.NodeTypes) }

// BlockRows are, by node type, the source rows of a block as own rows of the
// graph it was made of; with dst, its destination rows.
func (g *Graph) BlockRows(t int, dst bool) ([]int32, error) {
	if g.block == nil {
		return nil, Invalid("this graph is no block")
	}
	if t < 0 || t >= len(g.block.seeds) {
		return nil, Invalid("there is no node type %d: this graph has %d", t, len(g.block.seeds))
	}
	if dst {
		return g.block.seeds[t].Data, nil
	}
	return g.block.sources[t].Data, nil
}

// BlockEdges are, for every edge of relation i of a block in the users' order,
// its position among the edges of the graph that the block was made of.
func (g *Graph) BlockEdges(i int) ([]int32, error) {
	rel, err := g.Relation(i)
	if err != nil {
		return nil, err
	}
	if g.block == nil {
		return nil, Invalid("this graph is no block")
	}
	if err := g.edgeOrder(rel); err != nil {
		return nil, err
	}
	return rel.ParentEdge.Data, nil
}
