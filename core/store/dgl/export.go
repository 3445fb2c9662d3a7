package dgl

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sar/core/graph"
	"sar/core/internal/bitset"
	"sar/core/internal/must"
	"sar/core/store/disk"
)

// Exported is a part of a graph, in whatever format, that is written in DGL's.
type Exported interface {
	Book() *graph.Book
	Nodes() (ids []int64, own int, err error)
	Features(edge bool) []disk.TensorInfo
	Feature(edge bool, name string) (disk.Array, error)
	// EachEdge yields the edges of a relation with the ids of their ends, in the order of their
	// own ids, and holds so many at a time.
	EachEdge(relation int, room int64, yield func(first int64, src, dst []int64) error) error
}

// Export writes all parts of a graph in DGL's format, with checksums beside DGL's files: part p
// to Dir/part<p>.
type Export struct {
	Parts []Exported
	Dir   string
	Room  int64             // how many edges of a part are held at a time
	Done  func(p int) error // is told of each part that is written

	book     *graph.Book
	crossing []*crossings
	halo     *bitset.Set
}

// Write writes the parts. It makes their directories.
func (e *Export) Write() (err error) {
	defer func() {
		for _, c := range e.crossing {
			err = errors.Join(err, c.close())
		}
	}()
	defer must.Return(&err)
	e.book = e.Parts[0].Book()
	e.halo = must.Get(bitset.New(e.numNodes()))
	defer e.halo.Free()
	for p := range e.Parts {
		must.Do(os.Mkdir(e.partDir(p), 0o775))
		e.crossing = append(e.crossing, must.Get(newCrossings(filepath.Join(e.Dir, fmt.Sprintf("crossing%d", p)))))
	}
	e.sortCrossings()
	must.Do(disk.WantRoom(e.Dir, e.bytes(), "the parts need", "name another directory"))
	for p := range e.Parts {
		e.part(p)
		must.Do(e.Done(p))
	}
	return nil
}

func (e *Export) partDir(p int) string { return filepath.Join(e.Dir, fmt.Sprintf("part%d", p)) }

func (e *Export) numNodes() int64 {
	_, end := e.book.Nodes(e.book.Parts - 1)
	return end
}

// numEdges are the edges into part p, and those with the ones that leave it.
func (e *Export) numEdges(p int) (inner, all int64) {
	lo, hi := e.book.Edges(p)
	return hi - lo, hi - lo + e.crossing[p].count
}

// typed tells whether the types of nodes and edges are written as data.
func (e *Export) typed() bool { return len(e.book.NodeTypes) > 1 || len(e.book.EdgeTypes) > 1 }

// sortCrossings finds the edges that cross from one part to another. DGL keeps them in both,
// after the edges that belong to a part.
func (e *Export) sortCrossings() {
	for q, part := range e.Parts {
		lo, hi := e.book.Nodes(q)
		e.eachEdge(part, func(relation int, id int64, src, dst []int64) {
			for i, u := range src {
				if u < lo || u >= hi {
					_, owner, _ := e.book.Owner(u)
					e.crossing[owner].add([4]int64{u, dst[i], id + int64(i), int64(relation)})
				}
			}
		})
	}
}

// eachEdge yields the edges of all relations of a part, with the id of the first of each run.
func (e *Export) eachEdge(part Exported, yield func(relation int, id int64, src, dst []int64)) {
	for r := range e.book.EdgeTypes {
		must.Do(part.EachEdge(r, e.Room, func(first int64, src, dst []int64) error {
			yield(r, first, src, dst)
			return nil
		}))
	}
}

// bytes is the most that the files take.
func (e *Export) bytes() (n int64) {
	for p, part := range e.Parts {
		lo, hi := e.book.Nodes(p)
		inner, all := e.numEdges(p)
		var graph, nodes, edges layout
		graph.partition(min(e.numNodes(), hi-lo+all+inner), all, e.typed())
		nodes.tensors(part.Features(false))
		edges.tensors(part.Features(true))
		n += graph.size + nodes.size + edges.size + sumsRoom(&graph, &nodes, &edges)
	}
	return n
}

// sumsRoom is the most, about, that the checksums of files take on disk: blocks
// are smallest in arrays of single bytes.
func sumsRoom(files ...*layout) (n int64) {
	for _, l := range files {
		n += 512*int64(len(l.pieces)+1) + 8*(l.size/disk.Batch)
	}
	return n
}

// part writes the files of part p.
func (e *Export) part(p int) {
	e.graph(p)
	part, dir := e.Parts[p], e.partDir(p)
	exportFeatures(filepath.Join(dir, Files[1].Name), part, false)
	exportFeatures(filepath.Join(dir, Files[2].Name), part, true)
	sums := map[string]disk.Checksums{}
	for _, of := range Files {
		sums[of.Key] = must.Get(disk.SumsOf(of.What, filepath.Join(dir, of.Name), of.Arrays))
	}
	must.Do(disk.WriteSums(dir, sums))
}

