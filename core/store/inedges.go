package store

import "fmt"

// inEdges is a CSR of the in-edges of a relation: those of destination i have the sources
// source[ptr[i]] to source[ptr[i+1]-1].
type inEdges struct {
	relation    string
	ptr, source array
}

// checkEnds holds the first and the last row pointer against the number of edges.
func (c *inEdges) checkEnds() error {
	var first, last [1]int64
	if err := c.ptr.ints(0, first[:]); err != nil {
		return err
	}
	if err := c.ptr.ints(c.ptr.n-1, last[:]); err != nil {
		return err
	}
	if first[0] != 0 || last[0] != c.source.n {
		return c.ptr.f.bad(c.ptr.off, fmt.Sprintf("%s to begin with 0 and to end with the %d edges", c.ptr.what, c.source.n), "%d and %d", first[0], last[0])
	}
	return nil
}

// edgeRuns implements edgeReader.
func (c *inEdges) edgeRuns(numSrc, numDst int64, yield func(first int64, src, dst []int64) error) error {
	count := c.source.n
	room := min(batch, count)
	src, dst := make([]int64, room), make([]int64, room)
	rows := rowWalker{ptr: &c.ptr, rows: numDst, edges: count}
	for at := int64(0); at < count; at += batch {
		n := int(min(batch, count-at))
		s, d := src[:n], dst[:n]
		if err := rows.fill(at, d); err != nil {
			return err
		}
		if err := c.source.ints(at, s); err != nil {
			return err
		}
		for i, u := range s {
			if uint64(u) >= uint64(numSrc) {
				return c.source.f.bad(c.source.off+(at+int64(i))*int64(c.source.dtype.Size()),
					fmt.Sprintf("the source of edge %d of %s among %d nodes", at+int64(i), c.relation, numSrc), "%d", u)
			}
		}
		if err := yield(at, s, d); err != nil {
			return err
		}
	}
	return nil
}
