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
	path  string
	part  int
	flags Flags

	open       sync.Mutex
	*Partition // while it is open
}

// EdgesAgain gives the edges of the partition, which may be closed meanwhile.
func (p *Partition) EdgesAgain() *PartitionEdges {
	return &PartitionEdges{path: p.path, part: p.part, flags: p.flags}
}

// Open makes the edges readable while use runs. One caller at a time.
func (s *PartitionEdges) Open(use func() error) error {
	s.open.Lock()
	defer s.open.Unlock()
	p, err := OpenPartition(s.path, s.part, s.flags)
	if err != nil {
		return err
	}
	s.Partition = p
	defer func() {
		s.Partition = nil
		p.Close() // files read only: nothing can be lost
	}()
	err = use()
	if errors.Is(err, graph.ErrTwice) { // of edges each of which is in order by itself
		err = disk.Bad(s.path, -1, "partitions in which every edge has an id of its own", "%v", err)
	}
	return err
}

// Relations implements topology.Made: a part in SAR's format has them.
func (p *Partition) Relations(threads int) ([]*graph.Relation, int64, error) {
	if p.sar == nil {
		return nil, 0, nil
	}
	rels, err := p.sar.Relations(threads)
	return rels, p.sar.Partitioning, err
}
