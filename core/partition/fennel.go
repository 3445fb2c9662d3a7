package partition

import (
	"runtime"

	"sar/core/internal/argument"
)

// Fennel assigns nodes one after the other, as they come from disk, each to the part
// where most of its neighbours are, less a penalty that grows with the part
// (Tsourakakis et al., WSDM 2014). Further passes do the same with what is known of
// all neighbours from the pass before (Nishimura and Ugander, KDD 2013). It holds the
// assignment, the weights, who reads whom where rows count, and buffers of fixed size.
type Fennel struct {
	Parts int
	// Groups of Parts/Groups parts in a row: a node whose entry in the assignment is
	// -1-g at the start gets a part of group g. At least 1.
	Groups int
	// Imbalance is how far a part may be above the mean: 0.03 allows 3 %. A node that
	// fits no part goes to the lightest one of its group.
	Imbalance float64
	// Weights of the nodes, of which no part may have too much: one array for each
	// constraint, nil where each node weighs 1. None is the same as one nil.
	Weights [][]int32
	Passes  int // at most; 0 stands for 10
	Seed    uint64
	// Rows asks for few rows that travel, in place of few edges between parts: each row once
	// to each part that reads it. That takes 8 bytes a node more for every 32 parts.
	Rows bool
	// Progress, where not nil, hears of nodes done in all passes. It may stop the work.
	Progress func(done, total int64) error
}

const (
	blockNodes = 4096 // at most, that are weighed against the same loads
	chunkNodes = 256  // that a thread takes at a time
	stay       = -1   // choice of a node that stays, or that has no neighbours in a part
	flee       = -2   // flee-p: goes to p while its own part has too much

	leastBlocks = 8 // of a run, in all passes but the first
)

// Assign fills assignment, one entry a node, all of them negative before: -1-group.
// It depends on the seed, but not on the number of threads: all nodes of a block
// choose by what was known before it, and move one after the other.
func (f Fennel) Assign(assignment []int32, graph Neighbours) error {
	w, err := f.start(assignment, graph)
	if err != nil {
		return err
	}
	defer w.readers.counts.Free()
	nodes := graph.NumNodes()
	for pass := range w.Passes {
		w.moved = 0
		bounded := w.bound(pass)
		done := int64(pass) * nodes
		err := graph.Rows(func(first int64, ptr []int64, adj []int32) error {
			w.sweep(rows{first, ptr, adj})
			if f.Progress == nil {
				return nil
			}
			return f.Progress(done+first+int64(len(ptr)-1), int64(w.Passes)*nodes)
		})
		if err != nil {
			return err
		}
		if bounded && w.moved*settled < nodes {
			break
		}
		w.pass++
	}
	return nil
}

// settled ends the passes where fewer than one in so many nodes moved.
const settled = 200

// fennel is the state of an Assign.
type fennel struct {
	Fennel
	assignment  []int32
	constraints []*constraint
	inGroup     int       // parts of a group
	steep       float64   // score that a part of mean load loses
	penalty     []float64 // [parts] as of the start of the block
	lightest    []int32   // [groups] the part of the smallest penalty
	pass        int
	moved, seen int64 // nodes of this pass, of all passes
	choices     []int32
	scorers     []scorer // one for each thread
	readers     readers  // with Rows
}

func (f Fennel) start(assignment []int32, graph Neighbours) (*fennel, error) {
	if err := checkParts(f.Parts); err != nil {
		return nil, err
	}
	if f.Groups == 0 {
		f.Groups = 1
	}
	if f.Passes == 0 {
		f.Passes = 10
	}
	nodes := graph.NumNodes()
	switch {
	case f.Groups < 0 || f.Parts%f.Groups != 0:
		return nil, argument.Errorf("%d parts cannot be in %d groups of equal size", f.Parts, f.Groups)
	case int64(len(assignment)) != nodes:
		return nil, argument.Errorf("an assignment of %d nodes for a graph of %d", len(assignment), nodes)
	case !(f.Imbalance >= 0 && f.Imbalance < 1e6):
		return nil, argument.Errorf("an imbalance of %v: expected a share such as 0.03", f.Imbalance)
	case f.Passes < 0:
		return nil, argument.Errorf("%d passes: expected at least 1", f.Passes)
	}
	w := &fennel{Fennel: f, assignment: assignment, inGroup: f.Parts / f.Groups}
	members := make([]int64, f.Groups)
	for v, p := range assignment {
		if p >= 0 || int(-1-p) >= f.Groups {
			return nil, argument.Errorf("node %d is marked %d at the start; expected -1 to %d", v, p, -f.Groups)
		}
		members[-1-p]++
	}
	if len(f.Weights) == 0 {
		f.Weights = [][]int32{nil}
	}
	for _, weight := range f.Weights {
		c, err := w.constrain(weight, members)
		if err != nil {
			return nil, err
		}
		if c != nil {
			w.constraints = append(w.constraints, c)
		}
	}
	// Fennel's alpha * gamma * |S|^(gamma - 1) with gamma = 3/2 and alpha =
	// sqrt(parts) * edges / nodes^(3/2), where S has nodes/parts nodes
	w.steep = 1.5 * float64(graph.NumEntries()) / 2 / float64(max(1, nodes))
	w.penalty, w.lightest = make([]float64, f.Parts), make([]int32, f.Groups)
	w.choices = make([]int32, blockNodes)
	w.scorers = make([]scorer, runtime.GOMAXPROCS(0))
	for t := range w.scorers {
		w.scorers[t] = scorer{make([]int64, f.Parts), make([]int32, 0, f.Parts)}
	}
	var err error
	if f.Rows {
		w.steep *= rowPenalty
		w.readers, err = newReaders(nodes, f.Parts)
	}
	return w, err
}
