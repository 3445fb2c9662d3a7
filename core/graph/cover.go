package graph

import (
	"sync/atomic"

	"sar/core/internal/parallel"
	"sar/core/mem"
)

// Each edge between two workers needs either the row of its source at the reader, or the sum of its
// destination made at the owner of the source. Rows and sums that do so for all edges of a pair are a vertex
// cover of a bipartite graph, and the cheapest one is the least that can be sent exactly (SuperGCN, arXiv
// 2411.16025, sends such covers). It is found by a maximum matching (Hopcroft and Karp, SIAM J. Comput. 2,
// 1973) and the theorem of Kőnig.

// Price is what a partial sum costs beside a row.
type Price int

const (
	SumIsHalf Price = iota
	SumIsOne
	SumIsDouble
	NumPrices
	// SumIsFree is where no row travels.
	SumIsFree = NumPrices
)

// capacities are how many edges of a matching may meet in a source and in a destination, which are the
// prices of their row and sum.
func (p Price) capacities() (source, sum int32) {
	switch p {
	case SumIsHalf:
		return 2, 1
	case SumIsDouble:
		return 1, 2
	}
	return 1, 1
}

const (
	// A cover has to save one of CoverGain bytes: partial sums cost the sender work, and both memory.
	CoverGain = 32
	unmatched = -1
	settled   = -2 // of the level of a source from which no search leads on
)

// Coverer finds covers of one bipartite graph after the other.
type Coverer struct {
	ptr, rows []int32 // source i has edges to rows[ptr[i]:ptr[i+1]]

	match        [2]mem.Array[int32] // of each destination; the second where its sum costs two
	seen         mem.Array[int32]    // the last phase that came to a destination
	room, level  []int32             // of each source: edges of the matching it lacks, steps from one that lacks some
	next         []int32             // of each source, the place where its search goes on
	class        []uint8             // of each source, the lowest price at which its row travels, or NumPrices
	queue, stack []int32
	places       int32 // for a destination, in match: 1 or 2
	phase        int32
}

// NewCoverer is one for graphs of so many destinations. Free it.
func NewCoverer(destinations int) (*Coverer, error) {
	c := &Coverer{}
	for _, a := range []*mem.Array[int32]{&c.match[0], &c.match[1], &c.seen} {
		if err := a.Make(mem.Scratch, destinations); err != nil {
			c.Free()
			return nil, err
		}
	}
	return c, nil
}

// Free releases its memory.
func (c *Coverer) Free() {
	c.match[0].Free()
	c.match[1].Free()
	c.seen.Free()
}

// Arrange writes to to the place of each source where those come first whose rows travel at the lowest price,
// then those that travel at the next one, and so on, each kind in its order, and returns the counts. Source i has edges
// to rows[ptr[i]:ptr[i+1]]. The order of edges, and equal ones, change nothing.
//
// A row that travels at a price does so at higher ones, and a sum at lower ones. So the cover where both cost the
// same cuts the graph in two: higher prices concern its sums and their sources alone, lower ones the other
// sources and destinations. Both go on with the matching that it leaves.
func (c *Coverer) Arrange(ptr, rows, to []int32) (x Travels) {
	all := c.begin(ptr, rows, len(to))
	sums, saves := c.matching(SumIsOne, all, 0)
	travel := all
	if saves {
		travel = c.settle(SumIsOne, all)
		summed := all[len(travel):]
		x.Sums[SumIsOne] = sums
		for _, i := range summed {
			for _, v := range c.of(i) {
				c.match[1].Data[v] = unmatched
			}
		}
		if x.Sums[SumIsDouble], saves = c.matching(SumIsDouble, summed, int64(len(travel))); saves {
			c.settle(SumIsDouble, summed)
		} else {
			c.travel(SumIsDouble, summed)
		}
		for _, i := range summed {
			c.level[i] = settled
		}
	} else {
		c.travel(SumIsOne, all)
	}
	for _, i := range travel {
		c.room[i]++
	}
	more, saves := c.matching(SumIsHalf, travel, int64(x.Sums[SumIsOne]))
	if saves {
		x.Sums[SumIsHalf] = x.Sums[SumIsOne] + more
		c.settle(SumIsHalf, travel)
	} else {
		c.travel(SumIsHalf, all)
	}
	x.Leading = arrange(c.class, to)
	return x
}

