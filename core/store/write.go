package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sar/core/mem"
)

// Source is a homogeneous graph to be partitioned. A *Dataset is one.
type Source interface {
	NumNodes() int64
	NumEdges() int64
	NodeArrays() []TensorInfo
	EdgeArrays() []TensorInfo
	// EdgesBatch yields runs of edges in order, the same each time.
	EdgesBatch(yield func(first int64, src, dst []int64) error) error
	// ReadRows reads rows of a feature, from row first on, into dst.
	ReadRows(edge bool, name string, first int64, dst []byte) error
}

// WritePartitions splits a graph: node i goes to partition assignment[i]. It
// writes dir/name.json and dir/part<p>/{graph,node_feat,edge_feat}.dgl as DGL's
// partition_graph does with one halo hop, for dgl.distributed.load_partition
// and OpenPartition.
//
// Nodes are numbered anew so that a partition owns a contiguous range, in the
// order they had; edges too, each belonging to the partition of its
// destination. Features "orig_id" of nodes and edges keep the original ids, as
// DGL's return_mapping gives them. Bool is written as uint8, as DGL does.
//
// Everything is written beside its place first and renamed at the end, the
// JSON last, so that a failed write leaves no graph that claims to be whole,
// and what was there before as it was. Memory: 8 bytes a node and fixed
// buffers. Disk: two passes over the edges, one over each feature. progress,
// where not nil, is called now and then with done of total, which never fall.
func WritePartitions(src Source, assignment []int32, parts int, dir, name, method string, progress func(done, total int64)) error {
	if err := checkWrite(src, assignment, parts, name); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o775); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, "."+name+"-*.partial")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	w := &writer{src: src, assign: assignment, parts: parts, tmp: tmp, report: progress,
		nodes: src.NumNodes(), edges: src.NumEdges(), nodeArrays: src.NodeArrays(), edgeArrays: src.EdgeArrays()}
	w.total = w.nodes*int64(1+len(w.nodeArrays)) + w.edges*int64(3+len(w.edgeArrays))
	if w.newID, err = mem.Make[int64](mem.Scratch, len(assignment)); err != nil {
		return err
	}
	defer w.newID.Free()
	defer func() { closeAll(w.edgeFiles) }()
	for p := range parts {
		if err := os.Mkdir(w.partDir(p), 0o775); err != nil {
			return err
		}
	}
	for _, step := range []func() error{w.number, w.count, w.writeNodes, w.writeEdges, w.writeEdgeFeatures} {
		if err := step(); err != nil {
			return fmt.Errorf("writing partitions to %s: %w", dir, err)
		}
	}
	config := filepath.Join(tmp, "config.json")
	if err := os.WriteFile(config, w.config(name, method), 0o664); err != nil {
		return err
	}
	return w.publish(dir, name, config)
}

func checkWrite(src Source, assignment []int32, parts int, name string) error {
	if parts < 1 {
		return argumentf("%d partitions: at least 1 is needed", parts)
	}
	if int64(len(assignment)) != src.NumNodes() {
		return argumentf("an assignment of %d nodes for a graph of %d", len(assignment), src.NumNodes())
	}
	for i, p := range assignment {
		if p < 0 || int(p) >= parts {
			return argumentf("node %d is assigned to partition %d: partitions are 0 to %d", i, p, parts-1)
		}
	}
	if name == "" || strings.ContainsAny(name, "/\\\x00") || strings.HasPrefix(name, ".") {
		return argumentf("%q cannot be the name of a graph: it names a file", name)
	}
	return nil
}

const (
	nodeFile      = "node_feat.dgl"
	edgeFile      = "edge_feat.dgl"
	partGraphFile = "graph.dgl"
)

