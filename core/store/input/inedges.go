package input

import (
	"fmt"

	"sar/core/store/disk"
)

// inEdges is a CSR of the in-edges of a relation: those of destination i have the sources
// source[ptr[i]] to source[ptr[i+1]-1].
type inEdges struct {
	relation    string
	ptr, source disk.Array
}

// checkEnds holds the first and the last row pointer against the number of edges.
func (c *inEdges) checkEnds() error {
	var first, last [1]int64
	if err := c.ptr.Ints(0, first[:]); err != nil {
		return err
	}
	if err := c.ptr.Ints(c.ptr.Len-1, last[:]); err != nil {
		return err
	}
	if first[0] != 0 || last[0] != c.source.Len {
		return c.ptr.File.Bad(c.ptr.Offset, fmt.Sprintf("%s to begin with 0 and to end with the %d edges", c.ptr.Name,
			c.source.Len), "%d and %d", first[0], last[0])
	}
	return nil
}

// edgeRuns implements edgeReader.
func (c *inEdges) edgeRuns(numSrc, numDst int64, yield func(first int64, src, dst []int64) error) error {
	count := c.source.Len
	room := min(disk.Batch, count)
	src, dst := make([]int64, room), make([]int64, room)
	rows := disk.RowWalker{Ptr: &c.ptr, Rows: numDst, Edges: count}
	for at := int64(0); at < count; at += disk.Batch {
		n := int(min(disk.Batch, count-at))
		s, d := src[:n], dst[:n]
		if err := rows.Fill(at, d); err != nil {
			return err
		}
		if err := c.source.Ints(at, s); err != nil {
			return err
		}
		for i, u := range s {
			if uint64(u) >= uint64(numSrc) {
				return c.source.File.Bad(c.source.Offset+(at+int64(i))*int64(c.source.DType.Size()),
					fmt.Sprintf("the source of edge %d of %s among %d nodes", at+int64(i), c.relation, numSrc), "%d", u)
			}
		}
		if err := yield(at, s, d); err != nil {
			return err
		}
	}
	return nil
}
