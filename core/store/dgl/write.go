package dgl

import (
	"os"
	"path/filepath"

	"sar/core/mem"
	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/split"
)

// NodeMemory is the same for DGL's format: assignment, number and boundary mark.
func NodeMemory(src input.Source) int64 {
	nodes, _ := split.NumNodes(src)
	return (4+8)*nodes + nodes/4
}

// diskBytes is the most that the files of all partitions take while they are
// written, once edges are counted.
func (w *Writer) diskBytes() (n int64) {
	for p := range w.Parts {
		inner, outer := w.innerEdges(p), w.outer[p]
		var graph, nodes, edges layout
		graph.partition(min(w.Nodes, w.innerNodes(p)+inner+outer), inner+outer, w.typed())
		nodes.tensors(w.Node.Features(p))
		edges.tensors(w.Edge.Features(p))
		n += graph.size + 8*outer + nodes.size + edges.size + sumsRoom(&graph, &nodes, &edges)
	}
	return n
}

// writeChecksums writes the file of checksums of every partition.
func (w *Writer) writeChecksums() error {
	for p := range w.Parts {
		sums := map[string]disk.Checksums{}
		for _, of := range Files {
			var err error
			if sums[of.Key], err = disk.SumsOf(of.What, filepath.Join(w.PartDir(p), of.name), of.Arrays); err != nil {
				return err
			}
		}
		if err := disk.WriteSums(w.PartDir(p), sums); err != nil {
			return err
		}
		w.Progress(w.innerNodes(p) + w.innerEdges(p))
	}
	return nil
}

// sumsRoom is the most, about, that the checksums of files take on disk: blocks
// are smallest in arrays of single bytes.
func sumsRoom(files ...*layout) (n int64) {
	for _, l := range files {
		n += 512*int64(len(l.pieces)+1) + 8*(l.size/disk.Batch)
	}
	return n
}

const (
	NodeFile      = "node_feat.dgl"
	EdgeFile      = "edge_feat.dgl"
	PartGraphFile = "graph.dgl"
)

// Writer writes parts in DGL's format.
type Writer struct {
	*split.Writer
	to        split.Partitioning
	newID     mem.Array[int64] // by original id
	nodeStart []int64          // [parts + 1]
	edgeStart []int64          // [parts + 1], of inner edges
	outer     []int64          // [parts] edges that leave the partition
	edgeFiles []*os.File       // [parts] feature files, while they are written
	edgeAt    [][]int64        // [parts][place] where their data go
}

func NewWriter(w *split.Writer, to split.Partitioning) *Writer { return &Writer{Writer: w, to: to} }

func (w *Writer) Steps() []func() error {
	takeIDs := func() error { return w.TakeIDs(w.to) }
	return []func() error{w.number, w.count, w.checkRoom, w.writeNodes, w.writeEdges, w.writeEdgeFeatures, w.writeChecksums, takeIDs}
}

func (w *Writer) Free() {
	w.newID.Free()
	disk.CloseAll(w.edgeFiles)
}

// number gives every node its new id: as types follow each other in the order
// that nodes had, they do so in each partition.
func (w *Writer) number() (err error) {
	if w.newID, err = mem.Make[int64](mem.Scratch, len(w.Assign)); err != nil {
		return err
	}
	next := make([]int64, w.Parts+1)
	for _, p := range w.Assign {
		next[p+1]++
	}
	for p := range w.Parts {
		next[p+1] += next[p]
	}
	w.nodeStart = append([]int64(nil), next...)
	for i, p := range w.Assign {
		w.newID.Data[i] = next[p]
		next[p]++
	}
	w.Progress(w.Nodes)
	return w.Node.Runs(0, w.Nodes, func(t int, lo, hi int64) error {
		for _, p := range w.Assign[lo:hi] {
			w.Node.Count[p][t]++
		}
		return nil
	})
}