// writer holds the state of one WritePartitions.
type writer struct {
	src                    Source
	assign                 []int32
	parts                  int
	tmp                    string
	nodes, edges           int64
	nodeArrays, edgeArrays []TensorInfo

	newID     mem.Array[int64] // by original id
	nodeStart []int64          // [parts + 1]
	edgeStart []int64          // [parts + 1], of inner edges
	outer     []int64          // [parts] edges that leave the partition
	edgeFiles []*os.File       // [parts] feature files, while they are written
	edgeAt    [][]int64        // [parts][arrays + 1] where their data go

	report      func(done, total int64)
	done, total int64
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

// number gives every node its new id.
func (w *writer) number() error {
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
	return nil
}

// count counts the edges of every partition.
func (w *writer) count() error {
	w.edgeStart, w.outer = make([]int64, w.parts+1), make([]int64, w.parts)
	err := w.src.EdgesBatch(func(_ int64, src, dst []int64) error {
		for i := range src {
			from, to := w.assign[src[i]], w.assign[dst[i]]
			w.edgeStart[to+1]++
			if from != to {
				w.outer[from]++
			}
		}
		w.progress(int64(len(src)))
		return nil
	})
	for p := range w.parts {
		w.edgeStart[p+1] += w.edgeStart[p]
	}
	return err
}

func (w *writer) innerNodes(p int) int64 { return w.nodeStart[p+1] - w.nodeStart[p] }
func (w *writer) innerEdges(p int) int64 { return w.edgeStart[p+1] - w.edgeStart[p] }

// createFeatures makes the feature file of every partition and returns, for
// every array and partition, the region of its rows. The last array is the
// original ids.
func (w *writer) createFeatures(file, typ string, arrays []TensorInfo, rows func(p int) int64) (files []*os.File, at [][]int64, err error) {
	files = make([]*os.File, w.parts)
	at = make([][]int64, w.parts)
	for p := range w.parts {
		var l layout
		var list []TensorInfo
		for _, t := range arrays {
			shape := append([]int64{rows(p)}, t.Shape[1:]...)
			list = append(list, TensorInfo{typ + "/" + t.Name, t.DType, shape})
		}
		list = append(list, TensorInfo{typ + "/" + origID, Int64, []int64{rows(p)}})
		at[p] = l.tensors(list)
		if files[p], err = l.create(filepath.Join(w.partDir(p), file)); err != nil {
			closeAll(files)
			return nil, nil, err
		}
	}
	return files, at, nil
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
func (w *writer) writeNodes() (err error) {
	files, at, err := w.createFeatures(nodeFile, defaultNodeType, w.nodeArrays, w.innerNodes)
	if err != nil {
		return err
	}
	defer func() {
		if e := closeAll(files); err == nil {
			err = e
		}
	}()
	for k, t := range w.nodeArrays {
		row := t.RowBytes()
		out := make([]*appender, w.parts)
		for p := range out {
			out[p] = newAppender(files[p], at[p][k], row*w.innerNodes(p), w.block(w.parts))
		}
		if err := w.scatterRows(false, t, 0, w.assign, out); err != nil {
			return err
		}
		if err := finishAll(out); err != nil {
			return err
		}
		w.progress(w.nodes)
	}
	out := make([]*appender, w.parts)
	for p := range out {
		out[p] = newAppender(files[p], at[p][len(w.nodeArrays)], 8*w.innerNodes(p), w.block(w.parts))
	}
	for i, p := range w.assign {
		if err := out[p].int64(int64(i)); err != nil {
			return err
		}
	}
	return finishAll(out)
}

// scatterRows reads len(to) rows from row first on and appends row i to out[to[i]].
func (w *writer) scatterRows(edge bool, t TensorInfo, first int64, to []int32, out []*appender) error {
	row := t.RowBytes()
	if row == 0 {
		return nil
	}
	buf := make([]byte, row*max(1, min(int64(len(to)), (4<<20)/row)))
	for at := 0; at < len(to); {
		n := min(int64(len(to)-at), int64(len(buf))/row)
		if err := w.src.ReadRows(edge, t.Name, first+int64(at), buf[:n*row]); err != nil {
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
func (w *writer) writeEdgeFeatures() error {
	to := make([]int32, 0, batch)
	for k, t := range w.edgeArrays {
		out := make([]*appender, w.parts)
		for p := range out {
			out[p] = newAppender(w.edgeFiles[p], w.edgeAt[p][k], t.RowBytes()*w.innerEdges(p), w.block(w.parts))
		}
		err := w.src.EdgesBatch(func(first int64, _, dst []int64) error {
			to = to[:0]
			for _, d := range dst {
				to = append(to, w.assign[d])
			}
			w.progress(int64(len(dst)))
			return w.scatterRows(true, t, first, to, out)
		})
		if err != nil {
			return err
		}
		if err := finishAll(out); err != nil {
			return err
		}
	}
	files := w.edgeFiles
	w.edgeFiles = nil
	return closeAll(files)
}
