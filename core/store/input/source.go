// Package input reads graphs that are not partitioned yet: directories of .npy files with a
// description (directory), which sar ingest makes, and .npz files (npzGraph).
package input

import (
	"os"

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

// Table is a node type, or a relation under the name source:relation:destination: how many nodes
// or edges it has, and their features. Runs and the ends are of relations.
type Table struct {
	Name     string                `json:"name"`
	Rows     int64                 `json:"rows"`
	Arrays   map[string]disk.Array `json:"-"`
	Runs     EdgeReader            `json:"-"`
	Src, Dst int                   `json:"-"` // node types
}

// Features lists the features, by name.
func (t *Table) Features() []disk.TensorInfo { return disk.Infos(t.Arrays) }

// KeepsIDs tells whether original ids are among the features, so that there are no others.
func (t *Table) KeepsIDs() bool {
	_, kept := t.Arrays[OrigID]
	return kept
}

// EdgeReader gives the edges of one relation in runs, the same ones each time. Ends that
// are no nodes, of so many, are a *FormatError.
type EdgeReader interface {
	EdgeRuns(numSrc, numDst int64, yield func(first int64, src, dst []int64) error) error
}

// Source is a graph of any types to be partitioned. Nodes are numbered
// over all types, one type after the other, and so are edges.
type Source interface {
	NodeTypes() []Table
	EdgeTypes() []Table
	// EdgesBatch yields runs of edges in order, the same each time.
	EdgesBatch(yield func(first int64, src, dst []int64) error) error
}
