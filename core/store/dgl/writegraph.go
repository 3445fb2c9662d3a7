package dgl

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"

	"sar/core/internal/bitset"
	"sar/core/store/disk"
)

// writeEdges writes the graph files, and the original ids of edges.
//
// One pass over the edges appends each to the partition of its destination
// and, where it crosses, once more to the partition of its source: DGL keeps
// such outer edges as well, after the inner ones. At that time the halo of a
// partition is not known, so the far end of an edge is written as a new global
// id. A second pass over what each partition got finds the halo and replaces
// those ids in place.
func (w *Writer) writeEdges() (err error) {
	if w.edgeFiles, w.edgeAt, err = w.createFeatures(EdgeFile, &w.Edge); err != nil {
		return err
	}
	files := make([]*os.File, w.Parts)
	defer func() {
		if e := disk.CloseAll(files); err == nil {
			err = e
		}
	}()
	draft := make([]graphDraft, w.Parts)
	for p := range files {
		if files[p], err = os.OpenFile(filepath.Join(w.PartDir(p), PartGraphFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o664); err != nil {
			return err
		}
		draft[p] = w.draft(p, files[p])
	}
	if err := w.scatterEdges(draft); err != nil {
		return err
	}
	halo, err := bitset.New(w.Nodes)
	if err != nil {
		return err
	}
	defer halo.Free()
	for p := range draft {
		if err := w.finishGraph(p, &draft[p], halo); err != nil {
			return err
		}
		w.Progress(w.innerEdges(p))
	}
	return nil
}

// graphDraft is the graph file of a partition while its halo is unknown.
type graphDraft struct {
	f            *os.File
	inner, outer int64 // edges
	src, dst     int64 // where the ends of edges go, in every case
	outerID      int64 // where ids of outer edges wait: beyond any end of the file

	innerSrc, innerDst                *disk.Appender
	innerOrig                         []*disk.Appender // [relation]
	outerSrc, outerDst, outerIDWriter *disk.Appender
}

func (w *Writer) draft(p int, f *os.File) graphDraft {
	inner, outer := w.innerEdges(p), w.outer[p]
	var l layout
	at := l.partition(min(w.Nodes, w.innerNodes(p)+inner+outer), inner+outer, w.typed())
	block := w.Block(6 * w.Parts)
	d := graphDraft{
		f: f, inner: inner, outer: outer, src: at.src, dst: at.dst, outerID: l.size,
		innerSrc:      disk.NewAppender(f, at.src, 8*inner, block),
		innerDst:      disk.NewAppender(f, at.dst, 8*inner, block),
		outerSrc:      disk.NewAppender(f, at.src+8*inner, 8*outer, block),
		outerDst:      disk.NewAppender(f, at.dst+8*inner, 8*outer, block),
		outerIDWriter: disk.NewAppender(f, l.size, 8*outer, block),
	}
	for r, of := range w.Edge.List {
		if of.KeepsIDs() { // they are written as a feature
			d.innerOrig = append(d.innerOrig, nil)
			continue
		}
		at := w.edgeAt[p][w.Edge.Place(r, len(of.Arrays))]
		d.innerOrig = append(d.innerOrig, disk.NewAppender(w.edgeFiles[p], at, 8*w.Edge.Count[p][r], block))
	}
	return d
}

// typed tells whether the types of nodes and edges are written as data.
func (w *Writer) typed() bool { return len(w.Node.List) > 1 || len(w.Edge.List) > 1 }

func (w *Writer) scatterEdges(draft []graphDraft) error {
	next := append([]int64(nil), w.edgeStart...)
	scatter := func(first int64, r int, src, dst []int64) error {
		for i := range src {
			from, to := w.Assign[src[i]], w.Assign[dst[i]]
			s, d := w.newID.Data[src[i]], w.newID.Data[dst[i]]
			in := &draft[to]
			err := in.innerSrc.Int64(s)
			if err == nil {
				err = in.innerDst.Int64(d - w.nodeStart[to])
			}
			if err == nil && in.innerOrig[r] != nil {
				err = in.innerOrig[r].Int64(first + int64(i))
			}
			if err == nil && from != to {
				out := &draft[from]
				if err = out.outerSrc.Int64(s - w.nodeStart[from]); err == nil {
					err = out.outerDst.Int64(d)
				}
				if err == nil {
					err = out.outerIDWriter.Int64(next[to])
				}
			}
			if err != nil {
				return err
			}
			next[to]++
		}
		w.Progress(int64(len(src)))
		return nil
	}
	err := w.Src.EdgesBatch(func(first int64, src, dst []int64) error {
		return w.Edge.Runs(first, int64(len(src)), func(r int, lo, hi int64) error {
			return scatter(first+lo-w.Edge.First[r], r, src[lo:hi], dst[lo:hi])
		})
	})
	if err != nil {
		return err
	}
	for i := range draft {
		d := &draft[i]
		if err := disk.FinishAll(append(d.innerOrig, d.innerSrc, d.innerDst, d.outerSrc, d.outerDst, d.outerIDWriter)); err != nil {
			return err
		}
	}
	return nil
}

// finishGraph numbers the halo of partition p and writes the rest of its file.
func (w *Writer) finishGraph(p int, d *graphDraft, halo *bitset.Set) error {
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
	block := w.Block(1)
	id, inner := disk.NewAppender(d.f, at.nodeID, 8*nodes, block), disk.NewAppender(d.f, at.innerNode, nodes, block)
	part := disk.NewAppender(d.f, at.partID, 8*nodes, block)
	for node := lo; node < hi; node++ {
		if err := errors.Join(id.Int64(node), part.Int64(int64(p))); err != nil {
			return err
		}
	}
	owner := 0
	for node := range halo.All() {
		for node >= w.nodeStart[owner+1] {
			owner++
		}
		if err := errors.Join(id.Int64(node), part.Int64(int64(owner))); err != nil {
			return err
		}
	}
	if err := errors.Join(inner.Fill(1, hi-lo), inner.Fill(0, size), disk.FinishAll([]*disk.Appender{id, inner, part})); err != nil {
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
func (w *Writer) writeTypes(p int, d *graphDraft, at graphPlaces, halo *bitset.Set, size int64) error {
	nodes := disk.NewAppender(d.f, at.nodeType, 2*(w.innerNodes(p)+size), w.Block(1))
	bounds := w.Node.Bounds()
	for t, n := range w.Node.Count[p] {
		for range n {
			if err := nodes.Write([]byte{byte(t), byte(t >> 8)}); err != nil {
				return err
			}
		}
	}
	for id := range halo.All() {
		t := w.Node.NewType(bounds, id)
		if err := nodes.Write([]byte{byte(t), byte(t >> 8)}); err != nil {
			return err
		}
	}
	edges := disk.NewAppender(d.f, at.edgeType, 4*(d.inner+d.outer), w.Block(1))
	bounds = w.Edge.Bounds()
	var failed error
	err := editInts(d.f, at.edgeID, d.inner+d.outer, false, func(v []int64) {
		for _, id := range v {
			if failed == nil {
				t := w.Edge.NewType(bounds, id)
				failed = edges.Write([]byte{byte(t), byte(t >> 8), byte(t >> 16), byte(t >> 24)})
			}
		}
	})
	return errors.Join(err, failed, disk.FinishAll([]*disk.Appender{nodes, edges}))
}

// finishEdges writes the ids of edges, and which of them are inner.
func (w *Writer) finishEdges(p int, d *graphDraft, at graphPlaces) error {
	id := disk.NewAppender(d.f, at.edgeID, 8*(d.inner+d.outer), w.Block(1))
	mark := disk.NewAppender(d.f, at.innerEdge, d.inner+d.outer, w.Block(1))
	for e := range d.inner {
		if err := id.Int64(w.edgeStart[p] + e); err != nil {
			return err
		}
	}
	// Where the ids go lies before where they wait, so copying forward is safe.
	var failed error
	err := editInts(d.f, d.outerID, d.outer, false, func(v []int64) {
		for _, e := range v {
			if failed == nil {
				failed = id.Int64(e)
			}
		}
	})
	return errors.Join(err, failed, mark.Fill(1, d.inner), mark.Fill(0, d.outer), disk.FinishAll([]*disk.Appender{id, mark}))
}

// editInts hands n int64 at off of a file to edit, a run at a time, and writes
// them back where asked to.
func editInts(f *os.File, off, n int64, back bool, edit func([]int64)) error {
	raw, v := make([]byte, 8*min(n, disk.Batch)), make([]int64, min(n, disk.Batch))
	for at := int64(0); at < n; at += disk.Batch {
		m := min(disk.Batch, n-at)
		b := raw[:8*m]
		if _, err := f.ReadAt(b, off+8*at); err != nil {
			return err
		}
		disk.Widen(v[:m], b, disk.Int64)
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
