package sample

import (
	"encoding/binary"
	"fmt"
	"math"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/kernel"
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
func (s *Sampler) send(c *comm.Communicator, key uint64) error {
	if err := s.route(key); err != nil {
		return err
	}
	for q := range s.g.World {
		put := s.sizes[0][q]
		binary.LittleEndian.PutUint64(put, key)
		for t, n := range s.ask[q].new {
			binary.LittleEndian.PutUint64(put[8*(1+t):], uint64(n))
		}
	}
	if err := c.AllToAll(s.sizes[0], s.sizes[1]); err != nil {
		return err
	}
	out, in := make([]int, s.g.World), make([]int, s.g.World)
	for r := 1; r < s.g.World; r++ {
		to, from := s.peer(r), s.peer(-r)
		for t := range s.g.Types {
			out[r] += s.ask[to].new[t]
			n := binary.LittleEndian.Uint64(s.sizes[1][from][8*(1+t):])
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
	if err := s.send(c, b.Key); err != nil {
		return err
	}
	if err := s.answers(c, l); err != nil {
		return err
	}
	layer := &b.Layers[l]
	layer.Edges = make([]Edges, len(s.g.Rels))
	layer.Nodes, layer.NumDst = make([][]int64, len(s.tables)), make([]int, len(s.tables))
	for t, table := range s.tables {
		layer.NumDst[t] = len(table.Nodes)
	}
	for i := range s.g.Rels {
		if err := s.assemble(b, layer, i); err != nil {
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

// answers draws what others and this rank itself asked for, and receives what
// others drew for it. Two movements: counts, then edges.
func (s *Sampler) answers(c *comm.Communicator, l int) error {
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
	if err != nil {
		return err
	}
	wide := s.named()
	bytes := 8
	if wide {
		bytes = 16
	}
	for r := 1; r < s.g.World; r++ {
		from, to := s.peer(r), s.peer(-r)
		s.got[from].sum()
		send[r], recv[r] = len(s.serve[to].edges), len(s.got[from].edges)
	}
	return s.move(c, true, bytes, send, recv,
		func(r, first, n int, dst []byte) error {
			to := s.peer(-r)
			if first == 0 {
				s.draw(l, &s.asked[to], &s.serve[to])
			}
			edges := s.serve[to].edges[first : first+n]
			if wide {
				copy(view[edge](dst), edges)
				return nil
			}
			narrow := view[int64](dst)
			for i, e := range edges {
				narrow[i] = e.src
			}
			return nil
		},
		func() error { s.draw(l, &s.ask[me], &s.got[me]); return nil },
		func(r, first, n int, src []byte) error {
			edges := s.got[s.peer(r)].edges[first : first+n]
			if wide {
				copy(edges, view[edge](src))
				return nil
			}
			for i, id := range view[int64](src) {
				edges[i].src = id
			}
			return nil
		})
}

// assemble makes the edges of one relation out of the answers: own ones first,
// then rank by rank, each in the order of its request.
func (s *Sampler) assemble(b *Batch, layer *Layer, i int) (err error) {
	rel, out := s.g.Rels[i], &layer.Edges[i]
	n := layer.NumDst[rel.DstType]
	if out.Indptr, err = b.memory.ints(n + 1); err != nil {
		return err
	}
	ptr := out.Indptr
	clear(ptr)
	for q := range s.got {
		a := &s.got[q]
		counts := a.counts[a.first[i]:a.first[i+1]]
		for k, dst := range s.place[q][rel.DstType][:len(counts)] {
			ptr[dst+1] = int64(counts[k])
		}
	}
	for k := range n {
		ptr[k+1] += ptr[k]
	}
	if out.Indices, err = b.memory.ints(int(ptr[n])); err != nil {
		return err
	}
	if s.cfg.EdgeIDs {
		if out.IDs, err = b.memory.ints(int(ptr[n])); err != nil {
			return err
		}
	}
	space, table := s.g.Types[rel.SrcType], s.tables[rel.SrcType]
	for r := range s.g.World {
		q := s.peer(r)
		a := &s.got[q]
		at := a.at[a.first[i] : a.first[i+1]+1]
		for k, dst := range s.place[q][rel.DstType][:len(at)-1] {
			to := out.Indices[ptr[dst]:ptr[dst+1]]
			edges := a.edges[at[k]:at[k+1]]
			for j, e := range edges {
				if e.src < space[0] || e.src >= space[len(space)-1] {
					return fmt.Errorf("rank %d names node %d as a source of %s: there are ids from %d to %d", q, e.src, rel.Type, space[0], space[len(space)-1]-1)
				}
				to[j] = int64(table.number(e.src))
			}
			if out.IDs != nil {
				ids := out.IDs[ptr[dst]:ptr[dst+1]]
				for j, e := range edges {
					ids[j] = e.id
				}
			}
		}
	}
	return nil
}

// edgeData brings column k of the edges of relation i that were drawn.
func (s *Sampler) edgeData(c *comm.Communicator, b *Batch, out *Edges, i, k int) error {
	column, me := s.cfg.EdgeData[i][k], s.g.Rank
	size, dstType := column.RowBytes, s.g.Rels[i].DstType
	data, err := b.memory.bytes(len(out.Indices) * size)
	if err != nil {
		return err
	}
	out.Data = append(out.Data, data)
	first := s.g.Edges[i][me]
	send, recv := make([]int, s.g.World), make([]int, s.g.World)
	own := func(a *answer) []edge { return a.edges[a.at[a.first[i]]:a.at[a.first[i+1]]] }
	for r := 1; r < s.g.World; r++ {
		send[r], recv[r] = len(own(&s.serve[s.peer(-r)])), len(own(&s.got[s.peer(r)]))
	}
	// edges of one row lie side by side in the answer and in the block
	runs := func(q, from, n int, f func(dst []byte, at, count int)) {
		a := &s.got[q]
		at := a.at[a.first[i] : a.first[i+1]+1]
		row := after(at, at[0]+from)
		for done := 0; done < n; row++ {
			skip := at[0] + from + done - at[row]
			count := min(at[row+1]-at[row]-skip, n-done)
			to := (int(out.Indptr[s.place[q][dstType][row]]) + skip) * size
			f(data[to:to+count*size], done, count)
			done += count
		}
	}
	return s.move(c, true, size, send, recv,
		func(r, from, n int, dst []byte) error {
			for j, e := range own(&s.serve[s.peer(-r)])[from : from+n] {
				row := int(e.id-first) * size
				copy(dst[j*size:(j+1)*size], column.Rows[row:row+size])
			}
			return nil
		},
		func() error {
			edges := own(&s.got[me])
			runs(me, 0, len(edges), func(dst []byte, at, count int) {
				for j, e := range edges[at : at+count] {
					row := int(e.id-first) * size
					copy(dst[j*size:(j+1)*size], column.Rows[row:row+size])
				}
			})
			return nil
		},
		func(r, from, n int, src []byte) error {
			runs(s.peer(r), from, n, func(dst []byte, at, count int) { copy(dst, src[at*size:(at+count)*size]) })
			return nil
		})
}

// after is the row that holds edge e: at[row] <= e < at[row+1].
func after(at []int, e int) int {
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

// outputs gathers the columns of the seeds, which are all here.
func (s *Sampler) outputs(b *Batch) error {
	b.Outputs = make([][][]byte, len(s.tables))
	for t := range s.cfg.Outputs {
		for _, column := range s.cfg.Outputs[t] {
			data, err := b.memory.bytes(len(b.Seeds[t]) * column.RowBytes)
			if err != nil {
				return err
			}
			kernel.GatherRows(s.pool, data, column.Rows, column.RowBytes, b.Seeds[t])
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
				if err := s.send(c, b.Key); err != nil {
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
			kernel.GatherRows(s.pool, dst, column.Rows, size, s.asked[s.peer(-r)].rows[t][first:first+n])
			return nil
		},
		func() error {
			s.scatter(data, size, s.place[me][t], func(i int) []byte {
				row := int(s.ask[me].rows[t][i]) * size
				return column.Rows[row : row+size]
			})
			return nil
		},
		func(r, first, n int, src []byte) error {
			s.scatter(data, size, s.place[s.peer(r)][t][first:first+n], func(i int) []byte { return src[i*size : (i+1)*size] })
			return nil
		})
}

// scatter puts row i of some rows to place[i] of data. In parallel.
func (s *Sampler) scatter(data []byte, size int, place []int32, row func(i int) []byte) {
	tasks := (len(place) + rowsPerTask - 1) / rowsPerTask
	s.pool.Run(tasks, func(task int) {
		for i := task * rowsPerTask; i < min((task+1)*rowsPerTask, len(place)); i++ {
			to := int(place[i]) * size
			copy(data[to:to+size], row(i))
		}
	})
}
