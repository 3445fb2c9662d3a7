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
	"sync"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/mem"
	"sar/core/store/dgl"
	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/sar"
)

// MapFeature maps a feature of one number or more, as NodeFeatures or EdgeFeatures names it, in
// place of reading it. Where the partition has checksums, the whole feature is held against them
// now. The feature stays mapped when the partition is closed; free it.
//
// A file of DGL's format may have a feature at any byte. One that does not begin at a multiple of
// 64 is copied to a file without a name in the same directory, which goes with the mapping.
func (p *Partition) MapFeature(edge bool, name string) (*disk.MappedFeature, error) {
	a, err := p.Feature(edge, name)
	if err != nil {
		return nil, err
	}
	return a.Map()
}

// OpenGraph opens a graph directory, an .npz graph, or all parts of a partitioned graph by
// their description (see OpenParts). What is wrong with a file is a *FormatError.
func OpenGraph(path string) (input.Graph, error) {
	if st, err := os.Stat(path); filepath.Ext(path) == ".json" && (err != nil || !st.IsDir()) {
		return OpenParts(path, Options{})
	}
	return input.Open(path)
}

// Options are what a caller may allow when it opens a partition.
type Options struct {
	// OutsidePaths lets the description of a partition name files outside its own directory.
	OutsidePaths bool
}

// Partition is one worker's part of a graph, as DGL's partition_graph or
// WritePartitions left it on disk, in DGL's format or SAR's. Opening it reads headers alone. It may be
// used by several goroutines.
type Partition struct {
	path    string
	part    int
	options Options
	name    string
	book    *graph.Book
	files   partFiles
	sar     *sar.Part // files, nil in DGL's format

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
func OpenPartition(jsonPath string, part int, o Options) (*Partition, error) {
	cfg, err := openConfig(jsonPath, part, o)
	if err != nil {
		return nil, err
	}
	p := &Partition{path: jsonPath, part: part, options: o, name: cfg.graphName, book: cfg.book}
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
func openConfig(jsonPath string, part int, o Options) (*partConfig, error) {
	data, err := disk.ReadJSON("the description of the partitions", jsonPath)
	if err != nil {
		return nil, err
	}
	cfg, err := parseDescription(jsonPath, data, part)
	if err != nil || o.OutsidePaths {
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

// Book says who owns which ids. It is shared: do not change it. GraphName is the name that the graph
// was partitioned under, and Part the number of this partition, among NumParts.
func (p *Partition) Book() *graph.Book { return p.book }
func (p *Partition) GraphName() string { return p.name }
func (p *Partition) NumParts() int     { return p.book.Parts }
func (p *Partition) Part() int         { return p.part }

// LocalCounts are sizes of what the files of one partition hold.
type LocalCounts struct {
	Nodes, InnerNodes int64 // with and without the halo
	Edges, InnerEdges int64 // inner edges are the in-edges of inner nodes
}

// LocalCounts returns sizes of the partition.
func (p *Partition) LocalCounts() LocalCounts {
	firstNode, endNode := p.book.Nodes(p.part)
	firstEdge, endEdge := p.book.Edges(p.part)
	return LocalCounts{p.files.NumNodes(), endNode - firstNode, p.files.NumEdges(), endEdge - firstEdge}
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

// Bytes is the size of the files of the partition's arrays.
func (p *Partition) Bytes() int64 { return p.files.Size() }

// NodeFeatures lists what node features the partition has, by name. Rows are
// the inner nodes of the type in ascending id.
func (p *Partition) NodeFeatures() []disk.TensorInfo { return disk.Infos(p.files.Features(false)) }

// EdgeFeatures lists what edge features the partition has, by name. Rows are
// the in-edges of inner nodes, of the type, in ascending id.
func (p *Partition) EdgeFeatures() []disk.TensorInfo { return disk.Infos(p.files.Features(true)) }

// ReadFeature reads a feature, as NodeFeatures or EdgeFeatures names it, into
// dst, which has exactly its size.
func (p *Partition) ReadFeature(edge bool, name string, dst []byte) error {
	a, err := p.Feature(edge, name)
	if err != nil {
		return err
	}
	return a.ReadAll(dst)
}

// Feature is where a feature lies, as NodeFeatures or EdgeFeatures names it.
func (p *Partition) Feature(edge bool, name string) (disk.Array, error) {
	feats, kind := p.files.Features(edge), "node"
	if edge {
		kind = "edge"
	}
	a, ok := feats[name]
	if !ok {
		var have []string
		for _, t := range disk.Infos(feats) {
			have = append(have, t.Name)
		}
		return a, argument.Errorf("partition %d of %q has no %s feature %q (it has %q)", p.part, p.name, kind, name, have)
	}
	return a, nil
}