// begin takes a graph of n sources, and returns them. Each has room for an edge.
func (c *Coverer) begin(ptr, rows []int32, n int) (all []int32) {
	c.ptr, c.rows = ptr, rows
	c.room, c.level, c.next, c.class = make([]int32, n), make([]int32, n), make([]int32, n), make([]uint8, n)
	c.queue, all = make([]int32, 0, n), make([]int32, n)
	for i := range all {
		all[i], c.room[i], c.class[i] = int32(i), 1, uint8(NumPrices)
	}
	for _, v := range rows[ptr[0]:ptr[n]] {
		c.match[0].Data[v] = unmatched
	}
	return all
}

// of is the destinations of a source.
func (c *Coverer) of(i int32) []int32 { return c.rows[c.ptr[i]:c.ptr[i+1]] }

// travel has rows of some sources travel from a price on.
func (c *Coverer) travel(price Price, sources []int32) {
	for _, i := range sources {
		c.class[i] = min(c.class[i], uint8(price))
	}
}

// settle puts those of the sources first whose rows travel from a price on, and returns them. They are those to
// which no way leads from one that lacks an edge: this is so for every maximum matching. The destinations to
// which one does are the sums.
func (c *Coverer) settle(price Price, sources []int32) (travel []int32) {
	at := 0
	for k, i := range sources {
		if c.level[i] == unmatched {
			sources[at], sources[k] = i, sources[at]
			at++
		}
	}
	c.travel(price, sources[:at])
	return sources[:at]
}

// saves tells whether a cover of a cost is worth while, where a row costs so much.
func (c *Coverer) saves(cost int64, row int32) bool {
	return cost*CoverGain < int64(len(c.class))*int64(row)*(CoverGain-1)
}

// matching makes the matching of some sources a maximum one, and layers of it, and returns how many sums cover what
// rows do not. Others have been decided, and cost so much. It gives up, and returns false, where the matching, which no
// cover costs less than, says that none saves enough.
func (c *Coverer) matching(price Price, sources []int32, others int64) (sums int32, saves bool) {
	row, places := price.capacities()
	c.places = places
	cost := others
	for _, i := range sources { // those with one edge have no choice
		if len(c.of(i)) == 1 {
			c.greedy(i)
		}
	}
	for _, i := range sources {
		c.greedy(i)
		cost += int64(row - c.room[i])
	}
	for c.saves(cost, row) {
		found, sums := c.layers(sources)
		if !found {
			return sums, true
		}
		for _, i := range sources {
			for c.room[i] > 0 && c.level[i] == 0 && c.augment(i) {
				cost++
			}
		}
	}
	return 0, false
}

// greedy takes free destinations for a source.
func (c *Coverer) greedy(i int32) {
	if c.room[i] == 0 {
		return
	}
	for _, v := range c.of(i) {
		for place := range c.places {
			if c.match[place].Data[v] == unmatched {
				c.match[place].Data[v] = i
				if c.room[i]--; c.room[i] == 0 {
					return
				}
				break // an edge counts once
			}
		}
	}
}

// layers finds how far each of the sources is from one that lacks an edge, along edges that are not of the matching and
// back along edges that are: unmatched where no such way leads there. It tells whether one leads to a
// free destination, and to how many others.
func (c *Coverer) layers(sources []int32) (found bool, sums int32) {
	c.queue = c.queue[:0]
	c.phase++
	for _, i := range sources {
		c.level[i], c.next[i] = unmatched, 0
		if c.room[i] > 0 {
			c.level[i] = 0
			c.queue = append(c.queue, i)
		}
	}
	for at := 0; at < len(c.queue); at++ {
		i := c.queue[at]
		for _, v := range c.of(i) {
			if c.seen.Data[v] == c.phase {
				continue
			}
			c.seen.Data[v] = c.phase
			w := c.match[0].Data[v]
			if w != unmatched && c.level[w] == settled {
				continue // its sum travels in any case
			}
			sums++
			for place := int32(0); ; w = c.match[place].Data[v] {
				switch {
				case w == unmatched:
					found = true
				case c.level[w] == unmatched:
					c.level[w] = c.level[i] + 1
					c.queue = append(c.queue, w)
				}
				if place++; place == c.places {
					break
				}
			}
		}
	}
	return found, sums
}

// augment looks for a way from source i, through sources whose level rises, to a free destination, and takes
// every other edge of it for the matching.
func (c *Coverer) augment(i int32) bool {
	c.stack = append(c.stack[:0], i)
	for len(c.stack) > 0 {
		i := c.stack[len(c.stack)-1]
		degree := c.ptr[i+1] - c.ptr[i]
		if c.next[i] == degree<<(c.places-1) {
			c.level[i] = settled // nothing leads on from here
			c.stack = c.stack[:len(c.stack)-1]
			if n := len(c.stack); n > 0 {
				c.next[c.stack[n-1]]++
			}
			continue
		}
		v, place := c.at(i)
		w := c.match[place].Data[v]
		switch {
		case w == unmatched:
			c.take()
			return true
		case c.level[w] == c.level[i]+1:
			c.stack = append(c.stack, w)
		default:
			c.next[i]++
		}
	}
	return false
}

