package graph

import (
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
	// A cover has to save one of coverGain bytes: partial sums cost the sender work, and both memory.
	coverGain = 32
	// coverPhases bounds the search for a maximum matching. A smaller one gives a cover too, of more rows.
	coverPhases = 32
	unmatched   = -1
)

// coverer finds covers of one bipartite graph after the other.
type coverer struct {
	ptr, rows []int32 // source i has edges to rows[ptr[i]:ptr[i+1]]

	match        [2]mem.Array[int32] // of each destination; the second where its sum costs two
	seen         mem.Array[int32]    // the last phase that came to a destination
	room, level  []int32             // of each source: edges of the matching it lacks, steps from one that lacks some
	next         []int32             // of each source, the place where its search goes on
	queue, stack []int32
	places       int32 // for a destination, in match
	phase        int32
}

func newCoverer(destinations int) (*coverer, error) {
	c := &coverer{}
	for _, a := range []*mem.Array[int32]{&c.match[0], &c.match[1], &c.seen} {
		if err := a.Make(mem.Scratch, destinations); err != nil {
			c.free()
			return nil, err
		}
	}
	return c, nil
}

func (c *coverer) free() {
	c.match[0].Free()
	c.match[1].Free()
	c.seen.Free()
}

// classes writes to class the lowest price at which the row of each source travels, or NumPrices. A row that
// travels at a price does so at all higher ones. ptr begins anywhere in rows.
func (c *coverer) classes(ptr, rows []int32, class []uint8) {
	n := len(ptr) - 1
	c.ptr, c.rows = ptr, rows
	c.room, c.level, c.next = make([]int32, n), make([]int32, n), make([]int32, n)
	c.queue, c.stack = make([]int32, 0, n), c.stack[:0]
	for i := range class {
		class[i] = uint8(NumPrices)
	}
	for price := range NumPrices {
		source, sum := price.capacities()
		c.clear()
		c.places = sum
		for i := range c.room {
			c.room[i] = source
			c.greedy(int32(i))
		}
		for phase := 0; phase < coverPhases && c.layers(); phase++ {
			for i := range c.room {
				for c.room[i] > 0 && c.level[i] == 0 && c.augment(int32(i)) {
				}
			}
		}
		c.layers()
		for i, level := range c.level {
			if level == unmatched { // no source that lacks an edge leads here
				class[i] = min(class[i], uint8(price))
			}
		}
		if !c.saves(class, source, sum, uint8(price)) {
			for i := range class {
				class[i] = min(class[i], uint8(price))
			}
		}
	}
}

func (c *coverer) edges() []int32 { return c.rows[c.ptr[0]:c.ptr[len(c.ptr)-1]] }

func (c *coverer) clear() {
	for _, v := range c.edges() {
		c.match[0].Data[v], c.match[1].Data[v] = unmatched, unmatched
	}
}

// greedy takes free destinations for a source.
func (c *coverer) greedy(i int32) {
	for _, v := range c.rows[c.ptr[i]:c.ptr[i+1]] {
		for place := range c.places {
			if c.room[i] == 0 {
				return
			}
			if c.match[place].Data[v] == unmatched {
				c.match[place].Data[v] = i
				c.room[i]--
				break // an edge counts once
			}
		}
	}
}

// layers finds how far each source is from one that lacks an edge, along edges that are not of the matching and
// back along edges that are: unmatched where no such way leads there. It tells whether one leads to a
// free destination.
func (c *coverer) layers() (found bool) {
	c.queue = c.queue[:0]
	c.phase++
	for i := range c.level {
		c.level[i], c.next[i] = unmatched, 0
		if c.room[i] > 0 {
			c.level[i] = 0
			c.queue = append(c.queue, int32(i))
		}
	}
	for at := 0; at < len(c.queue); at++ {
		i := c.queue[at]
		for _, v := range c.rows[c.ptr[i]:c.ptr[i+1]] {
			if c.seen.Data[v] == c.phase {
				continue
			}
			c.seen.Data[v] = c.phase
			for place := range c.places {
				switch w := c.match[place].Data[v]; {
				case w == unmatched:
					found = true
				case c.level[w] == unmatched:
					c.level[w] = c.level[i] + 1
					c.queue = append(c.queue, w)
				}
			}
		}
	}
	return found
}

