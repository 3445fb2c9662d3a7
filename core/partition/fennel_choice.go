package partition

import (
	"math"

	"sar/core/internal/parallel"
)

// scorer adds up what speaks for each part: the neighbours of a node there, or rows.
type scorer struct {
	gain []int64 // [parts], zero between two nodes
	met  []int32 // parts with a gain
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

// node is the i-th one, with its neighbours.
func (r rows) node(i int) (v int64, adj []int32) {
	return r.first + int64(i), r.adj[r.ptr[i]:r.ptr[i+1]]
}

// span is every step-th node of a run, from begin on.
type span struct{ begin, step, count int }

func (w *fennel) assignBlock(r rows, block span) {
	w.weigh()
	if w.Rows && w.pass > 0 { // in the first pass nobody has moved
		w.each(r, block, func(_ *scorer, v int64, adj []int32, _ int) { w.readers.count(v, adj, w.assignment) })
	}
	w.each(r, block, func(s *scorer, v int64, adj []int32, i int) { w.choices[i] = w.best(s, v, adj) })
	for i, choice := range w.choices[:block.count] {
		v, adj := r.node(block.begin + i*block.step)
		from := w.assignment[v]
		w.move(v, choice)
		if to := w.assignment[v]; w.Rows && to != from {
			w.readers.move(adj, from, to)
		}
	}
}

// weigh computes penalties from the loads.
func (w *fennel) weigh() {
	for p := range w.penalty {
		var sum float64
		for _, c := range w.constraints {
			sum += math.Sqrt(float64(c.load[p]) / c.mean[p])
		}
		w.penalty[p] = w.steep * sum / float64(max(1, len(w.constraints)))
		if g := p / w.inGroup; p%w.inGroup == 0 || w.penalty[p] < w.penalty[w.lightest[g]] {
			w.lightest[g] = int32(p)
		}
	}
}

// each calls a function for the nodes of a block, on all threads. Node i of the block is v.
func (w *fennel) each(r rows, block span, call func(s *scorer, v int64, adj []int32, i int)) {
	chunks := (block.count + chunkNodes - 1) / chunkNodes
	_ = parallel.Each(len(w.scorers), chunks, func(t, chunk int) error {
		for i := chunk * chunkNodes; i < min(block.count, (chunk+1)*chunkNodes); i++ {
			v, adj := r.node(block.begin + i*block.step)
			call(&w.scorers[t], v, adj, i)
		}
		return nil
	})
}

// best is the part that a node goes to, given its neighbours.
func (w *fennel) best(s *scorer, v int64, adj []int32) int32 {
	current, low := w.assignment[v], w.low(v)
	s.met = s.met[:0]
	if w.Rows {
		w.scoreRows(s, v, adj, low)
	} else {
		for _, u := range adj {
			w.gain(s, low, w.assignment[u], 1)
		}
	}
	best, score := int32(stay), math.Inf(-1)
	if current >= 0 && !w.over(v, current) {
		best, score = current, float64(s.gain[current])-w.penalty[current]
	}
	consider := func(p int32) {
		x := float64(s.gain[p]) - w.penalty[p]
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
		s.gain[p] = 0
	}
	switch {
	case best == current:
		return stay
	case current >= 0 && w.over(v, current):
		return flee - best
	}
	return best
}

// gain adds to the score of a part, where it belongs to the group that begins with part low.
func (w *fennel) gain(s *scorer, low, p int32, by int64) {
	if uint32(p-low) >= uint32(w.inGroup) {
		return
	}
	if s.gain[p] == 0 {
		s.met = append(s.met, p)
	}
	s.gain[p] += by
}

// low is the first part that a node may have.
func (w *fennel) low(v int64) int32 {
	p := w.assignment[v]
	if p < 0 {
		return (-1 - p) * int32(w.inGroup)
	}
	return p - p%int32(w.inGroup)
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
	for _, c := range w.constraints {
		if from >= 0 {
			c.load[from] -= c.of(v)
		}
		c.load[to] += c.of(v)
	}
	w.assignment[v] = to
	w.moved++
}
