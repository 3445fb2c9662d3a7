package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sar/core/internal/argument"
	"sar/core/mem"
)

// Partitioning says how a graph is split and where it is written.
type Partitioning struct {
	Assignment []int32 // [nodes] the partition of each
	Parts      int
	Dir, Name  string // dir/name.json is the description
	Method     string // how the assignment was made, for the description
	// Progress, where not nil, is called now and then with done of total, which never fall.
	Progress func(done, total int64)

	Format string // "dgl", which "" is too, or "sar"
	Memory int64  // bytes that writing may take, Assignment among them; 0: 4 GiB
	// IDs are the names of Parquet files of the users' ids, by node type, and IDsDir the
	// directory with part<p>/<name> of each part, in the file system of Dir. They are moved
	// into the parts.
	IDs    map[string]string
	IDsDir string
}

// WritePartitions splits a graph: node i goes to partition Assignment[i]. In SAR's format
// (see sarWriter) it writes dir/name.json and part<p>/part.json with arrays as .npy files,
// ready for OpenPartition to map. In DGL's it
// writes dir/name.json and dir/part<p>/{graph,node_feat,edge_feat}.dgl as DGL's
// partition_graph does with one halo hop, for dgl.distributed.load_partition
// and OpenPartition.
//
// Nodes are numbered anew so that a partition owns a contiguous range, in the
// order they had; edges too, each belonging to the partition of its
// destination. Features "orig_id" of nodes and edges keep the original ids of each
// type, as DGL's return_mapping gives them. Bool is written as uint8, as DGL does.
//
// Everything is written to dir/.<name>.partial first and renamed at the end, the
// JSON last, so that a failed write leaves no graph that claims to be whole,
// and what was there before as it was. A process that is killed leaves that
// directory, which the next one empties. Memory: LeastMemory; in SAR's format edges
// take what else there is, in as few passes as that allows. Disk: two passes over the edges, one over each feature, one over what
// was written, for its checksums (part<p>/checksums.crc, which DGL does not
// read; OpenPartition and Verify do).
func WritePartitions(src Source, to Partitioning) error {
	assignment, parts, dir, name := to.Assignment, to.Parts, to.Dir, to.Name
	if to.Memory == 0 {
		to.Memory = DefaultMemory
	}
	if err := checkWrite(src, to); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o775); err != nil {
		return err
	}
	scratch, err := newScratchDir(dir, name)
	if err != nil {
		return err
	}
	defer scratch.remove()

	tmp := scratch.path
	w := &writer{src: src, assign: assignment, parts: parts, tmp: tmp, report: to.Progress,
		node: newKinds(src.NodeTypes(), parts), edge: newKinds(src.EdgeTypes(), parts)}
	w.nodes, w.edges = int64(len(assignment)), w.edge.first[len(w.edge.list)]
	w.total = w.nodes*2 + w.node.work() + w.edges*4 + w.edge.work()
	var format interface {
		steps() []func() error
		free()
	}
	partitioning := func() string { return "" }
	if to.Format == SARFormat {
		s := newSarWriter(w, to)
		format, partitioning = s, func() string { return s.partitioning }
	} else {
		format = newDGLWriter(w, to)
	}
	defer format.free()
	for p := range parts {
		if err := os.Mkdir(w.partDir(p), 0o775); err != nil {
			return err
		}
	}
	for _, step := range format.steps() {
		if err := step(); err != nil {
			return fmt.Errorf("writing partitions to %s: %w", dir, err)
		}
	}
	description, err := describe(w, to, partitioning())
	if err != nil {
		return err
	}
	path := filepath.Join(tmp, "config.json")
	if err := os.WriteFile(path, description, 0o664); err != nil {
		return err
	}
	return publish(w, to, path)
}

