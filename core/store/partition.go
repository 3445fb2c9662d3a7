// Package store reads and writes partitioned graphs on disk, in SAR's format or DGL's, and opens
// every kind of graph that is to be partitioned. Its rooms:
//
//	disk   files that may be damaged: arrays, checksums, errors that name a place
//	npy    .npy and .npz
//	input  graphs that are not partitioned yet
//	sar    parts in SAR's format
//	dgl    parts in DGL's, which are exported from SAR's
//
// Readers trust nothing. Large arrays are never read whole: edges stream in batches, features go
// straight into the caller's memory or are mapped.
package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/mem"
	"sar/core/store/dgl"
	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/sar"
)

// OpenGraph opens a graph directory, an .npz graph, or all parts of a partitioned graph by
// their description (see OpenParts). What is wrong with a file is a *FormatError.
func OpenGraph(path string) (input.Graph, error) {
	if st, err := os.Stat(path); filepath.Ext(path) == ".json" && (err != nil || !st.IsDir()) {
		return OpenParts(path)
	}
	return input.Open(path)
}

// Flags say how a partition is opened.
type Flags uint32

// Outside lets the description of a partition name files outside its own directory.
const Outside Flags = 1

// Partition is one worker's part of a graph, as DGL's partition_graph or
// WritePartitions left it on disk, in DGL's format or SAR's. Opening it reads headers alone. It may be
// used by several goroutines.
type Partition struct {
	path  string
	part  int
	flags Flags
	name  string
	book  *graph.Book
	files partFiles
	sar   *sar.Part // files, nil in DGL's format

	mu  sync.Mutex
	ids mem.Array[int64] // homogenized ids of local nodes, read when first asked for
}

// partFiles are the files of a partition in one of the formats.
type partFiles interface {
	NumNodes() int64 // with the halo
	NumEdges() int64
	// NodeIDs fills ids with those of own nodes and then of the halo, checked.
	NodeIDs(ids []int64) error
	// Batches streams the edges, checked.
	Batches(yield func(graph.EdgeBatch) error) error
	// Features are those of edges or of nodes, by name.
	Features(edge bool) map[string]disk.Array
	// Bad is the error of what is wrong with the edges together.
	Bad(want, got string, args ...any) error
	Size() int64
	Close() error
}

