package expr

import (
	"fmt"
	"slices"
	"strings"
)

// shape is feature dimensions, the dimension of edges left out. Shapes are
// aligned from the right, as DGL and NumPy do.
type shape []int

func (s shape) width() int {
	w := 1
	for _, d := range s {
		w *= d
	}
	return w
}

func (s shape) String() string {
	parts := make([]string, len(s))
	for i, d := range s {
		parts[i] = fmt.Sprint(d)
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

func (s shape) equal(t shape) bool { return slices.Equal(s, t) }

// at is the size of dimension i of n, counted as if s had n dimensions.
func (s shape) at(i, n int) int {
	if i -= n - len(s); i < 0 {
		return 1
	}
	return s[i]
}

// broadcast is the shape of an operation on both.
func broadcast(a, b shape) (shape, bool) {
	n := max(len(a), len(b))
	out := make(shape, n)
	for i := range out {
		x, y := a.at(i, n), b.at(i, n)
		if x != y && x != 1 && y != 1 {
			return nil, false
		}
		out[i] = x
		if x == 1 {
			out[i] = y
		}
	}
	return out, true
}

// spread maps each element of to to the element of from that it is read from.
// from broadcasts to to.
func spread(from, to shape) []int32 {
	out := make([]int32, to.width())
	n := len(to)
	index := make([]int, n)
	for k := range out {
		at := 0
		for i := range n {
			if d := from.at(i, n); d > 1 {
				at = at*d + index[i]
			}
		}
		out[k] = int32(at)
		for i := n - 1; i >= 0; i-- {
			if index[i]++; index[i] < to[i] {
				break
			}
			index[i] = 0
		}
	}
	return out
}

// grouped tells whether each element of from is read by a run of equally many
// elements of to, and how many that are.
func grouped(from, to shape) (d int, ok bool) {
	n := len(to)
	cut := n
	for cut > 0 && from.at(cut-1, n) == 1 {
		cut--
	}
	d = 1
	for i := range n {
		if i >= cut {
			d *= to[i]
		} else if from.at(i, n) != to[i] {
			return 0, false
		}
	}
	return d, true
}
