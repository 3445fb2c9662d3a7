package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sar/core/internal/bitset"
)

// writeEdges writes the graph files, and the original ids of edges.
//
// One pass over the edges appends each to the partition of its destination
// and, where it crosses, once more to the partition of its source: DGL keeps
// such outer edges as well, after the inner ones. At that time the halo of a
// partition is not known, so the far end of an edge is written as a new global
// id. A second pass over what each partition got finds the halo and replaces
// those ids in place.
func (w *dglWriter) writeEdges() (err error) {
	if w.edgeFiles, w.edgeAt, err = w.createFeatures(edgeFile, &w.edge); err != nil {
		return err
	}
	files := make([]*os.File, w.parts)
	defer func() {
		if e := closeAll(files); err == nil {
			err = e
		}
	}()
	draft := make([]graphDraft, w.parts)
	for p := range files {
		if files[p], err = os.OpenFile(filepath.Join(w.partDir(p), partGraphFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o664); err != nil {
			return err
		}
		draft[p] = w.draft(p, files[p])
	}
	if err := w.scatterEdges(draft); err != nil {
		return err
	}
	halo, err := bitset.New(w.nodes)
	if err != nil {
		return err
	}
	defer halo.Free()
	for p := range draft {
		if err := w.finishGraph(p, &draft[p], halo); err != nil {
			return err
		}
		w.progress(w.innerEdges(p))
	}
	return nil
}

// graphDraft is the graph file of a partition while its halo is unknown.
type graphDraft struct {
	f            *os.File
	inner, outer int64 // edges
	src, dst     int64 // where the ends of edges go, in every case
	outerID      int64 // where ids of outer edges wait: beyond any end of the file

	innerSrc, innerDst                *appender
	innerOrig                         []*appender // [relation]
	outerSrc, outerDst, outerIDWriter *appender
}

func (w *dglWriter) draft(p int, f *os.File) graphDraft {
	inner, outer := w.innerEdges(p), w.outer[p]
	var l layout
	at := l.partition(min(w.nodes, w.innerNodes(p)+inner+outer), inner+outer, w.typed())
	block := w.block(6 * w.parts)
	d := graphDraft{
		f: f, inner: inner, outer: outer, src: at.src, dst: at.dst, outerID: l.size,
		innerSrc:      newAppender(f, at.src, 8*inner, block),
		innerDst:      newAppender(f, at.dst, 8*inner, block),
		outerSrc:      newAppender(f, at.src+8*inner, 8*outer, block),
		outerDst:      newAppender(f, at.dst+8*inner, 8*outer, block),
		outerIDWriter: newAppender(f, l.size, 8*outer, block),
	}
	for r, of := range w.edge.list {
		if of.keepsIDs() { // they are written as a feature
			d.innerOrig = append(d.innerOrig, nil)
			continue
		}
		at := w.edgeAt[p][w.edge.place(r, len(of.Arrays))]
		d.innerOrig = append(d.innerOrig, newAppender(w.edgeFiles[p], at, 8*w.edge.count[p][r], block))
	}
	return d
}

// typed tells whether the types of nodes and edges are written as data.
func (w *dglWriter) typed() bool { return len(w.node.list) > 1 || len(w.edge.list) > 1 }

func (w *dglWriter) scatterEdges(draft []graphDraft) error {
	next := append([]int64(nil), w.edgeStart...)
	scatter := func(first int64, r int, src, dst []int64) error {
		for i := range src {
			from, to := w.assign[src[i]], w.assign[dst[i]]
			s, d := w.newID.Data[src[i]], w.newID.Data[dst[i]]
			in := &draft[to]
			err := in.innerSrc.int64(s)
			if err == nil {
				err = in.innerDst.int64(d - w.nodeStart[to])
			}
			if err == nil && in.innerOrig[r] != nil {
				err = in.innerOrig[r].int64(first + int64(i))
			}
			if err == nil && from != to {
				out := &draft[from]
				if err = out.outerSrc.int64(s - w.nodeStart[from]); err == nil {
					err = out.outerDst.int64(d)
				}
				if err == nil {
					err = out.outerIDWriter.int64(next[to])
				}
			}
			if err != nil {
				return err
			}
			next[to]++
		}
		w.progress(int64(len(src)))
		return nil
	}
	err := w.src.EdgesBatch(func(first int64, src, dst []int64) error {
		return w.edge.runs(first, int64(len(src)), func(r int, lo, hi int64) error {
			return scatter(first+lo-w.edge.first[r], r, src[lo:hi], dst[lo:hi])
		})
	})
	if err != nil {
		return err
	}
	for i := range draft {
		d := &draft[i]
		if err := finishAll(append(d.innerOrig, d.innerSrc, d.innerDst, d.outerSrc, d.outerDst, d.outerIDWriter)); err != nil {
			return err
		}
	}
	return nil
}

// finishGraph numbers the halo of partition p and writes the rest of its file.
func (w *dglWriter) finishGraph(p int, d *graphDraft, halo *bitset.Set) error {
	lo, hi := w.nodeStart[p], w.nodeStart[p+1]
	halo.Clear()
	far := []struct{ off, n int64 }{{d.src, d.inner}, {d.dst + 8*d.inner, d.outer}}
	for _, r := range far {
		err := editInts(d.f, r.off, r.n, false, func(v []int64) {
			for _, id := range v {
				if id < lo || id >= hi {
					halo.Add(id)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	size := halo.Seal()
	for _, r := range far {
		err := editInts(d.f, r.off, r.n, true, func(v []int64) {
			for i, id := range v {
				if id < lo || id >= hi {
					v[i] = hi - lo + halo.Rank(id)
				} else {
					v[i] = id - lo
				}
			}
		})
		if err != nil {
			return err
		}
	}

	var l layout
	nodes := hi - lo + size
	at := l.partition(nodes, d.inner+d.outer, w.typed())
	if err := l.write(d.f); err != nil {
		return err
	}
	block := w.block(1)
	id, inner := newAppender(d.f, at.nodeID, 8*nodes, block), newAppender(d.f, at.innerNode, nodes, block)
	part := newAppender(d.f, at.partID, 8*nodes, block)
	for node := lo; node < hi; node++ {
		if err := errors.Join(id.int64(node), part.int64(int64(p))); err != nil {
			return err
		}
	}
	owner := 0
	for node := range halo.All() {
		for node >= w.nodeStart[owner+1] {
			owner++
		}
		if err := errors.Join(id.int64(node), part.int64(int64(owner))); err != nil {
			return err
		}
	}
	if err := errors.Join(inner.fill(1, hi-lo), inner.fill(0, size), finishAll([]*appender{id, inner, part})); err != nil {
		return err
	}
	if err := w.finishEdges(p, d, at); err != nil {
		return err
	}
	if w.typed() {
		if err := w.writeTypes(p, d, at, halo, size); err != nil {
			return err
		}
	}
	return d.f.Truncate(l.size)
}

// writeTypes writes the types of nodes (int16) and edges (int32), which are those
// that DGL gives them.
func (w *dglWriter) writeTypes(p int, d *graphDraft, at graphPlaces, halo *bitset.Set, size int64) error {
	nodes := newAppender(d.f, at.nodeType, 2*(w.innerNodes(p)+size), w.block(1))
	bounds := w.node.bounds()
	for t, n := range w.node.count[p] {
		for range n {
			if err := nodes.write([]byte{byte(t), byte(t >> 8)}); err != nil {
				return err
			}
		}
	}
	for id := range halo.All() {
		t := w.node.newType(bounds, id)
		if err := nodes.write([]byte{byte(t), byte(t >> 8)}); err != nil {
			return err
		}
	}
	edges := newAppender(d.f, at.edgeType, 4*(d.inner+d.outer), w.block(1))
	bounds = w.edge.bounds()
	var failed error
	err := editInts(d.f, at.edgeID, d.inner+d.outer, false, func(v []int64) {
		for _, id := range v {
			if failed == nil {
				t := w.edge.newType(bounds, id)
				failed = edges.write([]byte{byte(t), byte(t >> 8), byte(t >> 16), byte(t >> 24)})
			}
		}
	})
	return errors.Join(err, failed, finishAll([]*appender{nodes, edges}))
}

// finishEdges writes the ids of edges, and which of them are inner.
func (w *dglWriter) finishEdges(p int, d *graphDraft, at graphPlaces) error {
	id := newAppender(d.f, at.edgeID, 8*(d.inner+d.outer), w.block(1))
	mark := newAppender(d.f, at.innerEdge, d.inner+d.outer, w.block(1))
	for e := range d.inner {
		if err := id.int64(w.edgeStart[p] + e); err != nil {
			return err
		}
	}
	// Where the ids go lies before where they wait, so copying forward is safe.
	var failed error
	err := editInts(d.f, d.outerID, d.outer, false, func(v []int64) {
		for _, e := range v {
			if failed == nil {
				failed = id.int64(e)
			}
		}
	})
	return errors.Join(err, failed, mark.fill(1, d.inner), mark.fill(0, d.outer), finishAll([]*appender{id, mark}))
}

// editInts hands n int64 at off of a file to edit, a run at a time, and writes
// them back where asked to.
func editInts(f *os.File, off, n int64, back bool, edit func([]int64)) error {
	raw, v := make([]byte, 8*min(n, batch)), make([]int64, min(n, batch))
	for at := int64(0); at < n; at += batch {
		m := min(batch, n-at)
		b := raw[:8*m]
		if _, err := f.ReadAt(b, off+8*at); err != nil {
			return err
		}
		widen(v[:m], b, Int64)
		edit(v[:m])
		if !back {
			continue
		}
		for i, x := range v[:m] {
			binary.LittleEndian.PutUint64(b[8*i:], uint64(x))
		}
		if _, err := f.WriteAt(b, off+8*at); err != nil {
			return err
		}
	}
	return nil
}

// describe is the JSON file, with the keys in DGL's order.
func describe(w *writer, to Partitioning, partitioning string) ([]byte, error) {
	nodeMap, nodeTypes := w.node.maps()
	edgeMap, edgeTypes := w.edge.maps()
	var top ordered[any]
	if partitioning != "" {
		top.set("format", partitionFormat)
		top.set("partitioning", partitioning)
	}
	top.set("graph_name", to.Name)
	top.set("num_nodes", w.nodes)
	top.set("num_edges", w.edges)
	top.set("part_method", to.Method)
	top.set("num_parts", w.parts)
	top.set("halo_hops", 1)
	top.set("node_map", nodeMap)
	top.set("edge_map", edgeMap)
	top.set("ntypes", nodeTypes)
	top.set("etypes", edgeTypes)
	for p := range w.parts {
		in := func(file string) string { return fmt.Sprintf("part%d/%s", p, file) }
		files := partFiles{NodeFeats: in(nodeFile), EdgeFeats: in(edgeFile), PartGraph: in(partGraphFile), Checksums: in(checksumFile)}
		if partitioning != "" {
			files = partFiles{Part: in(partDescription), Checksums: in(checksumFile)}
		}
		top.set(fmt.Sprintf("part-%d", p), files)
	}
	return seal(top)
}

// publish moves what was written to its place, the JSON last.
func publish(w *writer, to Partitioning, config string) error {
	final := filepath.Join(to.Dir, to.Name+".json")
	if err := os.Remove(final); err != nil && !os.IsNotExist(err) {
		return err
	}
	for p := range w.parts {
		final := filepath.Join(to.Dir, fmt.Sprintf("part%d", p))
		if to.Format == SARFormat {
			// What was there goes with what is left of the scratch directory.
			if err := os.Rename(final, w.partDir(p)+".before"); err != nil && !os.IsNotExist(err) {
				return err
			}
			if err := os.Rename(w.partDir(p), final); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(final, 0o775); err != nil {
			return err
		}
		made, err := os.ReadDir(w.partDir(p))
		if err != nil {
			return err
		}
		for _, file := range made {
			if err := os.Rename(filepath.Join(w.partDir(p), file.Name()), filepath.Join(final, file.Name())); err != nil {
				return err
			}
		}
	}
	return os.Rename(config, final)
}
