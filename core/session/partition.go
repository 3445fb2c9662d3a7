package session

import (
	"context"

	"sar/core/store"
	"sar/core/store/disk"
	"sar/core/store/input"
)

// What partitions are, and what is told of them.
type (
	Partition      = store.Partition // one worker's files of a partitioned graph
	PartitionFlags = store.Flags
	PartitionInfo  = store.Info
	MappedFeature  = disk.MappedFeature // a feature in the address space of the process
	FileReport     = disk.FileReport    // what VerifyPartition tells of a file
	FeatureInfo    = disk.TensorInfo    // the type and shape of a feature
)

// PartitionOutside allows a description to name files out of its directory.
const PartitionOutside = store.Outside

// OpenPartition opens part of the graph that the JSON of sar partition, or of DGL, describes.
func OpenPartition(jsonPath string, part int, flags PartitionFlags) (*Partition, error) {
	return store.OpenPartition(jsonPath, part, flags)
}

// VerifyPartition reads the files of a partition whole and tells what is wrong with each.
func VerifyPartition(jsonPath string, part int, flags PartitionFlags) ([]FileReport, error) {
	return store.Verify(jsonPath, part, flags)
}

// VerifyGraphDir does the same with a graph directory.
func VerifyGraphDir(dir string) ([]FileReport, error) { return input.VerifyDirectory(dir) }

// SumGraphDir writes the checksums of a graph directory.
func SumGraphDir(dir string) error { return input.SumDirectory(dir) }

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