// augment looks for a way from source i, through sources whose level rises, to a free destination, and takes
// every other edge of it for the matching.
func (c *coverer) augment(i int32) bool {
	c.stack = append(c.stack[:0], i)
	for len(c.stack) > 0 {
		i := c.stack[len(c.stack)-1]
		degree := c.ptr[i+1] - c.ptr[i]
		if c.next[i] == degree*c.places {
			c.level[i] = unmatched - 1 // nothing leads on from here
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
func (c *coverer) at(i int32) (v, place int32) {
	return c.rows[c.ptr[i]+c.next[i]/c.places], c.next[i] % c.places
}

// take gives each source of the stack the destination where its search is. The first one gains an edge.
func (c *coverer) take() {
	for _, i := range c.stack {
		v, place := c.at(i)
		c.match[place].Data[v] = i
	}
	for _, i := range c.stack {
		c.next[i]++
	}
	c.room[c.stack[0]]--
}

// saves tells whether rows of the sources up to a class, and sums for the edges of the others, are cheaper than
// all rows.
func (c *coverer) saves(class []uint8, row, sum int32, upTo uint8) bool {
	c.phase++
	var cost int64
	for i := range class {
		if class[i] <= upTo {
			cost += int64(row)
			continue
		}
		for _, v := range c.rows[c.ptr[i]:c.ptr[i+1]] {
			if c.seen.Data[v] != c.phase {
				c.seen.Data[v] = c.phase
				cost += int64(sum)
			}
		}
	}
	return cost*coverGain < int64(len(class))*int64(row)*(coverGain-1)
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

// classes finds, for the columns of each peer, which rows travel at which price. class has one entry a boundary
// column.
func (r *Structure) classes(class []uint8, threads int) error {
	made := make([]*coverer, max(1, threads))
	defer func() {
		for _, c := range made {
			if c != nil {
				c.free()
			}
		}
	}()
	return parallel.Each(len(made), len(r.Halo), func(thread, q int) (err error) {
		h := r.Halo[q]
		if q == 0 || h.Begin == h.End {
			return nil
		}
		if made[thread] == nil {
			if made[thread], err = newCoverer(r.NumDst); err != nil {
				return err
			}
		}
		made[thread].classes(r.ColPtr.Data[h.Begin:h.End+1], r.Row.Data, class[int(h.Begin)-r.NumSrc:int(h.End)-r.NumSrc])
		return nil
	})
}

// cover arranges the columns of each peer so that those whose rows travel come first, at every price. Columns have
// their rows, in any order, and the transpose is not made yet.
func (r *Structure) cover(threads int) error {
	class := make([]uint8, r.NumCols()-r.NumSrc)
	if err := r.classes(class, threads); err != nil {
		return err
	}
	moved, err := mem.Make[int32](mem.Structure, len(class))
	if err != nil {
		return err
	}
	r.moved = moved
	moves := false
	for q := 1; q < len(r.Halo); q++ {
		h := &r.Halo[q]
		first, end := int(h.Begin)-r.NumSrc, int(h.End)-r.NumSrc
		to := moved.Data[first:end]
		h.Leading = arrange(class[first:end], to)
		if !ascends(to) {
			moves = true
			if err := r.moveColumns(h, to); err != nil {
				return err
			}
		}
		for i := range to {
			to[i] += h.Begin
		}
	}
	if !moves {
		r.moved.Free()
	}
	return nil
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
	old, own := make([]int32, len(to)+1), make([]int32, len(to))
	copy(old, ptr)
	copy(own, h.Rows.Data)
	for i, at := range to {
		ptr[at+1] = old[i+1] - old[i]
		h.Rows.Data[at] = own[i]
	}
	for i := range to {
		ptr[i+1] += ptr[i]
	}
	for i, at := range to {
		copy(r.Row.Data[ptr[at]:ptr[at+1]], rows.Data[old[i]-old[0]:old[i+1]-old[0]])
	}
	return nil
}
