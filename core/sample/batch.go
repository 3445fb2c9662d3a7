package sample

import (
	"encoding/binary"
	"fmt"
	"math"

	"sar/core/comm"
	"sar/core/exchange"
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
// for each relation, 16 (8 without edge ids and data) for each edge drawn there; per
// remote input node its features. Steps: 4 exchanges a layer, one more for each
// edge column, 2 and one for each input column at the end.
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
		copy(nodes, table.Nodes)
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
			s.place[q][t] = s.place[q][t][:0]
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

// route sorts the nodes that tables hold since the last call by owner.
func (s *Sampler) route(key uint64) error {
	me := s.g.Rank
	for q := range s.g.World {
		s.ask[q].key = key
		clear(s.ask[q].new)
	}
	for t, table := range s.tables {
		if len(table.Nodes) > math.MaxInt32 {
			return fmt.Errorf("a batch meets %d nodes of one type: at most %d are supported, use fewer seeds or smaller fan-outs", len(table.Nodes), math.MaxInt32)
		}
		known := 0
		for q := range s.g.World {
			known += len(s.ask[q].rows[t])
		}
		space, own := s.g.Types[t], int64(s.g.Own(t))
		for n := known; n < len(table.Nodes); n++ {
			id, q := table.Nodes[n], me
			if row := id - space[me]; row < 0 || row >= own {
				q = space.Owner(id)
			}
			s.ask[q].rows[t] = append(s.ask[q].rows[t], int32(id-space[q]))
			s.place[q][t] = append(s.place[q][t], int32(n))
			s.ask[q].new[t]++
		}
	}
	return nil
}

// send tells the owners of the nodes met since the last call that this rank
// wants them, and learns what the others want.
func (s *Sampler) send(c *comm.Communicator, key uint64, layer int) error {
	if err := s.route(key); err != nil {
		return err
	}
	step := uint64(len(s.cfg.Fanouts))<<32 | uint64(layer+1)
	for q := range s.g.World {
		put := s.sizes[0][q]
		binary.LittleEndian.PutUint64(put, key)
		binary.LittleEndian.PutUint64(put[8:], step)
		for t, n := range s.ask[q].new {
			binary.LittleEndian.PutUint64(put[8*(2+t):], uint64(n))
		}
	}
	if err := c.AllToAll(s.sizes[0], s.sizes[1]); err != nil {
		return err
	}
	out, in := make([]int, s.g.World), make([]int, s.g.World)
	for r := 1; r < s.g.World; r++ {
		to, from := s.peer(r), s.peer(-r)
		if theirs := binary.LittleEndian.Uint64(s.sizes[1][from][8:]); theirs != step {
			return fmt.Errorf("rank %d samples layer %d of %d and rank %d layer %d of %d: every rank needs fan-outs for the same number of layers, and input features or none",
				s.g.Rank, layer, len(s.cfg.Fanouts), from, int64(theirs&math.MaxUint32)-1, theirs>>32)
		}
		for t := range s.g.Types {
			out[r] += s.ask[to].new[t]
			n := binary.LittleEndian.Uint64(s.sizes[1][from][8*(2+t):])
			if have := len(s.asked[from].rows[t]); n > uint64(s.g.Own(t)-have) {
				return fmt.Errorf("rank %d asks for %d rows beside %d of this rank's %d", from, n, have, s.g.Own(t))
			}
			s.asked[from].new[t] = int(n)
			in[r] += int(n)
		}
		s.asked[from].key = binary.LittleEndian.Uint64(s.sizes[1][from])
	}
	return s.move(c, false, 4, out, in,
		func(r, first, n int, dst []byte) error {
			each(s.ask[s.peer(r)], first, n, func(t, from, to, at int) {
				copy(dst[4*at:], bytesOf(s.ask[s.peer(r)].rows[t][from:to]))
			})
			return nil
		},
		nil,
		func(r, first, n int, src []byte) error {
			from := s.peer(-r)
			q := &s.asked[from]
			var err error
			// rows arrive type by type; those of a type are appended as they come
			eachNew(q.new, first, n, func(t, count, at int) {
				for _, row := range view[int32](src)[at : at+count] {
					if row < 0 || int(row) >= s.g.Own(t) {
						err = fmt.Errorf("rank %d asks for row %d of this rank's %d", from, row, s.g.Own(t))
					}
					q.rows[t] = append(q.rows[t], row)
				}
			})
			return err
		})
}

// peer is the rank r places after this one.
func (s *Sampler) peer(r int) int { return (s.g.Rank + r + s.g.World) % s.g.World }

// eachNew splits [first, first+n) of rows that lie type by type into runs of
// one type: count rows, the first of them at place at of the range.
func eachNew(counts []int, first, n int, f func(t, count, at int)) {
	begin := 0
	for t, count := range counts {
		lo, hi := max(first, begin), min(first+n, begin+count)
		if lo < hi {
			f(t, hi-lo, lo-first)
		}
		begin += count
	}
}

// each does the same for the new rows of a request, which are its last:
// [from, to) of the rows of type t go to place at.
func each(q request, first, n int, f func(t, from, to, at int)) {
	begin := 0
	for t, count := range q.new {
		lo, hi := max(first, begin), min(first+n, begin+count)
		if lo < hi {
			old := len(q.rows[t]) - count - begin
			f(t, old+lo, old+hi, lo-first)
		}
		begin += count
	}
}

// move runs one movement of rows.
func (s *Sampler) move(c *comm.Communicator, home bool, rowBytes int, send, recv []int,
	produce func(r, first, n int, dst []byte) error, local func() error, consume func(r, first, n int, src []byte) error) error {
	op, err := c.Begin(comm.KindSample, comm.None)
	if err != nil {
		return err
	}
	m := &exchange.Movement{Op: op, Home: home, RowBytes: rowBytes, Send: send, Recv: recv, Produce: produce, Local: local, Consume: consume}
	_, err = m.Move(s.g.Rank, s.g.World)
	return op.End(err)
}

// layer draws one layer for all nodes met so far.
func (s *Sampler) layer(c *comm.Communicator, b *Batch, l int) error {
	if err := s.send(c, b.Key, l); err != nil {
		return err
	}
	if err := s.counts(c, l); err != nil {
		return err
	}
	layer := &b.Layers[l]
	layer.Edges = make([]Edges, len(s.g.Rels))
	layer.Nodes, layer.NumDst = make([][]int64, len(s.tables)), make([]int, len(s.tables))
	for t, table := range s.tables {
		layer.NumDst[t] = len(table.Nodes)
	}
	for i := range s.g.Rels {
		if err := s.allot(b, layer, i); err != nil {
			return err
		}
	}
	if err := s.edges(c, b, l); err != nil {
		return err
	}
	for i := range s.g.Rels {
		if err := s.number(&layer.Edges[i], i); err != nil {
			return err
		}
	}
	for t, table := range s.tables {
		layer.Nodes[t] = table.Nodes // for its length; Run puts the lasting array here
	}
	for i := range s.cfg.EdgeData {
		for k := range s.cfg.EdgeData[i] {
			if err := s.edgeData(c, b, &layer.Edges[i], i, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// counts learns how many edges every row that this rank asks for gets.
func (s *Sampler) counts(c *comm.Communicator, l int) error {
	me := s.g.Rank
	send, recv := make([]int, s.g.World), make([]int, s.g.World)
	for r := 1; r < s.g.World; r++ { // going home: to p-r, from p+r
		from, to := s.peer(r), s.peer(-r)
		s.count(l, s.asked[to].rows, &s.serve[to])
		s.layout(&s.got[from], s.ask[from].rows)
		send[r], recv[r] = len(s.serve[to].counts), len(s.got[from].counts)
	}
	err := s.move(c, true, 4, send, recv,
		func(r, first, n int, dst []byte) error {
			copy(dst, bytesOf(s.serve[s.peer(-r)].counts[first:first+n]))
			return nil
		},
		func() error { s.count(l, s.ask[me].rows, &s.got[me]); return nil },
		func(r, first, n int, src []byte) error {
			copy(s.got[s.peer(r)].counts[first:first+n], view[uint32](src))
			return nil
		})
	for r := 1; r < s.g.World; r++ {
		s.got[s.peer(r)].sum()
	}
	return err
}

// allot makes the arrays of the edges of one relation, and Indptr from counts.
func (s *Sampler) allot(b *Batch, layer *Layer, i int) (err error) {
	t, out := s.g.Rels[i].DstType, &layer.Edges[i]
	n := layer.NumDst[t]
	if out.Indptr, err = b.memory.ints(n + 1); err != nil {
		return err
	}
	ptr := out.Indptr
	clear(ptr)
	for q := range s.got {
		from, to := s.got[q].entries(i)
		for k, dst := range s.place[q][t][:to-from] {
			ptr[dst+1] = int64(s.got[q].counts[from+k])
		}
	}
	for k := range n {
		ptr[k+1] += ptr[k]
	}
	if out.Indices, err = b.memory.ints(int(ptr[n])); err != nil || !s.withEdges(i) {
		return err
	}
	out.IDs, err = b.memory.ints(int(ptr[n]))
	return err
}

// pair is an edge on its way: 16 bytes, or the first 8 where nobody wants
// edges named.
type pair struct{ src, id int64 }

// edges draws what others and this rank itself asked for, and receives what
// others drew for it. Indices hold node ids for now.
func (s *Sampler) edges(c *comm.Communicator, b *Batch, l int) error {
	me, out := s.g.Rank, b.Layers[l].Edges
	named := s.named()
	bytes := 8
	if named {
		bytes = 16
	}
	send, recv := make([]int, s.g.World), make([]int, s.g.World)
	for r := 1; r < s.g.World; r++ {
		send[r], recv[r] = s.serve[s.peer(-r)].total(), s.got[s.peer(r)].total()
	}
	return s.move(c, true, bytes, send, recv,
		func(r, first, n int, dst []byte) error {
			a := &s.serve[s.peer(-r)]
			if first == 0 {
				s.drawFor(l, s.peer(-r))
			}
			if !named {
				copy(dst, bytesOf(a.src[first:first+n]))
				return nil
			}
			src, id := a.src[first:first+n], a.id[first:first+n]
			for j := range view[pair](dst) {
				view[pair](dst)[j] = pair{src[j], id[j]}
			}
			return nil
		},
		func() error {
			for i, rel := range s.g.Rels {
				s.draw(l, i, b.Key, s.ask[me].rows[rel.DstType], out[i].Indptr, s.place[me][rel.DstType], out[i].Indices, out[i].IDs)
			}
			return nil
		},
		func(r, first, n int, src []byte) error {
			q := s.peer(r)
			for i := range out {
				e := &out[i]
				s.runs(q, i, e.Indptr, first, n, func(to, at, count int) {
					if !named {
						copy(e.Indices[to:to+count], view[int64](src)[at:at+count])
						return
					}
					for j, p := range view[pair](src)[at : at+count] {
						e.Indices[to+j] = p.src
						if e.IDs != nil {
							e.IDs[to+j] = p.id
						}
					}
				})
			}
			return nil
		})
}

// drawFor draws what rank q asked for.
func (s *Sampler) drawFor(l, q int) {
	a := &s.serve[q]
	a.src, a.id = resize(a.src, a.total()), resize(a.id, a.total())
	for i, rel := range s.g.Rels {
		from, to := a.entries(i)
		id := a.id
		if !s.withEdges(i) {
			id = nil
		}
		s.draw(l, i, s.asked[q].key, s.asked[q].rows[rel.DstType], a.at[from:to+1], nil, a.src, id)
	}
}

// runs finds the places of edges [first, first+n) of what rank q answers, as
// far as they are of relation i: count edges at place at of the range go to
// place to of the block. Edges of one row lie side by side in both.
func (s *Sampler) runs(q, i int, indptr []int64, first, n int, f func(to, at, count int)) {
	a, place := &s.got[q], s.place[q][s.g.Rels[i].DstType]
	lo, hi := a.edges(i)
	lo, hi = max(lo, first), min(hi, first+n)
	if lo >= hi {
		return
	}
	from, to := a.entries(i)
	at := a.at[from : to+1]
	for row := after(at, int64(lo)); lo < hi; row++ {
		skip := lo - int(at[row])
		count := min(int(at[row+1])-lo, hi-lo)
		f(int(indptr[place[row]])+skip, lo-first, count)
		lo += count
	}
}

// after is the row that holds edge e: at[row] <= e < at[row+1].
func after(at []int64, e int64) int {
	lo, hi := 0, len(at)-1
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; at[mid] <= e {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// number makes numbers within the block of the node ids in Indices.
func (s *Sampler) number(e *Edges, i int) error {
	rel := s.g.Rels[i]
	space, table := s.g.Types[rel.SrcType], s.tables[rel.SrcType]
	first, n := space[0], uint64(space[len(space)-1]-space[0])
	own := table.own
	for k, id := range e.Indices {
		// own nodes that were met before, which most are
		if row := uint64(id - table.first); row < uint64(len(own)) && own[row] != 0 {
			e.Indices[k] = int64(own[row]) - 1
			continue
		}
		if uint64(id-first) >= n {
			return fmt.Errorf("node %d was named as a source of %s: there are ids from %d to %d", id, rel.Type, first, first+int64(n)-1)
		}
		e.Indices[k] = int64(table.number(id))
	}
	return nil
}

// edgeData brings column k of the edges of relation i that were drawn.
func (s *Sampler) edgeData(c *comm.Communicator, b *Batch, out *Edges, i, k int) error {
	column := s.cfg.EdgeData[i][k]
	size, first := column.RowBytes, s.g.Edges[i][s.g.Rank]
	data, err := b.memory.bytes(len(out.Indices) * size)
	if err != nil {
		return err
	}
	out.Data = append(out.Data, data)
	send, recv := make([]int, s.g.World), make([]int, s.g.World)
	for r := 1; r < s.g.World; r++ {
		from, to := s.serve[s.peer(-r)].edges(i)
		send[r] = to - from
		from, to = s.got[s.peer(r)].edges(i)
		recv[r] = to - from
	}
	gather := func(dst []byte, ids []int64) {
		for j, id := range ids {
			row := int(id-first) * size
			copy(dst[j*size:(j+1)*size], column.Rows[row:row+size])
		}
	}
	return s.move(c, true, size, send, recv,
		func(r, from, n int, dst []byte) error {
			a := &s.serve[s.peer(-r)]
			begin, _ := a.edges(i)
			gather(dst, a.id[begin+from:begin+from+n])
			return nil
		},
		func() error {
			begin, end := s.got[s.g.Rank].edges(i)
			s.runs(s.g.Rank, i, out.Indptr, begin, end-begin, func(to, _, count int) {
				gather(data[to*size:], out.IDs[to:to+count])
			})
			return nil
		},
		func(r, from, n int, src []byte) error {
			begin, _ := s.got[s.peer(r)].edges(i)
			s.runs(s.peer(r), i, out.Indptr, begin+from, n, func(to, at, count int) {
				copy(data[to*size:(to+count)*size], src[at*size:])
			})
			return nil
		})
}

// outputs gathers the columns of the seeds, which are all here.
func (s *Sampler) outputs(b *Batch) error {
	b.Outputs = make([][][]byte, len(s.tables))
	for t := range s.cfg.Outputs {
		for _, column := range s.cfg.Outputs[t] {
			data, err := b.memory.bytes(len(b.Seeds[t]) * column.RowBytes)
			if err != nil {
				return err
			}
			s.copyRows(data, column.Rows, column.RowBytes, nil, b.Seeds[t])
			b.Outputs[t] = append(b.Outputs[t], data)
		}
	}
	return nil
}

// inputs brings the columns of all nodes met.
func (s *Sampler) inputs(c *comm.Communicator, b *Batch) error {
	b.Inputs = make([][][]byte, len(s.tables))
	asked := false
	for t := range s.cfg.Inputs {
		for k := range s.cfg.Inputs[t] {
			if !asked { // the nodes that the last layer met; the others are known
				asked = true
				if err := s.send(c, b.Key, -1); err != nil {
					return err
				}
			}
			if err := s.input(c, b, t, s.cfg.Inputs[t][k]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Sampler) input(c *comm.Communicator, b *Batch, t int, column Column) error {
	size, me := column.RowBytes, s.g.Rank
	data, err := b.memory.bytes(len(s.tables[t].Nodes) * size)
	if err != nil {
		return err
	}
	b.Inputs[t] = append(b.Inputs[t], data)
	send, recv := make([]int, s.g.World), make([]int, s.g.World)
	for r := 1; r < s.g.World; r++ {
		send[r], recv[r] = len(s.asked[s.peer(-r)].rows[t]), len(s.ask[s.peer(r)].rows[t])
	}
	return s.move(c, true, size, send, recv,
		func(r, first, n int, dst []byte) error {
			s.copyRows(dst, column.Rows, size, nil, s.asked[s.peer(-r)].rows[t][first:first+n])
			return nil
		},
		func() error {
			s.copyRows(data, column.Rows, size, s.place[me][t], s.ask[me].rows[t])
			return nil
		},
		func(r, first, n int, src []byte) error {
			s.copyRows(data, src, size, s.place[s.peer(r)][t][first:first+n], nil)
			return nil
		})
}
