package session

import (
	"context"
	"slices"

	"sar/core/internal/dtypes"
	"sar/core/store"
	"sar/core/store/disk"
	"sar/core/store/input"
)

// Partition is one worker's files of a partitioned graph.
type Partition struct{ *store.Partition }

// PartitionFlags say how a partition is opened.
type PartitionFlags uint32

// PartitionOutside allows a description to name files out of its directory.
const PartitionOutside PartitionFlags = 1

func partitionOptions(flags PartitionFlags) (store.Options, error) {
	if flags&^PartitionOutside != 0 {
		return store.Options{}, Invalid("unknown flags %#x of a partition", flags)
	}
	return store.Options{OutsidePaths: flags&PartitionOutside != 0}, nil
}

// OpenPartition opens part of the graph that a DGL partition JSON describes.
func OpenPartition(jsonPath string, part int, flags PartitionFlags) (*Partition, error) {
	o, err := partitionOptions(flags)
	if err != nil {
		return nil, err
	}
	p, err := store.OpenPartition(jsonPath, part, o)
	if err != nil {
		return nil, err
	}
	return &Partition{p}, nil
}

// FileReport is what VerifyPartition tells of a file, FeatureInfo the type and shape of a feature.
type (
	FileReport  = disk.FileReport
	FeatureInfo = disk.TensorInfo
)

// VerifyPartition reads the files of a partition whole and tells what is wrong with each.
func VerifyPartition(jsonPath string, part int, flags PartitionFlags) ([]FileReport, error) {
	o, err := partitionOptions(flags)
	if err != nil {
		return nil, err
	}
	return store.Verify(jsonPath, part, o)
}

// VerifyGraphDir does the same with a graph directory.
func VerifyGraphDir(dir string) ([]FileReport, error) { return input.VerifyDirectory(dir) }

// SumGraphDir writes the checksums of a graph directory.
func SumGraphDir(dir string) error { return input.SumDirectory(dir) }

// PartitionInfo is what is known of a partition before its features are read.
type PartitionInfo struct {
	GraphName     string                `json:"graph_name"`
	NumParts      int                   `json:"num_parts"`
	Part          int                   `json:"part"`
	NodeTypes     []string              `json:"node_types"`
	EdgeTypes     [][3]string           `json:"edge_types"`
	NodeRanges    map[string][][2]int64 `json:"node_ranges"`
	EdgeRanges    map[string][][2]int64 `json:"edge_ranges"`
	NodeFeatures  []FeatureInfo         `json:"node_features"`
	EdgeFeatures  []FeatureInfo         `json:"edge_features"`
	NumInnerNodes int64                 `json:"num_inner_nodes"`
	NumLocalNodes int64                 `json:"num_local_nodes"`
	NumLocalEdges int64                 `json:"num_local_edges"`
	NumInnerEdges int64                 `json:"num_inner_edges"`
	Bytes         int64                 `json:"bytes"`
	// IDs is, by node type, the Parquet file of the users' ids of own nodes.
	IDs map[string]string `json:"ids"`
}

// Info describes the partition.
func (p *Partition) Info() PartitionInfo {
	book, counts := p.Book(), p.LocalCounts()
	info := PartitionInfo{
		GraphName: p.GraphName(), NumParts: book.Parts, Part: p.Part(), NodeTypes: book.NodeTypes,
		EdgeTypes: [][3]string{}, NodeRanges: map[string][][2]int64{}, EdgeRanges: map[string][][2]int64{},
		NodeFeatures: p.NodeFeatures(), EdgeFeatures: p.EdgeFeatures(),
		NumInnerNodes: counts.InnerNodes, NumLocalNodes: counts.Nodes,
		NumLocalEdges: counts.Edges, NumInnerEdges: counts.InnerEdges,
		Bytes: p.Bytes(), IDs: p.IDs(),
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

// owner is what has a feature, in words.
func owner(edge bool) string {
	if edge {
		return "edge"
	}
	return "node"
}

// Read copies a feature into dst, a tensor of the given dtype and shape.
func (p *Partition) Read(edge bool, name string, dst []byte, dtype DType, shape []int64) error {
	have, err := p.Feature(edge, name)
	if err != nil {
		return err
	}
	kind := owner(edge)
	// Truth values are stored as uint8: DGL's files know no other way.
	if have.DType != dtype && !(have.DType == dtypes.Uint8 && dtype == dtypes.Bool) {
		return WrongType("%s feature %q is %s, and the tensor to read it into is %s", kind, name, have.DType, dtype)
	}
	if !slices.Equal(have.Shape, shape) {
		return Invalid("%s feature %q has shape %v, and the tensor to read it into has %v", kind, name, have.Shape, shape)
	}
	return p.ReadFeature(edge, name, dst)
}

// MapFeature maps a feature of one number or more in place of reading it.
func (p *Partition) MapFeature(edge bool, name string) (*MappedFeature, error) {
	have, err := p.Feature(edge, name)
	if err != nil {
		return nil, err
	}
	if slices.Contains(have.Shape, 0) {
		return nil, Invalid("%s feature %q has shape %v: there is nothing to map", owner(edge), name, have.Shape)
	}
	return p.Partition.MapFeature(edge, name)
}

// MappedFeature is a feature in the address space of the process.
type MappedFeature = disk.MappedFeature

// Build makes the worker's part of the graph. Collective.
func (s *Session) Build(ctx context.Context, p *Partition, flags BuildFlags) (*Graph, error) {
	return s.graphWithin(ctx, func() (g *Graph, err error) {
		src := p.EdgesAgain()
		err = src.Open(func() error {
			g, err = s.buildPart(p.Book(), p.Part(), src, flags)
			return err
		})
		return g, err
	})
}