// exportFeatures copies features to a file.
func exportFeatures(path string, part Exported, edge bool) {
	var l layout
	list := part.Features(edge)
	at := l.tensors(list)
	f := must.Get(l.create(path))
	defer f.Close()
	for i, t := range list {
		a := must.Get(part.Feature(edge, t.Name))
		row := t.RowBytes()
		if row == 0 {
			continue
		}
		buf := make([]byte, row*max(1, min(t.Shape[0], (4<<20)/row)))
		for first := int64(0); first < t.Shape[0]; {
			n := min(t.Shape[0]-first, int64(len(buf))/row)
			must.Do(a.ReadRows(first, buf[:n*row]))
			must.Get(f.WriteAt(buf[:n*row], at[i]+first*row))
			first += n
		}
	}
	must.Do(f.Close())
}

// graph writes the graph of part p: its own nodes and then those at the other ends of edges;
// the edges into own nodes and then those that leave the part.
func (e *Export) graph(p int) {
	part, crossing := e.Parts[p], e.crossing[p]
	lo, hi := e.book.Nodes(p)
	nodes, own, err := part.Nodes()
	must.Do(err)
	e.halo.Clear()
	for _, id := range nodes[own:] {
		e.halo.Add(id)
	}
	crossing.each(func(c [4]int64) { e.halo.Add(c[1]) })
	all := hi - lo + e.halo.Seal()
	_, edges := e.numEdges(p)
	local := func(id int64) int64 {
		if id >= lo && id < hi {
			return id - lo
		}
		return hi - lo + e.halo.Rank(id)
	}
	var l layout
	at := l.partition(all, edges, e.typed())
	f := must.Get(l.create(filepath.Join(e.partDir(p), Files[0].Name)))
	defer f.Close()
	var out []*disk.Appender
	column := func(off, size int64) *disk.Appender {
		a := disk.NewAppender(f, off, size, 1<<20)
		out = append(out, a)
		return a
	}
	typed := int64(0)
	if e.typed() {
		typed = 1
	}
	id, inner, owner, kind := column(at.nodeID, 8*all), column(at.innerNode, all), column(at.partID, 8*all),
		column(at.nodeType, 2*all*typed)
	node := func(v int64, mark byte) {
		t, q, _ := e.book.Owner(v)
		id.Int64(v)
		inner.Write([]byte{mark})
		owner.Int64(int64(q))
		kind.Write([]byte{byte(t), byte(t >> 8)}[:2*typed])
	}
	for v := lo; v < hi; v++ {
		node(v, 1)
	}
	for v := range e.halo.All() {
		node(v, 0)
	}
	from, to := column(at.src, 8*edges), column(at.dst, 8*edges)
	id, inner, kind = column(at.edgeID, 8*edges), column(at.innerEdge, edges), column(at.edgeType, 4*edges*typed)
	edge := func(c [4]int64, mark byte) {
		from.Int64(local(c[0]))
		to.Int64(local(c[1]))
		id.Int64(c[2])
		inner.Write([]byte{mark})
		kind.Write([]byte{byte(c[3]), byte(c[3] >> 8), byte(c[3] >> 16), byte(c[3] >> 24)}[:4*typed])
	}
	e.eachEdge(part, func(relation int, first int64, src, dst []int64) {
		for i, u := range src {
			edge([4]int64{u, dst[i], first + int64(i), int64(relation)}, 1)
		}
	})
	crossing.each(func(c [4]int64) { edge(c, 0) })
	must.Do(errors.Join(disk.FinishAll(out), f.Close()))
}

// crossings is a file of edges that leave a part: source, destination, id and relation of each.
type crossings struct {
	f     *os.File
	w     *bufio.Writer
	count int64
}

func newCrossings(path string) (*crossings, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &crossings{f: f, w: bufio.NewWriterSize(f, 64<<10)}, nil
}

func (c *crossings) add(edge [4]int64) {
	b := c.w.AvailableBuffer()
	for _, v := range edge {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	_, _ = c.w.Write(b) // an error stays, and each tells of it
	c.count++
}

// each calls visit with the edges. No more are added.
func (c *crossings) each(visit func(edge [4]int64)) {
	must.Do(c.w.Flush())
	r := bufio.NewReaderSize(io.NewSectionReader(c.f, 0, 32*c.count), 1<<20)
	var b [32]byte
	for range c.count {
		must.Get(io.ReadFull(r, b[:]))
		var edge [4]int64
		for i := range edge {
			edge[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
		visit(edge)
	}
}

func (c *crossings) close() error {
	return errors.Join(c.f.Close(), os.Remove(c.f.Name()))
}
