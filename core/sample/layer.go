package sample

import (
	"fmt"
	"math"

	"sar/core/comm"
	"sar/core/internal/view"
)

// route sorts the nodes that tables hold since the last call by owner.
func (s *Sampler) route(key uint64) error {
	me := s.g.Rank
	for q := range s.g.World {
		s.ask[q].key = key
		clear(s.ask[q].new)
	}
	for t, table := range s.tables {
		if len(table.Nodes) > math.MaxInt32 {
			return fmt.Errorf("a batch meets %d nodes of one type: at most %d are supported, use fewer seeds or smaller "+
				"fan-outs", len(table.Nodes), math.MaxInt32)
		}
		known := 0
		for q := range s.g.World {
			known += len(s.ask[q].rows[t])
		}
		space, own := s.g.Types[t], uint64(s.g.Own(t))
		for n := known; n < len(table.Nodes); n++ {
			id, q := table.Nodes[n], me
			row := id - table.first
			if uint64(row) >= own {
				q = space.Owner(id + space[0])
				row = id + space[0] - space[q]
			}
			s.ask[q].rows[t] = append(s.ask[q].rows[t], int32(row))
			s.ask[q].at[t] = append(s.ask[q].at[t], int32(n))
			s.ask[q].new[t]++
		}
	}
	return nil
}

// layer draws one layer for all nodes met so far.
func (s *Sampler) layer(c *comm.Communicator, b *Batch, l int) error {
	if err := s.route(b.Key); err != nil {
		return err
	}
	layer := &b.Layers[l]
	layer.Edges = make([]Edges, len(s.g.Rels))
	layer.Nodes, layer.NumDst = make([][]int64, len(s.tables)), make([]int, len(s.tables))
	for t, table := range s.tables {
		layer.NumDst[t] = len(table.Nodes)
	}
	err := s.exchange(c, l, s.edgeLayoutHash(),
		func(t *rpc) error { return s.serveLayer(t, l) },
		func(t *rpc) error { return s.takeLayer(t, b, l) })
	if err != nil {
		return err
	}
	for i, rel := range s.g.Rels {
		ids := layer.Edges[i].Indices
		if k := s.tables[rel.SrcType].numbers(ids); k >= 0 {
			return fmt.Errorf("node %d of %d was named as a source of %s", ids[k], s.tables[rel.SrcType].total, rel.Type)
		}
	}
	for t, table := range s.tables {
		layer.Nodes[t] = table.Nodes // for its length; Run puts the lasting array here
	}
	return nil
}

