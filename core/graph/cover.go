package graph

import (
	"slices"

	"sar/core/mem"
)

// Each edge between two workers needs either the row of its source at the reader, or the sum of its
// destination made at the owner of the source. Rows and sums that do so for all edges of a pair are a vertex
// cover of a bipartite graph, and the cheapest one is the least that can be sent exactly (SuperGCN, arXiv
// 2411.16025, sends such covers). It is found by the theorem of Kőnig and a maximum matching: by searches from one
// source after the other, where those of a round avoid what others came to (Pothen and Fan, ACM TOMS 16, 1990), and
// what leads nowhere is left out for good.

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
)

// Coverer finds covers of one bipartite graph after the other.
type Coverer struct {
	ptr, rows []int32 // source i has edges to rows[ptr[i]:ptr[i+1]]

	all       []int32             // the sources
	match     [2]mem.Array[int32] // of each destination; the second where its sum costs two
	room      []int32             // of each source: edges of the matching it lacks
	taken     []int32             // of each source, how many of its edges, the first ones, lead to no free destination
	from, via []int32             // of each source, the source and the destination over which a search came to it
	reached   []int32             // of each source, the last search that came to it, or one of the two below
	class     []uint8             // of each source, the lowest price at which its row travels, or NumPrices
	tree      []int32             // the sources that a search came to
	places    int32               // for a destination, in match: 1 or 2
	search    int32               // the number of the last search
}

const (
	decided = -1 - iota // a source that another price has decided on
	dead                // one to which a source leads that lacks an edge, and from which none leads to a free destination
)

// smallTree is the most sources that a search that succeeds leaves to others. Leaving none means more searches that
// have to be repeated, since they met what others had come to, and leaving all takes twice as long where sources have
// many edges. A variable for tests.
var smallTree = 256

// NewCoverer is one for graphs of so many destinations. Free it.
func NewCoverer(destinations int) (*Coverer, error) {
	c := &Coverer{}
	for _, a := range []*mem.Array[int32]{&c.match[0], &c.match[1]} {
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
			c.reached[i] = decided
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
	for _, of := range []*[]int32{&c.all, &c.room, &c.taken, &c.from, &c.via, &c.reached} {
		*of = slices.Grow((*of)[:0], n)[:n]
	}
	c.class = slices.Grow(c.class[:0], n)[:n]
	for i := range c.all {
		c.all[i], c.room[i], c.class[i] = int32(i), 1, uint8(NumPrices)
	}
	for _, v := range rows[ptr[0]:ptr[n]] {
		c.match[0].Data[v] = unmatched
	}
	return c.all
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
// which no way leads from one that lacks an edge: this is so for every maximum matching.
func (c *Coverer) settle(price Price, sources []int32) (travel []int32) {
	at := 0
	for k, i := range sources {
		if c.reached[i] != dead {
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

// matching makes the matching of some sources a maximum one, and returns how many sums cover what rows do not. Others
// have been decided, and cost so much. It gives up, and returns false, where the matching, which no cover costs less
// than, says that none saves enough.
func (c *Coverer) matching(price Price, sources []int32, others int64) (sums int32, saves bool) {
	row, places := price.capacities()
	c.places = places
	cost := others
	for _, i := range sources { // those with one edge have no choice
		c.reached[i], c.taken[i] = 0, 0
		if len(c.of(i)) == 1 {
			c.greedy(i)
		}
	}
	for _, i := range sources {
		c.greedy(i)
		cost += int64(row - c.room[i])
	}
	c.search = 0
	for more := true; more; {
		if !c.saves(cost, row) {
			return 0, false
		}
		more = false
		begin := c.search
		for _, i := range sources {
			for c.room[i] > 0 && c.reached[i] >= 0 && c.reached[i] <= begin && c.augment(i, begin) {
				cost++
				more = true
			}
		}
	}
	// The cover of a maximum matching costs as much as it.
	cost -= others
	for _, i := range sources {
		if c.reached[i] != dead {
			cost -= int64(row)
		}
	}
	return int32(cost / int64(places)), true
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

// augment looks for the shortest way from a source, along edges that are not of the matching and back along edges that
// are, to a free destination, and takes every other edge of it for the matching. It avoids sources that searches after
// begin came to. Where there were none and it finds nothing, its sources are dead: no way will ever lead through them.
func (c *Coverer) augment(root, begin int32) bool {
	c.search++
	c.tree, c.reached[root] = append(c.tree[:0], root), c.search
	if c.free(root) {
		c.take(root, root)
		return true
	}
	certain := true
	for at := 0; at < len(c.tree); at++ {
		i := c.tree[at]
		for _, v := range c.of(i) {
			for place := range c.places {
				w := c.match[place].Data[v]
				if by := c.reached[w]; by < 0 || by > begin {
					certain = certain && (by < 0 || by == c.search)
					continue
				}
				c.reached[w], c.from[w], c.via[w] = c.search, i, v
				c.tree = append(c.tree, w)
				if !c.free(w) {
					continue
				}
				c.take(root, w)
				if len(c.tree) <= smallTree {
					c.mark(0)
				}
				return true
			}
		}
	}
	if certain {
		c.mark(dead)
	}
	return false
}

// mark sets what is known of the sources that a search came to.
func (c *Coverer) mark(reached int32) {
	for _, i := range c.tree {
		c.reached[i] = reached
	}
}

// free goes to the first free destination of a source, and tells whether there is one.
func (c *Coverer) free(i int32) bool {
	for of := c.of(i); int(c.taken[i]) < len(of); c.taken[i]++ {
		for place := range c.places {
			if c.match[place].Data[of[c.taken[i]]] == unmatched {
				return true
			}
		}
	}
	return false
}

// take gives source i its free destination, and each source on the way to it the destination of the next one. The first
// one, root, gains an edge.
func (c *Coverer) take(root, i int32) {
	c.replace(c.of(i)[c.taken[i]], unmatched, i)
	for i != root {
		c.replace(c.via[i], i, c.from[i])
		i = c.from[i]
	}
	c.room[root]--
}

// replace gives destination v to a source in place of another one, or where none is.
func (c *Coverer) replace(v, old, source int32) {
	place := 0
	if c.match[0].Data[v] != old {
		place = 1
	}
	c.match[place].Data[v] = source
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
