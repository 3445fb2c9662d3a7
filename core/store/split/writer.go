// Package split has what writers of partitions share: how the rows of a graph fall to parts,
// and the directory in which parts are made before they get their places.
package split

import (
	"fmt"
	"os"
	"path/filepath"

	"sar/core/internal/argument"
	"sar/core/store/disk"
	"sar/core/store/input"
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

// TakeIDs moves the files of the users' ids to their parts.
func (w *Writer) TakeIDs(to Partitioning) error {
	for _, file := range to.IDs {
		if filepath.Base(file) != file {
			return argument.Errorf("%q cannot be the name of a file of ids", file)
		}
		for p := range w.Parts {
			from := filepath.Join(to.IDsDir, fmt.Sprintf("part%d", p), file)
			if err := os.Rename(from, filepath.Join(w.PartDir(p), file)); err != nil {
				return err
			}
		}
	}
	return nil
}

// The formats of partitions.
const (
	SARFormat = "sar"
	DGLFormat = "dgl"
)

// Writer holds the state of one WritePartitions.
type Writer struct {
	Src          input.Source
	Assign       []int32
	Parts        int
	Tmp          string
	Nodes, Edges int64
	Node, Edge   Kinds

	Report      func(done, total int64)
	done, Total int64
}

func (w *Writer) PartDir(p int) string { return filepath.Join(w.Tmp, fmt.Sprintf("part%d", p)) }

func (w *Writer) Progress(n int64) {
	w.done = min(w.done+n, w.Total)
	if w.Report != nil {
		w.Report(w.done, w.Total)
	}
}

// Block is the buffer of one of n open regions: 32 MiB in all, as far as that
// goes.
func (w *Writer) Block(n int) int { return min(max(32<<20/n, 4<<10), 1<<20) }

// ScatterRows reads len(to) rows of a type from its row first on and appends
// row i to out[to[i]].
func (w *Writer) ScatterRows(edge bool, kind int, t disk.TensorInfo, first int64, to []int32, out []*disk.Appender) error {
	row := t.RowBytes()
	if row == 0 {
		return nil
	}
	buf := make([]byte, row*max(1, min(int64(len(to)), (4<<20)/row)))
	for at := 0; at < len(to); {
		n := min(int64(len(to)-at), int64(len(buf))/row)
		if err := w.Src.ReadRows(edge, kind, t.Name, first+int64(at), buf[:n*row]); err != nil {
			return err
		}
		for i := range n {
			if err := out[to[int64(at)+i]].Write(buf[i*row : (i+1)*row]); err != nil {
				return err
			}
		}
		at += int(n)
	}
	return nil
}

// AppendEdgeRows appends the rows of an edge feature to the parts of the destinations.
func (w *Writer) AppendEdgeRows(relation int, t disk.TensorInfo, out []*disk.Appender) error {
	to := make([]int32, 0, disk.Batch)
	return w.Src.EdgesBatch(func(first int64, _, dst []int64) error {
		return w.Edge.Runs(first, int64(len(dst)), func(r int, lo, hi int64) error {
			if r != relation {
				return nil
			}
			to = to[:0]
			for _, d := range dst[lo:hi] {
				to = append(to, w.Assign[d])
			}
			w.Progress(hi - lo)
			return w.ScatterRows(true, r, t, first+lo-w.Edge.First[r], to, out)
		})
	})
}
