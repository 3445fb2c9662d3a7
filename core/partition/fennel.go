package partition

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// Fennel assigns nodes one after the other, as they come from disk, each to the part
// where most of its neighbours are, less a penalty that grows with the part
// (Tsourakakis et al., WSDM 2014). Further passes do the same with what is known of
// all neighbours from the pass before (Nishimura and Ugander, KDD 2013). It holds the
// assignment, the weights, and buffers of fixed size.
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

// bound sets the limits of a pass, and tells whether they are the final ones. The first
// passes allow more: nodes that come late must still get to their neighbours.
func (w *fennel) bound(pass int) bool {
	slack := w.Imbalance
	if pass < len(early) && pass < w.Passes-1 {
		slack *= early[pass]
	}
	for i := range w.constraints {
		c := &w.constraints[i]
		for p := range c.limit {
			// a part as large as the mean, rounded up, is always allowed
			c.limit[p] = max(int64((1+slack)*c.mean[p]), int64(math.Ceil(c.mean[p])))
		}
	}
	return slack == w.Imbalance
}

// early are the limits of the first passes, in imbalances.
var early = [...]float64{8, 2}

// fennel is the state of an Assign.
type fennel struct {
	Fennel
	assignment  []int32
	constraints []constraint
	inGroup     int       // parts of a group
	steep       float64   // neighbours that a part of mean load is penalized by
	penalty     []float64 // [parts] in neighbours, as of the start of the block
	lightest    []int32   // [groups] the part of the smallest penalty
	pass        int
	moved, seen int64 // nodes of this pass, of all passes
	choices     []int32
	scorers     []scorer // one for each thread
}

// constraint is one weight of nodes, and what each part has of it.
type constraint struct {
	weight []int32 // nil: 1
	load   []int64 // [parts]
	limit  []int64 // [parts]
	mean   []float64
}

func (c *constraint) of(v int64) int64 {
	if c.weight == nil {
		return 1
	}
	return int64(c.weight[v])
}

// scorer counts the neighbours of a node by part.
type scorer struct {
	count []int32 // [parts], zero between two nodes
	met   []int32 // parts with a count
}

func (f Fennel) start(assignment []int32, graph Neighbours) (*fennel, error) {
	if err := checkParts(f.Parts); err != nil {
		return nil, err
	}
	f.Groups = max(1, f.Groups)
	if f.Passes == 0 {
		f.Passes = 10
	}
	nodes := graph.NumNodes()
	switch {
	case f.Parts%f.Groups != 0:
		return nil, fmt.Errorf("%d parts cannot be in %d groups of equal size", f.Parts, f.Groups)
	case int64(len(assignment)) != nodes:
		return nil, fmt.Errorf("an assignment of %d nodes for a graph of %d", len(assignment), nodes)
	case !(f.Imbalance >= 0 && f.Imbalance < 1e6):
		return nil, fmt.Errorf("an imbalance of %v: expected a share such as 0.03", f.Imbalance)
	case f.Passes < 0:
		return nil, fmt.Errorf("%d passes: expected at least 1", f.Passes)
	}
	w := &fennel{Fennel: f, assignment: assignment, inGroup: f.Parts / f.Groups}
	members := make([]int64, f.Groups)
	for v, p := range assignment {
		if p >= 0 || int(-1-p) >= f.Groups {
			return nil, fmt.Errorf("node %d is marked %d at the start; expected -1 to %d", v, p, -f.Groups)
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
			w.constraints = append(w.constraints, *c)
		}
	}
	// Fennel's alpha * gamma * |S|^(gamma - 1) with gamma = 3/2 and alpha =
	// sqrt(parts) * edges / nodes^(3/2), where S has nodes/parts nodes
	w.steep = 1.5 * float64(graph.NumEntries()) / 2 / float64(max(1, nodes))
	w.penalty, w.lightest = make([]float64, f.Parts), make([]int32, f.Groups)
	w.choices = make([]int32, blockNodes)
	w.scorers = make([]scorer, runtime.GOMAXPROCS(0))
	for t := range w.scorers {
		w.scorers[t] = scorer{make([]int32, f.Parts), make([]int32, 0, f.Parts)}
	}
	return w, nil
}

