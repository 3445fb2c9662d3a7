package partition

import (
	"math"

	"sar/core/internal/parallel"
)

// scorer counts the neighbours of a node by part.
type scorer struct {
	count []int32 // [parts], zero between two nodes
	met   []int32 // parts with a count
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
		for _, c := range w.constraints {
			sum += math.Sqrt(float64(c.load[p]) / c.mean[p])
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
	_ = parallel.Each(len(w.scorers), (block.count+chunkNodes-1)/chunkNodes, func(t, chunk int) error {
		w.chooseChunk(&w.scorers[t], r, block, chunk*chunkNodes)
		return nil
	})
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