// takeIDs moves the files of the users' ids to their parts.
func (w *writer) takeIDs(to Partitioning) error {
	for _, file := range to.IDs {
		if filepath.Base(file) != file {
			return argument.Errorf("%q cannot be the name of a file of ids", file)
		}
		for p := range w.parts {
			from := filepath.Join(to.IDsDir, fmt.Sprintf("part%d", p), file)
			if err := os.Rename(from, filepath.Join(w.partDir(p), file)); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkWrite(src Source, to Partitioning) error {
	assignment, parts, name := to.Assignment, to.Parts, to.Name
	if parts < 1 {
		return argument.Errorf("%d partitions: at least 1 is needed", parts)
	}
	var nodes int64
	for _, t := range src.NodeTypes() {
		nodes += t.Rows
	}
	if int64(len(assignment)) != nodes {
		return argument.Errorf("an assignment of %d nodes for a graph of %d", len(assignment), nodes)
	}
	for i, p := range assignment {
		if p < 0 || int(p) >= parts {
			return argument.Errorf("node %d is assigned to partition %d: partitions are 0 to %d", i, p, parts-1)
		}
	}
	if to.Format != "" && to.Format != SARFormat && to.Format != DGLFormat {
		return argument.Errorf("partitions are written in the format %q or %q, not %q", SARFormat, DGLFormat, to.Format)
	}
	if need := nodeMemory(src, to.Format) + fixedMemory/2; to.Memory < need {
		return &mem.BudgetError{What: "memory for writing parts", Have: to.Memory, Minimum: LeastMemory(src, parts, to.Format)}
	}
	if name == "" || strings.ContainsAny(name, "/\\\x00") || strings.HasPrefix(name, ".") {
		return argument.Errorf("%q cannot be the name of a graph: it names a file", name)
	}
	return nil
}

// The formats of partitions.
const (
	SARFormat = "sar"
	DGLFormat = "dgl"
)

const (
	nodeFile      = "node_feat.dgl"
	edgeFile      = "edge_feat.dgl"
	partGraphFile = "graph.dgl"
)

// writer holds the state of one WritePartitions.
type writer struct {
	src          Source
	assign       []int32
	parts        int
	tmp          string
	nodes, edges int64
	node, edge   kinds

	report      func(done, total int64)
	done, total int64
}

// dglWriter writes parts in DGL's format.
type dglWriter struct {
	*writer
	to        Partitioning
	newID     mem.Array[int64] // by original id
	nodeStart []int64          // [parts + 1]
	edgeStart []int64          // [parts + 1], of inner edges
	outer     []int64          // [parts] edges that leave the partition
	edgeFiles []*os.File       // [parts] feature files, while they are written
	edgeAt    [][]int64        // [parts][place] where their data go
}

func newDGLWriter(w *writer, to Partitioning) *dglWriter { return &dglWriter{writer: w, to: to} }

func (w *dglWriter) steps() []func() error {
	takeIDs := func() error { return w.takeIDs(w.to) }
	return []func() error{w.number, w.count, w.checkRoom, w.writeNodes, w.writeEdges, w.writeEdgeFeatures, w.writeChecksums, takeIDs}
}

func (w *dglWriter) free() {
	w.newID.Free()
	closeAll(w.edgeFiles)
}

func (w *writer) partDir(p int) string { return filepath.Join(w.tmp, fmt.Sprintf("part%d", p)) }

func (w *writer) progress(n int64) {
	w.done = min(w.done+n, w.total)
	if w.report != nil {
		w.report(w.done, w.total)
	}
}

// block is the buffer of one of n open regions: 32 MiB in all, as far as that
// goes.
func (w *writer) block(n int) int { return min(max(32<<20/n, 4<<10), 1<<20) }

// number gives every node its new id: as types follow each other in the order
// that nodes had, they do so in each partition.
func (w *dglWriter) number() (err error) {
	if w.newID, err = mem.Make[int64](mem.Scratch, len(w.assign)); err != nil {
		return err
	}
	next := make([]int64, w.parts+1)
	for _, p := range w.assign {
		next[p+1]++
	}
	for p := range w.parts {
		next[p+1] += next[p]
	}
	w.nodeStart = append([]int64(nil), next...)
	for i, p := range w.assign {
		w.newID.Data[i] = next[p]
		next[p]++
	}
	w.progress(w.nodes)
	return w.node.runs(0, w.nodes, func(t int, lo, hi int64) error {
		for _, p := range w.assign[lo:hi] {
			w.node.count[p][t]++
		}
		return nil
	})
}

// count counts the edges of every partition.
func (w *dglWriter) count() error {
	w.edgeStart, w.outer = make([]int64, w.parts+1), make([]int64, w.parts)
	err := w.src.EdgesBatch(func(first int64, src, dst []int64) error {
		w.progress(int64(len(src)))
		return w.edge.runs(first, int64(len(src)), func(r int, lo, hi int64) error {
			for i := lo; i < hi; i++ {
				from, to := w.assign[src[i]], w.assign[dst[i]]
				w.edgeStart[to+1]++
				w.edge.count[to][r]++
				if from != to {
					w.outer[from]++
				}
			}
			return nil
		})
	})
	for p := range w.parts {
		w.edgeStart[p+1] += w.edgeStart[p]
	}
	return err
}

func (w *dglWriter) checkRoom() error {
	return wantRoom(w.tmp, w.diskBytes(), "the parts need", "name another directory")
}

func (w *dglWriter) innerNodes(p int) int64 { return w.nodeStart[p+1] - w.nodeStart[p] }
func (w *dglWriter) innerEdges(p int) int64 { return w.edgeStart[p+1] - w.edgeStart[p] }

// createFeatures makes the feature file of every partition and returns, for
// every partition and place, the region of its rows.
func (w *dglWriter) createFeatures(file string, k *kinds) (files []*os.File, at [][]int64, err error) {
	files = make([]*os.File, w.parts)
	at = make([][]int64, w.parts)
	for p := range w.parts {
		var l layout
		at[p] = l.tensors(k.features(p))
		if files[p], err = l.create(filepath.Join(w.partDir(p), file)); err != nil {
			closeAll(files)
			return nil, nil, err
		}
	}
	return files, at, nil
}

// regions are the appenders of one array of a type, row bytes each, by partition.
func (w *dglWriter) regions(files []*os.File, at [][]int64, k *kinds, t, array int, row int64) []*appender {
	out := make([]*appender, w.parts)
	for p := range out {
		out[p] = newAppender(files[p], at[p][k.place(t, array)], row*k.count[p][t], w.block(w.parts))
	}
	return out
}

func closeAll(files []*os.File) error {
	var err error
	for _, f := range files {
		if f != nil {
			if e := f.Close(); e != nil && err == nil {
				err = e
			}
		}
	}
	return err
}

// writeNodes writes the node features. One pass over each in its own order
// serves all partitions, since nodes keep their order inside a partition.
func (w *dglWriter) writeNodes() (err error) {
	files, at, err := w.createFeatures(nodeFile, &w.node)
	if err != nil {
		return err
	}
	defer func() {
		if e := closeAll(files); err == nil {
			err = e
		}
	}()
	for t, of := range w.node.list {
		assign := w.assign[w.node.first[t]:w.node.first[t+1]]
		for k, a := range of.Arrays {
			out := w.regions(files, at, &w.node, t, k, a.RowBytes())
			if err := w.scatterRows(false, t, a, 0, assign, out); err != nil {
				return err
			}
			if err := finishAll(out); err != nil {
				return err
			}
			w.progress(of.Rows)
		}
		if of.keepsIDs() {
			continue
		}
		out := w.regions(files, at, &w.node, t, len(of.Arrays), 8)
		for i, p := range assign {
			if err := out[p].int64(int64(i)); err != nil {
				return err
			}
		}
		if err := finishAll(out); err != nil {
			return err
		}
	}
	return nil
}

// scatterRows reads len(to) rows of a type from its row first on and appends
// row i to out[to[i]].
func (w *writer) scatterRows(edge bool, kind int, t TensorInfo, first int64, to []int32, out []*appender) error {
	row := t.RowBytes()
	if row == 0 {
		return nil
	}
	buf := make([]byte, row*max(1, min(int64(len(to)), (4<<20)/row)))
	for at := 0; at < len(to); {
		n := min(int64(len(to)-at), int64(len(buf))/row)
		if err := w.src.ReadRows(edge, kind, t.Name, first+int64(at), buf[:n*row]); err != nil {
			return err
		}
		for i := range n {
			if err := out[to[int64(at)+i]].write(buf[i*row : (i+1)*row]); err != nil {
				return err
			}
		}
		at += int(n)
	}
	return nil
}

// writeEdgeFeatures adds the edge features to the files that writeEdges made.
func (w *dglWriter) writeEdgeFeatures() error {
	for r, of := range w.edge.list {
		for k, t := range of.Arrays {
			if err := w.writeEdgeFeature(r, k, t); err != nil {
				return err
			}
		}
	}
	files := w.edgeFiles
	w.edgeFiles = nil
	return closeAll(files)
}

func (w *dglWriter) writeEdgeFeature(relation, k int, t TensorInfo) error {
	out := w.regions(w.edgeFiles, w.edgeAt, &w.edge, relation, k, t.RowBytes())
	if err := w.appendEdgeRows(relation, t, out); err != nil {
		return err
	}
	return finishAll(out)
}

// appendEdgeRows appends the rows of an edge feature to the parts of the destinations.
func (w *writer) appendEdgeRows(relation int, t TensorInfo, out []*appender) error {
	to := make([]int32, 0, batch)
	return w.src.EdgesBatch(func(first int64, _, dst []int64) error {
		return w.edge.runs(first, int64(len(dst)), func(r int, lo, hi int64) error {
			if r != relation {
				return nil
			}
			to = to[:0]
			for _, d := range dst[lo:hi] {
				to = append(to, w.assign[d])
			}
			w.progress(hi - lo)
			return w.scatterRows(true, r, t, first+lo-w.edge.first[r], to, out)
		})
	})
}
