package session

import (
	"errors"
	"math"
	"os"

	"sar/core/partition"
	"sar/core/store/disk"
	"sar/core/store/input"
)

// Progress hears how far a step is. Its error ends the step.
type Progress = func(done, total int64) error

// ErrStopped is what a Progress returns where the caller wants the step to end.
var ErrStopped = errors.New("stopped")

// What partitioners that read from disk are asked for.
type (
	Fennel   = partition.Fennel
	Subgraph = partition.Subgraph
)

// undirected is a data set as partitioners see it that read it from disk.
type undirected struct {
	partition.Neighbours
	file    *os.File // without a name; nil where the graph's own files are read
	outward bool     // it has the edges in their own direction alone
	entries int64    // neighbours of all nodes together, once they are counted
}

func (u *undirected) close() {
	if u.file != nil {
		u.file.Close()
	}
}

func (d *Dataset) forgetUndirected() {
	if d.undirected != nil {
		d.undirected.close()
		d.undirected = nil
	}
}

// Undirect prepares Fennel, WriteParHIP and FillAdjacency. A graph of one type whose edges all go both
// ways is read as it lies on disk. Any other is sorted into a file in dir: 8 bytes an
// edge and 8 a node, and 16 bytes an edge more while it is made. That takes memory bytes,
// and 8 a node. With outward, that file has the edges in their own direction alone, at their
// sources.
func (d *Dataset) Undirect(dir string, memory int64, outward bool, progress Progress) error {
	if u := d.undirected; u != nil {
		if u.file == nil || u.outward == outward {
			return nil
		}
		d.forgetUndirected()
	}
	if m, ok := input.InEdges(d.Graph); ok {
		symmetric, err := partition.IsSymmetric(m)
		if err != nil {
			return d.damaged(err)
		}
		if symmetric {
			d.undirected = &undirected{Neighbours: partition.Symmetric(m)}
			return nil
		}
	}
	file, err := os.CreateTemp(dir, ".sar-graph-*")
	if err != nil {
		return err
	}
	u := &undirected{file: file, outward: outward}
	if err = os.Remove(file.Name()); err == nil {
		u.Neighbours, err = partition.Sorting{Outward: outward, Dir: dir, Memory: memory, Progress: progress}.File(d, file)
	}
	if err != nil {
		u.close()
		return err
	}
	d.undirected = u
	return nil
}

// Fennel assigns the nodes, after Undirect.
func (d *Dataset) Fennel(f Fennel, assignment []int32) error {
	if err := d.needUndirected(); err != nil {
		return err
	}
	return d.damaged(f.Assign(assignment, d.undirected))
}

func (d *Dataset) needUndirected() error {
	if d.undirected == nil {
		return Invalid("the data set has to be made undirected before it is partitioned")
	}
	return nil
}

// AdjacencyLen is the length of adjncy, after Undirect.
func (d *Dataset) AdjacencyLen() (int64, error) {
	err := d.needUndirected()
	if err == nil && d.undirected.entries == 0 {
		d.undirected.entries, err = partition.CountEntries(d.undirected)
		err = d.damaged(err)
	}
	if err != nil {
		return 0, err
	}
	return d.undirected.entries, nil
}

// FillAdjacency writes the undirected graph as Metis wants it, after Undirect.
func FillAdjacency[I int32 | int64](d *Dataset, xadj []int64, adjncy []I) error {
	n, err := d.AdjacencyLen()
	if err != nil {
		return err
	}
	if int64(len(xadj)) != d.NumNodes()+1 || int64(len(adjncy)) != n {
		return Invalid("xadj has %d entries and adjncy %d: this graph needs %d and %d",
			len(xadj), len(adjncy), d.NumNodes()+1, n)
	}
	return d.damaged(partition.FillAdjacency(d.undirected, xadj, adjncy))
}

// damaged names the graph where an error says that it is damaged.
func (d *Dataset) damaged(err error) error {
	var e *partition.DamageError
	if errors.As(err, &e) {
		return disk.Bad(d.path, -1, "the in-edges of each node in ascending order of their sources, between its nodes",
			"%s", e.Found)
	}
	return err
}

// WriteParHIP writes the undirected graph, or a part of it, to an existing file, after Undirect.
func (d *Dataset) WriteParHIP(path string, weights []int32, part *Subgraph) (nodes, entries int64, err error) {
	if err := d.needUndirected(); err != nil {
		return 0, 0, err
	}
	if n := d.NumNodes(); weights != nil && int64(len(weights)) != n ||
		part != nil && int64(len(part.Assignment)) != n {
		return 0, 0, Invalid("weights and assignment have one number for each of %d nodes", d.NumNodes())
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	nodes, entries, err = partition.WriteParHIP(f, d.undirected, weights, part)
	return nodes, entries, d.damaged(err)
}

// Weight is what a node weighs.
type Weight string

// The weights of Weigh.
const (
	InEdges  Weight = "edges" // as many as it has in-edges
	Training Weight = "train" // 1 where the feature train_mask is not 0
)

// Weigh fills weights, one for each node.
func (d *Dataset) Weigh(what Weight, weights []int32) error {
	if err := d.checkSizes(1, weights); err != nil {
		return err
	}
	switch what {
	case InEdges:
		degrees, err := partition.InDegrees(d)
		if err != nil {
			return err
		}
		defer degrees.Free()
		for v, degree := range degrees.Data {
			weights[v] = int32(min(degree, math.MaxInt32))
		}
		return nil
	case Training:
		return d.weighTraining(weights)
	}
	return Invalid("there is no weight %q of nodes: edges and train", what)
}

const trainMask = "train_mask"

func (d *Dataset) weighTraining(weights []int32) error {
	found := false
	clear(weights)
	for _, t := range d.Graph.NodeTypes() {
		of := weights[:t.Rows]
		weights = weights[t.Rows:]
		a, there := t.Arrays[trainMask]
		if !there {
			continue
		}
		if a.RowBytes() != 1 {
			return Invalid("%s of node type %q is %s of shape %v: one bool or uint8 for each node is needed",
				trainMask, t.Name, a.DType, a.Shape)
		}
		found = true
		block := make([]byte, 1<<16)
		for at := int64(0); at < t.Rows; at += int64(len(block)) {
			block = block[:min(int64(len(block)), t.Rows-at)]
			if err := a.ReadRows(at, block); err != nil {
				return err
			}
			for i, set := range block {
				of[at+int64(i)] = int32(min(set, 1))
			}
		}
	}
	if !found {
		return Invalid("the graph has no node feature %q, by which parts would get equal numbers of nodes to train on",
			trainMask)
	}
	return nil
}