// OpenPartition opens partition part of the graph that the JSON of sar partition or of DGL
// describes. What is wrong with a file is a *FormatError. Where the partition
// has checksums, the headers are held against them now, and every array when it
// is read.
func OpenPartition(jsonPath string, part int, flags Flags) (*Partition, error) {
	cfg, err := openConfig(jsonPath, part, flags)
	if err != nil {
		return nil, err
	}
	p := &Partition{path: jsonPath, part: part, flags: flags, name: cfg.graphName, book: cfg.book}
	var sums map[string]disk.Checksums
	if path := cfg.files[disk.SumsKey]; path != "" {
		if sums, _, err = disk.OpenSums(path); err != nil {
			return nil, fmt.Errorf("%w (named by %s)", err, p.path)
		}
	}
	if cfg.partitioning == "" {
		p.files, err = dgl.Open(jsonPath, cfg.files, sums, cfg.book, part)
	} else if p.sar, err = sar.Open(cfg.files[partKey], cfg.book, part, cfg.partitioning, sums); err == nil {
		p.files = p.sar
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// openConfig reads the description of a partitioned graph.
func openConfig(jsonPath string, part int, flags Flags) (*partConfig, error) {
	if flags&^Outside != 0 {
		return nil, argument.Errorf("unknown flags %#x of a partition", uint32(flags))
	}
	data, err := disk.ReadJSON("the description of the partitions", jsonPath)
	if err != nil {
		return nil, err
	}
	cfg, err := parseDescription(jsonPath, data, part)
	if err != nil || flags&Outside != 0 {
		return cfg, err
	}
	for key, path := range cfg.files {
		if err := disk.CheckInside(jsonPath, key, path); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}

// Close closes the files. What Nodes returned must not be used afterwards.
func (p *Partition) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids.Free()
	return p.files.Close()
}

// Book says who owns which ids. It is shared: do not change it. Part is the number of this partition.
func (p *Partition) Book() *graph.Book { return p.book }
func (p *Partition) Part() int         { return p.part }

// Info is what is known of a partition before its features are read.
type Info struct {
	GraphName     string                `json:"graph_name"`
	NumParts      int                   `json:"num_parts"`
	Part          int                   `json:"part"`
	NodeTypes     []string              `json:"node_types"`
	EdgeTypes     [][3]string           `json:"edge_types"`
	NodeRanges    map[string][][2]int64 `json:"node_ranges"`
	EdgeRanges    map[string][][2]int64 `json:"edge_ranges"`
	NodeFeatures  []disk.TensorInfo     `json:"node_features"`
	EdgeFeatures  []disk.TensorInfo     `json:"edge_features"`
	NumInnerNodes int64                 `json:"num_inner_nodes"`
	NumLocalNodes int64                 `json:"num_local_nodes"` // with the halo
	NumLocalEdges int64                 `json:"num_local_edges"`
	NumInnerEdges int64                 `json:"num_inner_edges"` // the in-edges of inner nodes
	Bytes         int64                 `json:"bytes"`           // of the files of arrays
	IDs           map[string]string     `json:"ids"`
	// Cover is what travels to the part for a sum over edges; nil where it is found when the graph is built.
	Cover *sar.Cover `json:"cover"`
}

// Info describes the partition.
func (p *Partition) Info() Info {
	book := p.book
	firstNode, endNode := book.Nodes(p.part)
	firstEdge, endEdge := book.Edges(p.part)
	info := Info{
		GraphName: p.name, NumParts: book.Parts, Part: p.part, NodeTypes: book.NodeTypes,
		EdgeTypes: [][3]string{}, NodeRanges: map[string][][2]int64{}, EdgeRanges: map[string][][2]int64{},
		NodeFeatures: p.Features(false), EdgeFeatures: p.Features(true),
		NumInnerNodes: endNode - firstNode, NumLocalNodes: p.files.NumNodes(),
		NumLocalEdges: p.files.NumEdges(), NumInnerEdges: endEdge - firstEdge, Bytes: p.files.Size(), IDs: p.IDs(),
	}
	if p.sar != nil {
		info.Cover = p.sar.Cover()
	}
	for t, name := range book.NodeTypes {
		info.NodeRanges[name] = pairs(book.NodeStart[t], book.NodeEnd[t])
	}
	for t, et := range book.EdgeTypes {
		info.EdgeTypes = append(info.EdgeTypes, [3]string{et.Src, et.Rel, et.Dst})
		info.EdgeRanges[et.String()] = pairs(book.EdgeStart[t], book.EdgeEnd[t])
	}
	return info
}

func pairs(start, end []int64) [][2]int64 {
	out := make([][2]int64, len(start))
	for i := range start {
		out[i] = [2]int64{start[i], end[i]}
	}
	return out
}

// IDs is, by node type, the path of the Parquet file of the users' ids of own nodes, in the
// order of rows, where the graph has some.
func (p *Partition) IDs() map[string]string {
	if p.sar == nil {
		return nil
	}
	return p.sar.IDs
}

// forgetHalo frees the ids of the nodes that are read of other parts. They are read again
// where they are asked for.
func (p *Partition) forgetHalo() {
	if p.sar != nil {
		p.sar.Halo = nil
	}
}

// Features lists what features of nodes, or of edges, the partition has, by name. Rows are the inner nodes of the
// type, or the in-edges of those, in ascending id.
func (p *Partition) Features(edge bool) []disk.TensorInfo { return disk.Infos(p.files.Features(edge)) }

// Read copies a feature into dst, a tensor of the given dtype and shape.
func (p *Partition) Read(edge bool, name string, dst []byte, dtype dtypes.Type, shape []int64) error {
	a, err := p.Feature(edge, name)
	if err != nil {
		return err
	}
	// Truth values are stored as uint8: DGL's files know no other way.
	if a.DType != dtype && !(a.DType == dtypes.Uint8 && dtype == dtypes.Bool) {
		return argument.TypeErrorf("%s feature %q is %s, and the tensor to read it into is %s", kindOf(edge), name, a.DType,
			dtype)
	}
	if !slices.Equal(a.Shape, shape) {
		return argument.Errorf("%s feature %q has shape %v, and the tensor to read it into has %v", kindOf(edge), name,
			a.Shape, shape)
	}
	return a.ReadAll(dst)
}

// MapFeature maps a feature of one number or more in place of reading it. Where the partition has checksums, the
// whole feature is held against them now. The feature stays mapped when the partition is closed; free it.
//
// A file of DGL's format may have a feature at any byte. One that does not begin at a multiple of
// 64 is copied to a file without a name in the same directory, which goes with the mapping.
func (p *Partition) MapFeature(edge bool, name string) (*disk.MappedFeature, error) {
	a, err := p.Feature(edge, name)
	if err == nil && a.Len == 0 {
		err = argument.Errorf("%s feature %q has shape %v: there is nothing to map", kindOf(edge), name, a.Shape)
	}
	if err != nil {
		return nil, err
	}
	return a.Map()
}

// kindOf is what has a feature, in words.
func kindOf(edge bool) string {
	if edge {
		return "edge"
	}
	return "node"
}

// Feature is where a feature lies, as Features names it.
func (p *Partition) Feature(edge bool, name string) (disk.Array, error) {
	a, ok := p.files.Features(edge)[name]
	if !ok {
		var have []string
		for _, t := range p.Features(edge) {
			have = append(have, t.Name)
		}
		return a, argument.Errorf("partition %d of %q has no %s feature %q (it has %q)", p.part, p.name, kindOf(edge), name,
			have)
	}
	return a, nil
}
