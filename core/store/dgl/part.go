// Package dgl reads and writes partitions in the format of dgl.distributed: a file of a graph
// and two of features for each part.
package dgl

import (
	"fmt"
	"slices"

	"sar/core/graph"
	"sar/core/internal/dtypes"
	"sar/core/internal/must"
	"sar/core/store/disk"
)

// Part is a partition. Its graph has one node type and one relation, whatever the types of the
// graph that was partitioned, with their types as data.
type Part struct {
	files                [3]*disk.File // as Files has them
	nodeFeats, edgeFeats map[string]disk.Array

	f    *disk.File // the graph
	book *graph.Book
	part int
	m    matrix

	nodeID, innerNode        disk.Array
	edgeID, innerEdge        disk.Array
	edgeType                 *disk.Array // nil where there is one relation
	nodes, inner, innerEdges int64
}

// openGraph reads the headers of the graph file.
func (p *Part) openGraph(f *disk.File) {
	g := must.Get(parseGraphs(f))
	book, part := p.book, p.part
	f.Want(len(g.relations) == 1 && len(g.numNodes) == 1, graphsHeader,
		"a partition: a graph of one node type and one relation, types being data", "%d node types and %d relations",
		len(g.numNodes), len(g.relations))
	p.f, p.m, p.nodes = f, g.relations[0], g.numNodes[0]
	at := p.m.col.Offset
	f.Want(p.m.numSrc == p.nodes && p.m.numDst == p.nodes, at,
		fmt.Sprintf("edges among the %d nodes of the partition", p.nodes), "a matrix of %d by %d", p.m.numSrc, p.m.numDst)
	lo, hi := book.Nodes(part)
	p.inner = hi - lo
	lo, hi = book.Edges(part)
	p.innerEdges = hi - lo
	f.Want(p.nodes >= p.inner, at, fmt.Sprintf("at least the %d nodes that partition %d owns", p.inner, part), "%d",
		p.nodes)
	f.Want(p.m.edges >= p.innerEdges, at, fmt.Sprintf("at least the %d edges that partition %d owns", p.innerEdges, part),
		"%d", p.m.edges)
	type wanted struct {
		into  *disk.Array
		frame []namedArray
		name  string
		n     int64
		what  string
	}
	list := []wanted{
		{&p.nodeID, g.ndata[0], "_ID", p.nodes, "the ids of nodes"},
		{&p.innerNode, g.ndata[0], "inner_node", p.nodes, "the marks of inner nodes"},
		{&p.edgeID, g.edata[0], "_ID", p.m.edges, "the ids of edges"},
		{&p.innerEdge, g.edata[0], "inner_edge", p.m.edges, "the marks of inner edges"},
	}
	if len(book.EdgeTypes) > 1 {
		p.edgeType = new(disk.Array)
		list = append(list, wanted{p.edgeType, g.edata[0], "_TYPE", p.m.edges, "the types of edges"})
	}
	for _, w := range list {
		i := slices.IndexFunc(w.frame, func(a namedArray) bool { return a.name == w.name })
		f.Want(i >= 0, at, fmt.Sprintf("%s (%q)", w.what, w.name), "none: this is no graph of a partition")
		*w.into = w.frame[i].Array
		w.into.Name = w.what
		if w.into.DType == dtypes.Bool {
			w.into.DType = dtypes.Uint8
		}
		must.Do(w.into.WantVector(w.n))
	}
}

// checkNodes reads the ids of all local nodes into ids and checks that the
// inner ones come first, in the ranges that the book gives the partition.
func (p *Part) checkNodes(ids []int64) error {
	if err := p.nodeID.Ints(0, ids); err != nil {
		return err
	}
	marks := make([]int64, min(disk.Batch, p.nodes))
	for at := int64(0); at < p.nodes; at += int64(len(marks)) {
		marks = marks[:min(int64(len(marks)), p.nodes-at)]
		if err := p.innerNode.Ints(at, marks); err != nil {
			return err
		}
		for i, m := range marks {
			if (m != 0) != (at+int64(i) < p.inner) {
				return p.f.Bad(p.innerNode.Offset, fmt.Sprintf("the %d inner nodes of partition %d first, then the halo", p.inner,
					p.part), "node %d marked %d", at+int64(i), m)
			}
		}
	}
	at := int64(0)
	for t, name := range p.book.NodeTypes {
		for id := p.book.NodeStart[t][p.part]; id < p.book.NodeEnd[t][p.part]; id++ {
			if ids[at] != id {
				return p.f.Bad(p.nodeID.Offset+at*int64(p.nodeID.DType.Size()),
					fmt.Sprintf("id %d, of the range of %q that partition %d owns, as the JSON has it", id, name, p.part), "%d",
					ids[at])
			}
			at++
		}
	}
	for i, id := range ids[at:] {
		if _, owner, ok := p.book.Owner(id); !ok || owner == p.part {
			return p.f.Bad(p.nodeID.Offset+(at+int64(i))*int64(p.nodeID.DType.Size()),
				"the id of a node that another partition owns", "%d", id)
		}
	}
	return nil
}