// constrain makes a constraint, or nil where there is nothing to divide.
func (w *fennel) constrain(weight []int32, members []int64) (*constraint, error) {
	sums := members
	if weight != nil {
		if len(weight) != len(w.assignment) {
			return nil, fmt.Errorf("weights of %d nodes for a graph of %d", len(weight), len(w.assignment))
		}
		sums = make([]int64, w.Groups)
		for v, x := range weight {
			if x < 0 {
				return nil, fmt.Errorf("node %d weighs %d; expected 0 or more", v, x)
			}
			sums[-1-w.assignment[v]] += int64(x)
		}
	}
	c := &constraint{weight: weight, load: make([]int64, w.Parts), limit: make([]int64, w.Parts), mean: make([]float64, w.Parts)}
	var all int64
	for p := range w.Parts {
		c.mean[p] = math.Max(1, float64(sums[p/w.inGroup])/float64(w.inGroup))
		all += sums[p/w.inGroup]
	}
	if all == 0 {
		return nil, nil
	}
	return c, nil
}

// sweep assigns a run of nodes, block by block.
func (w *fennel) sweep(r rows) {
	n := len(r.ptr) - 1
	if w.pass == 0 {
		for at := 0; at < n; {
			// at the start, when little is assigned, what one node does matters to the next
			block := span{at, 1, min(int(min(blockNodes, 1+w.seen/64)), n-at)}
			w.assignBlock(r, block)
			at += block.count
			w.seen += int64(block.count)
		}
		return
	}
	// Nodes with neighbouring numbers are often neighbours. In one block they would exchange
	// their parts again and again.
	blocks := max((n+blockNodes-1)/blockNodes, min(n, leastBlocks))
	for b := range blocks {
		w.assignBlock(r, span{b, blocks, (n - b + blocks - 1) / blocks})
	}
}

// rows is a run of nodes with their neighbours, as Neighbours.Rows gives it.
type rows struct {
	first int64
	ptr   []int64
	adj   []int32
}

// span is every step-th node of a run, from begin on.
type span struct{ begin, step, count int }

func (w *fennel) assignBlock(r rows, block span) {
	w.weigh()
	w.choose(r, block)
	for i, choice := range w.choices[:block.count] {
		w.move(r.first+int64(block.begin+i*block.step), choice)
	}
}

// weigh computes penalties from the loads.
func (w *fennel) weigh() {
	for p := range w.penalty {
		var sum float64
		for c := range w.constraints {
			sum += math.Sqrt(float64(w.constraints[c].load[p]) / w.constraints[c].mean[p])
		}
		w.penalty[p] = w.steep * sum / float64(max(1, len(w.constraints)))
		if g := p / w.inGroup; p%w.inGroup == 0 || w.penalty[p] < w.penalty[w.lightest[g]] {
			w.lightest[g] = int32(p)
		}
	}
}