// serveLayer is what a rank sends: whom it wants edges of, and to the others how
// many edges each of their nodes gets, the edges, and columns of them.
func (s *Sampler) serveLayer(t *rpc, l int) error {
	if err := t.c.ToPeers(func(_, q int) error { return t.sendRequest(q, &s.ask[q]) }); err != nil {
		return err
	}
	err := t.c.FromPeers(func(_, q int) error {
		if !t.await(q) {
			return nil
		}
		a := &s.serve[q]
		s.count(l, s.asked[q].rows, a)
		return t.send(q, len(a.counts), 4, func(first, n int, dst []byte) { copy(dst, view.Bytes(a.counts[first:first+n])) })
	})
	if err != nil {
		return err
	}
	if s.wide {
		err = serveEdges[int64](s, t, l)
	} else {
		err = serveEdges[uint32](s, t, l)
	}
	if err != nil {
		return err
	}
	for i := range s.cfg.EdgeData {
		for _, column := range s.cfg.EdgeData[i] {
			err := t.c.FromPeers(func(_, q int) error {
				begin, end := s.serve[q].edges(i)
				ids := s.serve[q].id[begin:end]
				return t.send(q, len(ids), column.RowBytes, func(first, n int, dst []byte) {
					s.copyRows(dst, column.Rows, column.RowBytes, nil, ids[first:first+n])
				})
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// edgeSize is the size of an edge on the wire: its source, and the edge itself
// where anybody wants edges named.
func edgeSize(s *Sampler) int {
	n := 4
	if s.wide {
		n = 8
	}
	if s.named() {
		n *= 2
	}
	return n
}

// ends are the sources and the edges of a frame of n edges.
func ends[T wireID](s *Sampler, frame []byte, n int) (src, id []T) {
	all := view.Numbers[T](frame)
	if s.named() {
		id = all[n:]
	}
	return all[:n], id
}

func serveEdges[T wireID](s *Sampler, t *rpc, l int) error {
	return t.c.FromPeers(func(_, q int) error {
		a := &s.serve[q]
		if s.cfg.EdgeData != nil {
			a.id = resize(a.id, a.total())
		}
		return t.send(q, a.total(), edgeSize(s), func(first, n int, dst []byte) {
			src, id := ends[T](s, dst, n)
			drawFor(s, l, q, first, src, id)
		})
	})
}

// takeLayer is what a rank receives, and the edges that it draws itself.
func (s *Sampler) takeLayer(t *rpc, b *Batch, l int) error {
	me, out := s.g.Rank, b.Layers[l].Edges
	if err := t.c.FromPeers(func(_, q int) error { return t.recvRequest(q, &s.asked[q]) }); err != nil {
		return err
	}
	s.count(l, s.ask[me].rows, &s.got[me])
	err := t.c.ToPeers(func(_, q int) error {
		a := &s.got[q]
		s.layout(a, s.ask[q].rows)
		err := t.receive(q, len(a.counts), 4, func(first, n int, src []byte) error {
			copy(a.counts[first:], view.Numbers[uint32](src))
			return nil
		})
		a.sum()
		return err
	})
	if err != nil {
		return err
	}
	for i := range s.g.Rels {
		if err := s.allot(b, &b.Layers[l], i); err != nil {
			return err
		}
	}
	for i := range s.g.Rels {
		s.drawOwn(l, i, b, &out[i])
	}
	if s.wide {
		err = takeEdges[int64](s, t, out)
	} else {
		err = takeEdges[uint32](s, t, out)
	}
	if err != nil {
		return err
	}
	for i := range s.cfg.EdgeData {
		for _, column := range s.cfg.EdgeData[i] {
			if err := s.takeEdgeData(t, b, &out[i], i, column); err != nil {
				return err
			}
		}
	}
	return nil
}

// allot makes the arrays of the edges of one relation, and Indptr from counts.
func (s *Sampler) allot(b *Batch, layer *Layer, i int) (err error) {
	t, out := s.g.Rels[i].DstType, &layer.Edges[i]
	n := layer.NumDst[t]
	if out.Indptr, err = b.memory.ints(n + 1); err != nil {
		return err
	}
	ptr := out.Indptr
	ptr[0] = 0
	for q := range s.got {
		from, to := s.got[q].entries(i)
		counts := s.got[q].counts[from:to]
		for k, dst := range s.ask[q].at[t][:to-from] {
			ptr[dst+1] = int64(counts[k])
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

func takeEdges[T wireID](s *Sampler, t *rpc, out []Edges) error {
	return t.c.ToPeers(func(_, q int) error {
		return t.receive(q, s.got[q].total(), edgeSize(s), func(first, n int, frame []byte) error {
			src, id := ends[T](s, frame, n)
			for i := range out {
				e, edge := &out[i], s.g.Edges[i][q]
				s.runs(q, i, e.Indptr, first, n, func(to, at, count int) {
					indices := e.Indices[to : to+count]
					for j, id := range src[at:][:count] {
						indices[j] = int64(id)
					}
					if e.IDs != nil {
						ids := e.IDs[to : to+count]
						for j, id := range id[at:][:count] {
							ids[j] = edge + int64(id)
						}
					}
				})
			}
			return nil
		})
	})
}

// takeEdgeData brings a column of the edges of relation i that were drawn.
func (s *Sampler) takeEdgeData(t *rpc, b *Batch, out *Edges, i int, column Column) error {
	size, me := column.RowBytes, s.g.Rank
	data, err := b.memory.bytes(len(out.Indices) * size)
	if err != nil {
		return err
	}
	out.Data = append(out.Data, data)
	begin, end := s.got[me].edges(i)
	first := s.g.Edges[i][me]
	s.runs(me, i, out.Indptr, begin, end-begin, func(to, _, count int) {
		for j, id := range out.IDs[to : to+count] {
			row := int(id-first) * size
			copy(data[(to+j)*size:(to+j+1)*size], column.Rows[row:row+size])
		}
	})
	return t.c.ToPeers(func(_, q int) error {
		begin, end := s.got[q].edges(i)
		return t.receive(q, end-begin, size, func(first, n int, src []byte) error {
			s.runs(q, i, out.Indptr, begin+first, n, func(to, at, count int) {
				copy(data[to*size:(to+count)*size], src[at*size:])
			})
			return nil
		})
	})
}
