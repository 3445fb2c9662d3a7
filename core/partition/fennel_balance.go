package partition

import (
	"math"

	"sar/core/internal/argument"
)

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

// constrain makes a constraint, or nil where there is nothing to divide.
func (w *fennel) constrain(weight []int32, members []int64) (*constraint, error) {
	sums := members
	if weight != nil {
		if len(weight) != len(w.assignment) {
			return nil, argument.Errorf("weights of %d nodes for a graph of %d", len(weight), len(w.assignment))
		}
		sums = make([]int64, w.Groups)
		for v, x := range weight {
			if x < 0 {
				return nil, argument.Errorf("node %d weighs %d; expected 0 or more", v, x)
			}
			sums[-1-w.assignment[v]] += int64(x)
		}
	}
	c := &constraint{weight: weight, load: make([]int64, w.Parts), limit: make([]int64, w.Parts),
		mean: make([]float64, w.Parts)}
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

// bound sets the limits of a pass, and tells whether they are the final ones. The first
// passes allow more: nodes that come late must still get to their neighbours.
func (w *fennel) bound(pass int) bool {
	slack := w.Imbalance
	if pass < len(early) && pass < w.Passes-1 {
		slack *= early[pass]
	}
	for _, c := range w.constraints {
		for p := range c.limit {
			// a part as large as the mean, rounded up, is always allowed
			c.limit[p] = max(int64((1+slack)*c.mean[p]), int64(math.Ceil(c.mean[p])))
		}
	}
	return slack == w.Imbalance
}

// early are the limits of the first passes, in imbalances.
var early = [...]float64{8, 2}

// fits tells whether a part has room for what a node weighs.
func (w *fennel) fits(v int64, p int32) bool {
	for _, c := range w.constraints {
		if x := c.of(v); x > 0 && c.load[p]+x > c.limit[p] {
			return false
		}
	}
	return true
}

// over tells whether a node's part has more than it may of what the node weighs.
func (w *fennel) over(v int64, p int32) bool {
	for _, c := range w.constraints {
		if c.load[p] > c.limit[p] && c.of(v) > 0 {
			return true
		}
	}
	return false
}

// nobody is no node.
const nobody = -1

// fill is how full a part would be with a node, relative to the mean: the fullest of its
// constraints counts.
func (w *fennel) fill(p int32, v int64) (fill float64) {
	for _, c := range w.constraints {
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
