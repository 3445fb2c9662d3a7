// Package input reads graphs that are not partitioned yet: directories of .npy files with a
// description (directory), which sar ingest makes, and .npz files (npzGraph).
package input

import (
	"os"
	"slices"

	"sar/core/store/disk"
)

// Graph is a graph on disk that is to be partitioned.
type Graph interface {
	Source
	NumNodes() int64
	NumEdges() int64
	Ignored() []string // names of arrays that are neither features nor edges
	// IDs is, by node type, the path of the file of the users' ids, where there is one.
	IDs() map[string]string
	Close() error
}

// Open opens a graph directory (see directory) or an .npz graph (see npzGraph). What is
// wrong with a file is a *FormatError.
func Open(path string) (Graph, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return openDirectory(path)
	}
	f, err := disk.OpenFile("the graph", path)
	if err != nil {
		return nil, err
	}
	return OpenNPZ(f)
}

// OrigID is the feature that holds original ids beside DGL's.
const OrigID = "orig_id"

// TypeRows is one node type, or one relation under the name
// source:relation:destination: how many nodes or edges it has, and their features.
type TypeRows struct {
	Name   string            `json:"name"`
	Rows   int64             `json:"rows"`
	Arrays []disk.TensorInfo `json:"-"`
	// Src and Dst are the node types that a relation joins.
	Src, Dst int `json:"-"`
}

// Source is a graph of any types to be partitioned. Nodes are numbered
// over all types, one type after the other, and so are edges.
type Source interface {
	NodeTypes() []TypeRows
	EdgeTypes() []TypeRows
	// EdgesBatch yields runs of edges in order, the same each time.
	EdgesBatch(yield func(first int64, src, dst []int64) error) error
	// ReadRows reads rows of a feature of one type, from the type's row first on, into dst.
	ReadRows(edge bool, kind int, name string, first int64, dst []byte) error
}

// KeepsIDs tells whether original ids are among the features, so that there are no others.
func (t *TypeRows) KeepsIDs() bool {
	return slices.ContainsFunc(t.Arrays, func(a disk.TensorInfo) bool { return a.Name == OrigID })
}
