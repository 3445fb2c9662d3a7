package input

import (
	"fmt"
	"math"

	"sar/core/internal/view"
	"sar/core/mem"
	"sar/core/store/disk"
)

// CSR is the in-edges of a graph of one type as a square matrix on disk.
type CSR struct {
	in    *inEdges
	nodes int64
}

// InEdges is the matrix of a graph directory of one node type and one relation. Loops
// that were added to it are not in it. Other graphs have none.
func InEdges(g Graph) (*CSR, bool) {
	if l, ok := g.(*withLoops); ok {
		g = l.Graph
	}
	d, ok := g.(*directory)
	if !ok || len(d.node) != 1 || len(d.edge) != 1 {
		return nil, false
	}
	in, ok := d.edge[0].edges.(*inEdges)
	return &CSR{in, d.NumNodes()}, ok
}

func (c *CSR) NumNodes() int64   { return c.nodes }
func (c *CSR) NumEntries() int64 { return c.in.source.Len }

// ReadOffsets reads where rows begin, from row first on: dst[i] is of row first+i.
func (c *CSR) ReadOffsets(first int64, dst []int64) error { return c.in.ptr.Ints(first, dst) }

// ReadColumns reads the sources of the edges from first on.
func (c *CSR) ReadColumns(first int64, dst []int32) error {
	a := &c.in.source
	if a.DType == disk.Int32 {
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
				return a.File.Bad(a.Offset+(first+int64(i))*int64(a.DType.Size()), fmt.Sprintf("%s below %d", a.Name, c.nodes),
					"%d", v)
			}
			dst[i] = int32(v)
		}
		first, dst = first+int64(len(wide)), dst[len(wide):]
	}
	return nil
}
