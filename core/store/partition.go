package store

import (
	"fmt"
	"sort"
	"strings"
	"sync"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/mem"
)

// Partition is one worker's part of a graph, as DGL's partition_graph or
// WritePartitions left it on disk, in DGL's format or SAR's. Opening it reads headers alone. It may be
// used by several goroutines.
type Partition struct {
	path      string
	part      int
	options   Options
	name      string
	book      *graph.Book
	files     []*file
	edges     partEdges
	sar       *sarPart // nil in DGL's format
	nodeFeats map[string]array
	edgeFeats map[string]array

	mu  sync.Mutex
	ids mem.Array[int64] // homogenized ids of local nodes, read when first asked for
}

// partEdges are the edges of a partition on disk.
type partEdges interface {
	counts() LocalCounts
	// nodeIDs fills ids with those of own nodes and then of the halo, checked.
	nodeIDs(ids []int64) error
	// batches streams the edges, checked.
	batches(yield func(graph.EdgeBatch) error) error
}

// LocalCounts are sizes of what the files of one partition hold.
type LocalCounts struct {
	Nodes, InnerNodes int64 // with and without the halo
	Edges, InnerEdges int64 // inner edges are the in-edges of inner nodes
}

// partFileKinds are the files of a partition: the key of their path in the
// description, the name that WritePartitions gives them, and where their arrays lie.
var partFileKinds = [3]struct {
	key, name, what string
	arrays          func(f *file) ([]array, error)
}{
	{graphKey, partGraphFile, "the graph of the partition", graphArrays},
	{nodeKey, nodeFile, "the node features of the partition", tensorArrays},
	{edgeKey, edgeFile, "the edge features of the partition", tensorArrays},
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
	for _, step := range []func(*partConfig) error{p.openFiles, p.parse} {
		if err := step(cfg); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// openConfig reads the description of a partitioned graph.
func openConfig(jsonPath string, part int, o Options) (*partConfig, error) {
	data, err := readJSON("the description of the partitions", jsonPath)
	if err != nil {
		return nil, err
	}
	cfg, err := parsePartConfig(jsonPath, data, part)
	if err != nil || o.OutsidePaths {
		return cfg, err
	}
	for _, key := range cfg.keys() {
		if err := checkInside(jsonPath, key, *cfg.files.at(key)); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}

// openFiles opens the files of the partition, and checks their headers where it
// has checksums.
func (p *Partition) openFiles(cfg *partConfig) (err error) {
	var sums map[string]checksums
	if cfg.files.Checksums != "" {
		if sums, _, err = openSums(cfg.files.Checksums); err != nil {
			return fmt.Errorf("%w (named by %s)", err, p.path)
		}
	}
	if cfg.partitioning != "" {
		if p.sar, err = openSarPart(cfg.files.Part, cfg.book, p.part, cfg.partitioning, sums); err != nil {
			return err
		}
		p.files, p.edges, p.nodeFeats, p.edgeFeats = p.sar.files, p.sar, p.sar.nodeFeats, p.sar.edgeFeats
		return nil
	}
	p.files = make([]*file, len(partFileKinds))
	for i, of := range partFileKinds {
		if p.files[i], err = openFile(of.what, *cfg.files.at(of.key)); err != nil {
			return fmt.Errorf("%w (named by %s)", err, p.path)
		}
		if sums == nil {
			continue
		}
		if sums[of.key] == nil {
			return noSums(cfg.files.Checksums, of.key)
		}
		if err := p.files[i].attach(sums[of.key]); err != nil {
			return err
		}
	}
	return nil
}

// parse reads the headers of DGL's files.
func (p *Partition) parse(*partConfig) (err error) {
	if p.sar != nil {
		return nil
	}
	if p.edges, err = openPartGraph(p.files[0], p.book, p.part); err != nil {
		return err
	}
	nodeRows, edgeRows := map[string]int64{}, map[string]int64{}
	for t, name := range p.book.NodeTypes {
		nodeRows[name] = p.book.NumNodes(t, p.part)
	}
	for t, et := range p.book.EdgeTypes {
		edgeRows[et.String()] = p.book.EdgeEnd[t][p.part] - p.book.EdgeStart[t][p.part]
	}
	if p.nodeFeats, err = features(p.files[1], nodeRows, graph.OnlyNodeType); err != nil {
		return err
	}
	p.edgeFeats, err = features(p.files[2], edgeRows, graph.OnlyEdgeType.String())
	return err
}

// features reads the headers of a feature file and holds the number of rows
// of each against the type it belongs to. Names without a type are those of
// older versions of DGL, which had one.
func features(f *file, rows map[string]int64, only string) (map[string]array, error) {
	list, err := parseTensors(f)
	if err != nil {
		return nil, err
	}
	out := map[string]array{}
	for _, a := range list {
		name := a.name
		if !strings.Contains(name, "/") {
			name = only + "/" + name
		}
		typ, _, _ := strings.Cut(name, "/")
		n, ok := rows[typ]
		if !ok {
			return nil, f.bad(a.off, "features of a type of this graph", "%q", name)
		}
		if len(a.shape) == 0 || a.shape[0] != n {
			return nil, f.bad(a.off, fmt.Sprintf("%d rows of feature %q, as many as the partition has", n, name), "shape %v", a.shape)
		}
		if _, twice := out[name]; twice {
			return nil, f.bad(a.off, "each feature once", "%q again", name)
		}
		a.what = fmt.Sprintf("feature %q", name)
		out[name] = a.array
	}
	return out, nil
}

// Close closes the files. What Nodes returned must not be used afterwards.
func (p *Partition) Close() error {
	var err error
	for _, f := range p.files {
		if e := f.Close(); e != nil && err == nil {
			err = e
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids.Free()
	return err
}

// Book says who owns which ids. It is shared: do not change it.
func (p *Partition) Book() *graph.Book { return p.book }

// GraphName is the name the graph was partitioned under.
func (p *Partition) GraphName() string { return p.name }

// NumParts is the number of partitions of the graph.
func (p *Partition) NumParts() int { return p.book.Parts }

// Part is the number of this partition.
func (p *Partition) Part() int { return p.part }

// LocalCounts returns sizes of the partition, halo included.
func (p *Partition) LocalCounts() LocalCounts { return p.edges.counts() }

// IDs is, by node type, the path of the Parquet file of the users' ids of own nodes, in the
// order of rows, where the graph has some.
func (p *Partition) IDs() map[string]string {
	if p.sar == nil {
		return nil
	}
	return p.sar.ids
}

// forgetHalo frees the ids of the nodes that are read of other parts. They are read again
// where they are asked for.
func (p *Partition) forgetHalo() {
	if p.sar != nil {
		p.sar.halo = nil
	}
}

// Bytes is the size of the files of the partition's arrays.
func (p *Partition) Bytes() (n int64) {
	for _, f := range p.files {
		n += f.size
	}
	return n
}

// NodeFeatures lists what node features the partition has, by name. Rows are
// the inner nodes of the type in ascending id.
func (p *Partition) NodeFeatures() []TensorInfo { return infos(p.nodeFeats) }

// EdgeFeatures lists what edge features the partition has, by name. Rows are
// the in-edges of inner nodes, of the type, in ascending id.
func (p *Partition) EdgeFeatures() []TensorInfo { return infos(p.edgeFeats) }

func infos(m map[string]array) []TensorInfo {
	out := make([]TensorInfo, 0, len(m))
	for name, a := range m {
		out = append(out, TensorInfo{Name: name, DType: a.dtype, Shape: append([]int64(nil), a.shape...)})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// ReadFeature reads a feature, as NodeFeatures or EdgeFeatures names it, into
// dst, which has exactly its size.
func (p *Partition) ReadFeature(edge bool, name string, dst []byte) error {
	a, err := p.feature(edge, name)
	if err != nil {
		return err
	}
	return a.read(dst)
}

func (p *Partition) feature(edge bool, name string) (array, error) {
	feats, kind := p.nodeFeats, "node"
	if edge {
		feats, kind = p.edgeFeats, "edge"
	}
	a, ok := feats[name]
	if !ok {
		var have []string
		for _, t := range infos(feats) {
			have = append(have, t.Name)
		}
		return a, argument.Errorf("partition %d of %q has no %s feature %q (it has %q)", p.part, p.name, kind, name, have)
	}
	return a, nil
}
