package input

import (
	"fmt"
	"math"

	"sar/core/internal/dtypes"
	"sar/core/internal/must"
	"sar/core/internal/view"
	"sar/core/mem"
	"sar/core/store/disk"
)

// CSR is the in-edges of a relation on disk: those of destination i have the sources
// source[ptr[i]] to source[ptr[i+1]-1].
type CSR struct {
	relation    string
	ptr, source disk.Array
}

// checkEnds holds the first and the last row pointer against the number of edges.
func (c *CSR) checkEnds() {
	var first, last [1]int64
	must.Do(c.ptr.Ints(0, first[:]))
	must.Do(c.ptr.Ints(c.ptr.Len-1, last[:]))
	c.ptr.File.Want(first[0] == 0 && last[0] == c.source.Len, c.ptr.Offset,
		fmt.Sprintf("%s to begin with 0 and to end with the %d edges", c.ptr.Name, c.source.Len), "%d and %d", first[0],
		last[0])
}

// EdgeRuns implements EdgeReader.
func (c *CSR) EdgeRuns(numSrc, numDst int64, yield func(first int64, src, dst []int64) error) error {
	rows := disk.RowWalker{Ptr: &c.ptr, Rows: numDst, Edges: c.source.Len}
	return disk.Pairs(c.source.Len, c.source.Ints, rows.Fill, func(at int64, src, dst []int64) error {
		for i, u := range src {
			if uint64(u) >= uint64(numSrc) {
				return c.source.File.Bad(c.source.Offset+(at+int64(i))*int64(c.source.DType.Size()),
					fmt.Sprintf("the source of edge %d of %s among %d nodes", at+int64(i), c.relation, numSrc), "%d", u)
			}
		}
		return yield(at, src, dst)
	})
}

// InEdges is the matrix of a graph directory of one node type and one relation, which is square. Loops
// that were added to it are not in it. Other graphs have none.
func InEdges(g Graph) (*CSR, bool) {
	if l, ok := g.(*withLoops); ok {
		g = l.Graph
	}
	d, ok := g.(*directory)
	if !ok || len(d.Nodes) != 1 || len(d.Edges) != 1 {
		return nil, false
	}
	in, ok := d.Edges[0].Runs.(*CSR)
	return in, ok
}

func (c *CSR) NumNodes() int64   { return c.ptr.Len - 1 }
func (c *CSR) NumEntries() int64 { return c.source.Len }

// ReadOffsets reads where rows begin, from row first on: dst[i] is of row first+i.
func (c *CSR) ReadOffsets(first int64, dst []int64) error { return c.ptr.Ints(first, dst) }

// ReadColumns reads the sources of the edges from first on.
func (c *CSR) ReadColumns(first int64, dst []int32) error {
	a := &c.source
	if a.DType == dtypes.Int32 {
		return a.File.ReadAt(view.Bytes(dst), a.Offset+first*4, a.Name)
	}
	block, err := mem.Make[int64](mem.Scratch, min(len(dst), disk.Batch))
	if err != nil {
		return err
	}
	defer block.Free()
	for len(dst) > 0 {
		wide := block.Data[:min(len(dst), disk.Batch)]
		if err := a.Ints(first, wide); err != nil {
			return err
		}
		for i, v := range wide {
			if v < 0 || v > math.MaxInt32 {
				return a.File.Bad(a.Offset+(first+int64(i))*int64(a.DType.Size()),
					fmt.Sprintf("%s below %d", a.Name, c.NumNodes()), "%d", v)
			}
			dst[i] = int32(v)
		}
		first, dst = first+int64(len(wide)), dst[len(wide):]
	}
	return nil
}
