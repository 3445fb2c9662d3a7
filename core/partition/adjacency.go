package partition

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"sar/core/internal/parallel"
	"sar/core/mem"
)

// Undirected is a graph without directions, self loops and repeated edges, as
// METIS wants it. It holds every edge once, at its smaller end.
type Undirected struct {
	ptr   mem.Array[int64] // [n + 1]
	upper mem.Array[int32] // neighbours above the node, ascending
}

var errChanged = errors.New("the graph gave other edges when it was read again")

// NewUndirected reads the edges twice. While it works, and until Free, it
// holds 4 bytes an edge and 8 a node.
func NewUndirected(edges Edges) (u *Undirected, err error) {
	n := edges.NumNodes()
	if n > math.MaxInt32 {
		return nil, fmt.Errorf("undirected adjacency of %d nodes: at most %d are supported", n, math.MaxInt32)
	}
	u = new(Undirected)
	defer func() {
		if err != nil {
			u.Free()
			u = nil
		}
	}()
	if u.ptr, err = mem.Make[int64](mem.Scratch, int(n)+1); err != nil {
		return u, err
	}
	ptr := u.ptr.Data
	err = each(edges, func(src, dst []int64) error {
		for i, a := range src {
			if b := dst[i]; a != b {
				ptr[min(a, b)+1]++
			}
		}
		return nil
	})
	if err != nil {
		return u, err
	}
	// ptr[a+1] becomes the start of a, and by filling its end
	var at int64
	for a := range n {
		ptr[a+1], at = at, at+ptr[a+1]
	}
	if u.upper, err = mem.Make[int32](mem.Scratch, int(at)); err != nil {
		return u, err
	}
	upper := u.upper.Data
	err = each(edges, func(src, dst []int64) error {
		for i, a := range src {
			if b := dst[i]; a != b {
				k := ptr[min(a, b)+1]
				if k >= at {
					return errChanged
				}
				upper[k] = int32(max(a, b))
				ptr[min(a, b)+1]++
			}
		}
		return nil
	})
	if err != nil {
		return u, err
	}
	if n > 0 && ptr[n] != at {
		return u, errChanged
	}
	u.upper.Data = sortedSets(ptr, upper)
	return u, nil
}

// sortedSets sorts each row, on all threads, and drops repetitions. It moves the ends of
// rows in ptr, and returns what is left of columns.
func sortedSets(ptr []int64, columns []int32) []int32 {
	rows := len(ptr) - 1
	_ = parallel.Each(runtime.GOMAXPROCS(0), (rows+chunkNodes-1)/chunkNodes, func(_, chunk int) error {
		for i := chunk * chunkNodes; i < min(rows, (chunk+1)*chunkNodes); i++ {
			slices.Sort(columns[ptr[i]:ptr[i+1]])
		}
		return nil
	})
	var kept, begin int64
	for i, end := range ptr[1:] {
		for k := begin; k < end; k++ {
			if k == begin || columns[k] != columns[k-1] {
				columns[kept] = columns[k]
				kept++
			}
		}
		begin, ptr[i+1] = end, kept
	}
	return columns[:kept]
}

func (u *Undirected) NumNodes() int { return max(0, len(u.ptr.Data)-1) }

// Len is the length of adjncy: every edge counts at both ends.
func (u *Undirected) Len() int64 { return 2 * int64(len(u.upper.Data)) }

// Free releases the graph.
func (u *Undirected) Free() {
	u.ptr.Free()
	u.upper.Free()
}

// Fill writes the adjacency into the caller's arrays, xadj [n + 1] and
// adjncy [Len()]: the neighbours of a are adjncy[xadj[a]:xadj[a+1]], ascending.
// It takes no memory. The graph is not changed.
func Fill[I int32 | int64](u *Undirected, xadj []int64, adjncy []I) error {
	n := u.NumNodes()
	if len(xadj) != n+1 || int64(len(adjncy)) != u.Len() {
		return fmt.Errorf("adjacency of %d nodes with %d entries: xadj has %d numbers, expected %d; adjncy has %d, "+
			"expected %d",
			n, u.Len(), len(xadj), n+1, len(adjncy), u.Len())
	}
	clear(xadj)
	ptr, upper := u.ptr.Data, u.upper.Data
	for a := range n {
		xadj[a+1] += ptr[a+1] - ptr[a]
		for _, b := range upper[ptr[a]:ptr[a+1]] {
			xadj[b+1]++
		}
	}
	var at int64
	for a := range n { // xadj[a+1] becomes the start of a, and by filling its end
		xadj[a+1], at = at, at+xadj[a+1]
	}
	// a's smaller neighbours all come before a's own turn, in ascending order
	for a := range n {
		for _, b := range upper[ptr[a]:ptr[a+1]] {
			adjncy[xadj[b+1]] = I(a)
			xadj[b+1]++
			adjncy[xadj[a+1]] = I(b)
			xadj[a+1]++
		}
	}
	return nil
}