// count counts the edges of every partition.
func (w *Writer) count() error {
	w.edgeStart, w.outer = make([]int64, w.Parts+1), make([]int64, w.Parts)
	err := w.Src.EdgesBatch(func(first int64, src, dst []int64) error {
		w.Progress(int64(len(src)))
		return w.Edge.Runs(first, int64(len(src)), func(r int, lo, hi int64) error {
			for i := lo; i < hi; i++ {
				from, to := w.Assign[src[i]], w.Assign[dst[i]]
				w.edgeStart[to+1]++
				w.Edge.Count[to][r]++
				if from != to {
					w.outer[from]++
				}
			}
			return nil
		})
	})
	for p := range w.Parts {
		w.edgeStart[p+1] += w.edgeStart[p]
	}
	return err
}

func (w *Writer) checkRoom() error {
	return disk.WantRoom(w.Tmp, w.diskBytes(), "the parts need", "name another directory")
}

func (w *Writer) innerNodes(p int) int64 { return w.nodeStart[p+1] - w.nodeStart[p] }

func (w *Writer) innerEdges(p int) int64 { return w.edgeStart[p+1] - w.edgeStart[p] }

// createFeatures makes the feature file of every partition and returns, for
// every partition and place, the region of its rows.
func (w *Writer) createFeatures(file string, k *split.Kinds) (files []*os.File, at [][]int64, err error) {
	files = make([]*os.File, w.Parts)
	at = make([][]int64, w.Parts)
	for p := range w.Parts {
		var l layout
		at[p] = l.tensors(k.Features(p))
		if files[p], err = l.create(filepath.Join(w.PartDir(p), file)); err != nil {
			disk.CloseAll(files)
			return nil, nil, err
		}
	}
	return files, at, nil
}

// regions are the appenders of one array of a type, row bytes each, by partition.
func (w *Writer) regions(files []*os.File, at [][]int64, k *split.Kinds, t, array int, row int64) []*disk.Appender {
	out := make([]*disk.Appender, w.Parts)
	for p := range out {
		out[p] = disk.NewAppender(files[p], at[p][k.Place(t, array)], row*k.Count[p][t], w.Block(w.Parts))
	}
	return out
}

// writeNodes writes the node features. One pass over each in its own order
// serves all partitions, since nodes keep their order inside a partition.
func (w *Writer) writeNodes() (err error) {
	files, at, err := w.createFeatures(NodeFile, &w.Node)
	if err != nil {
		return err
	}
	defer func() {
		if e := disk.CloseAll(files); err == nil {
			err = e
		}
	}()
	for t, of := range w.Node.List {
		assign := w.Assign[w.Node.First[t]:w.Node.First[t+1]]
		for k, a := range of.Arrays {
			out := w.regions(files, at, &w.Node, t, k, a.RowBytes())
			if err := w.ScatterRows(false, t, a, 0, assign, out); err != nil {
				return err
			}
			if err := disk.FinishAll(out); err != nil {
				return err
			}
			w.Progress(of.Rows)
		}
		if of.KeepsIDs() {
			continue
		}
		out := w.regions(files, at, &w.Node, t, len(of.Arrays), 8)
		for i, p := range assign {
			if err := out[p].Int64(int64(i)); err != nil {
				return err
			}
		}
		if err := disk.FinishAll(out); err != nil {
			return err
		}
	}
	return nil
}

// writeEdgeFeatures adds the edge features to the files that writeEdges made.
func (w *Writer) writeEdgeFeatures() error {
	for r, of := range w.Edge.List {
		for k, t := range of.Arrays {
			if err := w.writeEdgeFeature(r, k, t); err != nil {
				return err
			}
		}
	}
	files := w.edgeFiles
	w.edgeFiles = nil
	return disk.CloseAll(files)
}

func (w *Writer) writeEdgeFeature(relation, k int, t disk.TensorInfo) error {
	out := w.regions(w.edgeFiles, w.edgeAt, &w.Edge, relation, k, t.RowBytes())
	if err := w.AppendEdgeRows(relation, t, out); err != nil {
		return err
	}
	return disk.FinishAll(out)
}