// choose fills choices for the nodes of a block, on all threads.
func (w *fennel) choose(r rows, block span) {
	if block.count <= chunkNodes {
		w.chooseChunk(&w.scorers[0], r, block, 0)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for t := range min(len(w.scorers), (block.count+chunkNodes-1)/chunkNodes) {
		wg.Go(func() {
			for {
				lo := int(next.Add(chunkNodes)) - chunkNodes
				if lo >= block.count {
					return
				}
				w.chooseChunk(&w.scorers[t], r, block, lo)
			}
		})
	}
	wg.Wait()
}

// chooseChunk fills chunkNodes choices from lo on.
func (w *fennel) chooseChunk(s *scorer, r rows, block span, lo int) {
	for i := lo; i < min(block.count, lo+chunkNodes); i++ {
		v := block.begin + i*block.step
		w.choices[i] = w.best(s, r.first+int64(v), r.adj[r.ptr[v]:r.ptr[v+1]])
	}
}

// best is the part that a node goes to, given its neighbours.
func (w *fennel) best(s *scorer, v int64, adj []int32) int32 {
	current, low := w.assignment[v], w.low(v)
	s.met = s.met[:0]
	for _, u := range adj {
		p := w.assignment[u]
		if uint32(p-low) >= uint32(w.inGroup) {
			continue
		}
		if s.count[p] == 0 {
			s.met = append(s.met, p)
		}
		s.count[p]++
	}
	best, score := int32(stay), math.Inf(-1)
	if current >= 0 && !w.over(v, current) {
		best, score = current, float64(s.count[current])-w.penalty[current]
	}
	consider := func(p int32) {
		x := float64(s.count[p]) - w.penalty[p]
		if p == current || x < score || !w.fits(v, p) {
			return
		}
		if x > score || best != current && mix(w.Seed^uint64(v)<<20^uint64(p)) < mix(w.Seed^uint64(v)<<20^uint64(best)) {
			best, score = p, x
		}
	}
	for _, p := range s.met {
		consider(p)
	}
	// of the parts without neighbours the lightest has the best score
	if p := w.lightest[low/int32(w.inGroup)]; w.fits(v, p) {
		consider(p)
	} else {
		for p := low; p < low+int32(w.inGroup); p++ {
			consider(p)
		}
	}
	for _, p := range s.met {
		s.count[p] = 0
	}
	switch {
	case best == current:
		return stay
	case current >= 0 && w.over(v, current):
		return flee - best
	}
	return best
}

// low is the first part that a node may have.
func (w *fennel) low(v int64) int32 {
	p := w.assignment[v]
	if p < 0 {
		return (-1 - p) * int32(w.inGroup)
	}
	return p - p%int32(w.inGroup)
}

// fits tells whether a part has room for what a node weighs.
func (w *fennel) fits(v int64, p int32) bool {
	for i := range w.constraints {
		c := &w.constraints[i]
		if x := c.of(v); x > 0 && c.load[p]+x > c.limit[p] {
			return false
		}
	}
	return true
}

// over tells whether a node's part has more than it may of what the node weighs.
func (w *fennel) over(v int64, p int32) bool {
	for i := range w.constraints {
		if c := &w.constraints[i]; c.load[p] > c.limit[p] && c.of(v) > 0 {
			return true
		}
	}
	return false
}

// move gives a node the part that it chose, if there still is room; else it stays, or gets
// the part of its group that is least full.
func (w *fennel) move(v int64, to int32) {
	from := w.assignment[v]
	if to <= flee {
		if !w.over(v, from) {
			return
		}
		to = flee - to
	}
	if to == stay || !w.fits(v, to) {
		if from >= 0 && !w.over(v, from) {
			return
		}
		var fill float64
		if to, fill = w.emptiest(v); from >= 0 && fill >= w.fill(from, nobody) {
			return
		}
	}
	for i := range w.constraints {
		c := &w.constraints[i]
		if from >= 0 {
			c.load[from] -= c.of(v)
		}
		c.load[to] += c.of(v)
	}
	w.assignment[v] = to
	w.moved++
}

// nobody is no node.
const nobody = -1

// fill is how full a part would be with a node, relative to the mean: the fullest of its
// constraints counts.
func (w *fennel) fill(p int32, v int64) (fill float64) {
	for i := range w.constraints {
		c := &w.constraints[i]
		load := c.load[p]
		if v != nobody {
			load += c.of(v)
		}
		fill = math.Max(fill, float64(load)/c.mean[p])
	}
	return fill
}

// emptiest is the part of a node's group that would be least full with it, and how full.
func (w *fennel) emptiest(v int64) (best int32, least float64) {
	low := w.low(v)
	best, least = low, math.Inf(1)
	for p := low; p < low+int32(w.inGroup); p++ {
		if fill := w.fill(p, v); fill < least {
			best, least = p, fill
		}
	}
	return best, least
}