// at is where the search of source i is: a destination, and a place in its match.
func (c *Coverer) at(i int32) (v, place int32) {
	return c.rows[c.ptr[i]+c.next[i]>>(c.places-1)], c.next[i] & (c.places - 1)
}

// take gives each source of the stack the destination where its search is. The first one gains an edge.
func (c *Coverer) take() {
	for _, i := range c.stack {
		v, place := c.at(i)
		c.match[place].Data[v] = i
	}
	for _, i := range c.stack {
		c.next[i]++
	}
	c.room[c.stack[0]]--
}

// arrange writes to to the place of each source where they are put class by class, each class in its order, and
// returns how many there are up to each class.
func arrange(class []uint8, to []int32) (leading [NumPrices]int32) {
	var next [NumPrices + 1]int32
	for _, k := range class {
		next[k]++
	}
	at := int32(0)
	for k, n := range next {
		next[k] = at
		at += n
		if k < int(NumPrices) {
			leading[k] = at
		}
	}
	for i, k := range class {
		to[i] = next[k]
		next[k]++
	}
	return leading
}

// Travels is what travels between two workers by price: so many rows, the first ones, and so many sums.
type Travels struct {
	Leading [NumPrices]int32 `json:"rows"`
	Sums    [NumPrices]int32 `json:"sums"`
}

// Lead is how many of the boundary rows, the first ones, travel as rows at a price. Those behind them reach their
// readers in sums.
func (h *Halo) Lead(price Price) int32 {
	if price == SumIsFree {
		return 0
	}
	return h.Leading[price]
}

// AllRows has every row travel.
func (h *Halo) AllRows() {
	for price := range h.Leading {
		h.Leading[price] = h.End - h.Begin
	}
}

// cover arranges the columns of each peer so that those whose rows travel come first, at every price. Columns have
// their rows, in any order, and the transpose is not made yet.
func (r *Structure) cover(threads int) (err error) {
	if err := r.moved.Make(mem.Structure, r.NumCols()-r.NumSrc); err != nil {
		return err
	}
	coverers := make([]*Coverer, max(1, threads))
	defer func() {
		for _, c := range coverers {
			if c != nil {
				c.Free()
			}
		}
	}()
	var moves atomic.Bool
	err = parallel.Each(len(coverers), len(r.Halo), func(thread, q int) (err error) {
		h := &r.Halo[q]
		if h.Begin == h.End {
			return nil
		}
		c := coverers[thread]
		if c == nil {
			if c, err = NewCoverer(r.NumDst); err != nil {
				return err
			}
			coverers[thread] = c
		}
		to := r.moved.Data[int(h.Begin)-r.NumSrc : int(h.End)-r.NumSrc]
		h.Travels = c.Arrange(r.ColPtr.Data[h.Begin:h.End+1], r.Row.Data, to)
		if !ascends(to) {
			moves.Store(true)
			err = r.moveColumns(h, to)
		}
		for i := range to {
			to[i] += h.Begin
		}
		return err
	})
	if !moves.Load() {
		r.moved.Free()
	}
	return err
}

// moveColumns puts column i of a peer to place to[i] among them.
func (r *Structure) moveColumns(h *Halo, to []int32) error {
	ptr := r.ColPtr.Data[h.Begin : h.End+1]
	rows, err := mem.Make[int32](mem.Scratch, int(ptr[len(to)]-ptr[0]))
	if err != nil {
		return err
	}
	defer rows.Free()
	copy(rows.Data, r.Row.Data[ptr[0]:])
	old, own, begin := make([]int32, len(to)+1), make([]int32, len(to)), make([]int32, len(to)+1)
	copy(old, ptr)
	copy(own, h.Rows.Data)
	begin[0] = old[0]
	for i, at := range to {
		begin[at+1] = old[i+1] - old[i]
		h.Rows.Data[at] = own[i]
	}
	for i := range to {
		begin[i+1] += begin[i]
	}
	copy(ptr[1:len(to)], begin[1:]) // the first and the last are of the neighbours too, and stay
	for i, at := range to {
		copy(r.Row.Data[ptr[at]:ptr[at+1]], rows.Data[old[i]-old[0]:old[i+1]-old[0]])
	}
	return nil
}
