package session

import (
	"sar/core/partition"
	"sar/core/store"
	"sar/core/store/input"
)

// Dataset is a whole graph on disk that is to be partitioned.
type Dataset struct {
	input.Graph
	path       string
	undirected *undirected // after Undirect
}

// OpenDataset opens a graph directory or an .npz graph.
func OpenDataset(path string) (*Dataset, error) {
	d, err := store.OpenGraph(path)
	if err != nil {
		return nil, err
	}
	return &Dataset{Graph: d, path: path}, nil
}

// Close closes the file.
func (d *Dataset) Close() error {
	d.forgetUndirected()
	return d.Graph.Close()
}

// AddSelfLoops gives every node that lacks one an edge to itself, behind the
// edges of the file.
func (d *Dataset) AddSelfLoops() error {
	looped, err := input.AddSelfLoops(d.Graph)
	if err != nil {
		return err
	}
	d.Graph = looped
	return nil
}

// Stream makes the data set a partition.Edges.
func (d *Dataset) Stream(yield func(src, dst []int64) error) error {
	return d.EdgesBatch(func(_ int64, src, dst []int64) error { return yield(src, dst) })
}

// DatasetInfo is what is known of a data set before it is read.
type DatasetInfo struct {
	NumNodes   int64         `json:"num_nodes"`
	NumEdges   int64         `json:"num_edges"`
	NodeArrays []FeatureInfo `json:"node_arrays"` // type/name where there are several types
	EdgeArrays []FeatureInfo `json:"edge_arrays"`
	NodeTypes  []TypeInfo    `json:"node_types"`
	EdgeTypes  []TypeInfo    `json:"edge_types"`
	Ignored    []string      `json:"ignored"`
	// IDs is, by node type, the Parquet file of the users' ids.
	IDs map[string]string `json:"ids"`
}

// TypeInfo is how many nodes or edges a type has.
type TypeInfo = input.Table

// Info describes the data set.
func (d *Dataset) Info() DatasetInfo {
	info := DatasetInfo{NumNodes: d.NumNodes(), NumEdges: d.NumEdges(), Ignored: append([]string{}, d.Ignored()...),
		IDs: d.IDs()}
	nodes, edges := d.Graph.NodeTypes(), d.Graph.EdgeTypes()
	typed := len(nodes) > 1 || len(edges) > 1
	info.NodeTypes, info.NodeArrays = nodes, arraysOf(nodes, typed)
	info.EdgeTypes, info.EdgeArrays = edges, arraysOf(edges, typed)
	return info
}

func arraysOf(list []TypeInfo, typed bool) []FeatureInfo {
	arrays := []FeatureInfo{}
	for _, of := range list {
		for _, a := range of.Features() {
			if typed {
				a.Name = of.Name + "/" + a.Name
			}
			arrays = append(arrays, a)
		}
	}
	return arrays
}

// Method is a way to partition a graph that needs no library.
type Method string

// The methods of Assign.
const (
	Stored     Method = "stored"     // the assignment of a graph that is partitioned
	Random     Method = "random"     // parts of equal sizes
	Contiguous Method = "contiguous" // ranges of nodes with about as many in-edges each
)

// Assign gives every node a partition.
func (d *Dataset) Assign(method Method, parts int, seed uint64, assignment []int32) error {
	if err := d.checkSizes(parts, assignment); err != nil {
		return err
	}
	switch method {
	case Stored:
		of, ok := d.Graph.(interface{ Assignment([]int32) error })
		if !ok {
			return Invalid("the assignment %q is that of a partitioned graph, and this one is not", method)
		}
		return of.Assignment(assignment)
	case Random:
		return partition.Random(assignment, parts, seed)
	case Contiguous:
		degrees, err := partition.InDegrees(d)
		if err != nil {
			return err
		}
		defer degrees.Free()
		return partition.Contiguous(assignment, degrees.Data, parts)
	}
	return Invalid("there is no partitioning method %q: there are random, contiguous and stored", method)
}

// Quality judges an assignment.
func (d *Dataset) Quality(assignment []int32, parts int) (partition.Report, error) {
	return partition.Quality(d, assignment, parts)
}

// WriteOptions say how parts are written. WriteParts is given all that is not in their JSON.
type WriteOptions = store.Partitioning

// edgeHolder is a graph that holds edges while it is read: a partitioned one.
type edgeHolder interface{ LimitMemory(bytes int64) }

// heldShare is one over the share of the memory that an edgeHolder gets.
const heldShare = 4

// LeastMemory is what WriteParts takes at least, for parts of equal sizes, in whatever format.
func (d *Dataset) LeastMemory(parts int, _ string) (int64, error) {
	if parts < 1 {
		return 0, Invalid("parts is %d: there must be at least one", parts)
	}
	least := store.LeastMemory(d.Graph, parts)
	if _, ok := d.Graph.(edgeHolder); ok {
		least += least/(heldShare-1) + 1
	}
	return least, nil
}

// WriteParts writes a partition directory in one of the formats. It forgets what Undirect
// made: the file of it would take room on the disk beside the parts.
func (d *Dataset) WriteParts(assignment []int32, parts int, dir string, o WriteOptions, progress Progress) error {
	d.forgetUndirected()
	if o.Memory == 0 {
		o.Memory = store.DefaultMemory
	}
	if parts, ok := d.Graph.(edgeHolder); ok {
		parts.LimitMemory(o.Memory / heldShare)
		o.Memory -= o.Memory / heldShare
	}
	o.Assignment, o.Parts, o.Dir, o.Progress = assignment, parts, dir, progress
	return store.WritePartitions(d.Graph, o)
}

func (d *Dataset) checkSizes(parts int, assignment []int32) error {
	if parts < 1 {
		return Invalid("parts is %d: there must be at least one", parts)
	}
	if int64(len(assignment)) != d.NumNodes() {
		return Invalid("assignment has %d entries for %d nodes", len(assignment), d.NumNodes())
	}
	return nil
}
