package exchange

import (
	"cmp"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/kernel"
	"sar/core/mem"
)

// cursor is where windows have come to in own rows.
type cursor struct {
	kernel.Cursor
	slots mem.Array[int64]
	next  mem.Array[int32]
}

func (c *cursor) Free() {
	c.slots.Free()
	c.next.Free()
}

// newCursor begins with the first slot of every own row.
func newCursor(rel *graph.Relation) (*cursor, error) {
	c := &cursor{}
	if err := cmp.Or(c.slots.Make(mem.Scratch, rel.NumDst), c.next.Make(mem.Scratch, rel.NumDst)); err != nil {
		c.Free()
		return nil, err
	}
	c.Slot, c.Next = c.slots.Data, c.next.Data
	for i := range c.Slot {
		c.Slot[i] = int64(rel.RowPtr.Data[i])
	}
	return c, nil
}

// sparseChunks tells whether a chunk of boundary rows touches so few of the own
// rows that looking at every own row once a chunk would cost more than it
// saves. Both add in the same order, so the choice changes no bit.
func sparseChunks(rel *graph.Relation, op *comm.Op, rowBytes int) bool {
	remote := int64(rel.ColPtr.Data[rel.NumCols()] - rel.ColPtr.Data[rel.NumSrc])
	var chunks int64
	for r := 1; r < rel.Parts; r++ {
		if n := int(rel.Halo[r].End - rel.Halo[r].Begin); n > 0 {
			rows := max(1, rowsPerFrame(op, rowBytes, chunkBytes))
			chunks += int64((n + rows - 1) / rows)
		}
	}
	const visits = 4 // own rows looked at for the price of one edge added
	return remote*visits < chunks*int64(rel.NumDst)
}

// HaloRows is how many boundary rows of each round this worker reads.
func HaloRows(rel *graph.Relation) []int {
	n := make([]int, rel.Parts)
	for r := 1; r < rel.Parts; r++ {
		n[r] = int(rel.Halo[r].End - rel.Halo[r].Begin)
	}
	return n
}

// SendRows is how many own rows peers read, by round.
func SendRows(rel *graph.Relation) []int {
	n := make([]int, rel.Parts)
	for r := 1; r < rel.Parts; r++ {
		n[r] = len(rel.Send[r].Data)
	}
	return n
}