func (p *Part) NumNodes() int64 { return p.nodes }
func (p *Part) NumEdges() int64 { return p.m.edges }

// NodeIDs implements the edges of a partition.
func (p *Part) NodeIDs(ids []int64) error {
	if err := p.checkNodes(ids); err != nil {
		return err
	}
	return p.checkUnread()
}

// checkUnread holds against their checksums the arrays that DGL wants in the
// file and nobody here reads, so that damage to any part of it shows.
func (p *Part) checkUnread() error {
	read := map[int64]bool{p.m.row.Offset: true, p.m.ptr.Offset: true, p.m.col.Offset: true,
		p.nodeID.Offset: true, p.innerNode.Offset: true, p.edgeID.Offset: true, p.innerEdge.Offset: true}
	for _, a := range []*disk.Array{p.m.ids, p.edgeType} {
		if a != nil {
			read[a.Offset] = true
		}
	}
	var unread disk.Checksums
	for _, r := range p.f.Sums {
		if r.Array != "" && !read[r.Off] {
			unread = append(unread, r)
		}
	}
	return p.f.Check(unread)
}

// Batches streams the edges of the partition with their ids, types and marks,
// and checks every inner edge: it ends in an inner node, and its id is of the
// range that the book gives this partition and its type.
func (p *Part) Batches(yield func(graph.EdgeBatch) error) (err error) {
	defer must.Return(&err)
	room := min(disk.Batch, p.m.edges)
	buf := struct {
		id, typ []int64
		typ32   []int32
		inner   []uint8
	}{make([]int64, room), make([]int64, room), make([]int32, room), make([]uint8, room)}

	var permuted []*gather // id, mark, type, where slots are not in the order of edges
	if p.m.ids != nil {
		arrays := []disk.Array{p.edgeID, p.innerEdge}
		if p.edgeType != nil {
			arrays = append(arrays, *p.edgeType)
		}
		for _, a := range arrays {
			g := must.Get(newGather(a))
			defer g.view.Free()
			permuted = append(permuted, g)
		}
	}
	read := func(which int, a *disk.Array, at int64, eid, dst []int64) {
		if eid == nil {
			must.Do(a.Ints(at, dst))
		} else {
			must.Do(permuted[which].at(eid, dst))
		}
	}
	batches := 0
	return p.slots(func(at int64, src, dst, eid []int64) (err error) {
		defer must.Return(&err)
		n := len(src)
		b := graph.EdgeBatch{Src: src, Dst: dst, ID: buf.id[:n], Inner: buf.inner[:n]}
		typ := buf.typ[:n]
		read(1, &p.innerEdge, at, eid, typ)
		for i, v := range typ {
			b.Inner[i] = 0
			if v != 0 {
				b.Inner[i] = 1
			}
		}
		read(0, &p.edgeID, at, eid, b.ID)
		if p.edgeType != nil {
			b.Type = buf.typ32[:n]
			read(2, p.edgeType, at, eid, typ)
		}
		if batches++; batches%8 == 0 {
			for _, g := range permuted {
				g.view.Forget()
			}
		}
		must.Do(p.checkEdges(&b, typ, at, eid))
		return yield(b)
	})
}

// checkEdges checks a batch whose first slot is at, and fills b.Type from typ.
// eid are the edge numbers of the slots, or nil.
func (p *Part) checkEdges(b *graph.EdgeBatch, typ []int64, at int64, eid []int64) error {
	place := func(i int, a *disk.Array) int64 { // of slot i's edge in the array a
		k := at + int64(i)
		if eid != nil && a != &p.m.col {
			k = eid[i]
		}
		return a.Offset + k*int64(a.DType.Size())
	}
	types := int64(len(p.book.EdgeTypes))
	start, end := p.book.EdgeStart[0][p.part], p.book.EdgeEnd[0][p.part]
	for i, inner := range b.Inner {
		if b.Type != nil {
			t := typ[i]
			if uint64(t) >= uint64(types) {
				return p.f.Bad(place(i, p.edgeType), fmt.Sprintf("an edge type from 0 to %d", types-1), "%d", t)
			}
			b.Type[i] = int32(t)
			start, end = p.book.EdgeStart[t][p.part], p.book.EdgeEnd[t][p.part]
		}
		if inner == 0 {
			continue
		}
		if b.Dst[i] >= p.inner {
			return p.f.Bad(place(i, &p.m.col), fmt.Sprintf("an inner edge to end in one of the %d inner nodes", p.inner),
				"%d -> %d", b.Src[i], b.Dst[i])
		}
		if b.ID[i] < start || b.ID[i] >= end {
			return p.f.Bad(place(i, &p.edgeID), fmt.Sprintf("the id of an inner edge from %d to %d, as the JSON has it", start,
				end-1), "%d", b.ID[i])
		}
	}
	return nil
}
