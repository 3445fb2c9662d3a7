package store

import (
	"errors"
	"sync"

	"sar/core/graph"
	"sar/core/store/disk"
)

// PartitionEdges reads the edges of a partition whenever they are needed, and keeps nothing open
// in between.
type PartitionEdges struct {
	path    string
	part    int
	options Options

	mu sync.Mutex
	p  *Partition // while it is open
}

// EdgesAgain gives the edges of the partition, which may be closed meanwhile.
func (p *Partition) EdgesAgain() *PartitionEdges {
	return &PartitionEdges{path: p.path, part: p.part, options: p.options}
}

// Open makes the edges readable while use runs. One caller at a time.
func (s *PartitionEdges) Open(use func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := OpenPartition(s.path, s.part, s.options)
	if err != nil {
		return err
	}
	s.p = p
	defer func() {
		s.p = nil
		p.Close() // files read only: nothing can be lost
	}()
	return s.damage(use())
}

// damage makes a FormatError of what is wrong with the edges of a file though each by
// itself is in order.
func (s *PartitionEdges) damage(err error) error {
	if !errors.Is(err, graph.ErrTwice) {
		return err
	}
	return &disk.FormatError{File: s.path, Offset: -1, Want: "partitions in which every edge has an id of its own",
		Got: err.Error()}
}

// Relations implements topology.Made: a part in SAR's format has them.
func (s *PartitionEdges) Relations(threads int) ([]*graph.Relation, int64, error) {
	if s.p.sar == nil {
		return nil, 0, nil
	}
	rels, err := s.p.sar.Relations(threads)
	return rels, s.p.sar.Partitioning, err
}

// Nodes are the ids of local nodes, own ones first.
func (s *PartitionEdges) Nodes() ([]int64, int, error) { return s.p.Edges().Nodes() }

// NumEdges is the number of edges.
func (s *PartitionEdges) NumEdges() int64 { return s.p.Edges().NumEdges() }

// Edges yields them in batches.
func (s *PartitionEdges) Edges(yield func(graph.EdgeBatch) error) error {
	return s.p.Edges().Edges(yield)
}
