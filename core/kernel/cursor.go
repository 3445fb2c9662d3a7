package kernel

import "math"

// Cursor is how far windows of columns, which follow each other, have come in the rows of
// a matrix. Most windows have slots of few rows: those of the others are told by looking
// at one array in sequence.
type Cursor struct {
	Slot []int64 // the first slot of each row that was not read
	Next []int32 // its column, noColumn behind the last slot; nil: not kept
	Seen int32   // columns before this were in some window
}

// noColumn is behind all columns.
const noColumn = math.MaxInt32

// Passes tells whether a window that ends before column end has no slot of row i.
func (c *Cursor) Passes(i int32, end int32) bool { return c.Next != nil && c.Next[i] >= end }

// Move puts the cursor of row i, whose slots end before last, on slot k.
func (c *Cursor) Move(i int32, col []int32, k, last int64) {
	c.Slot[i] = k
	if c.Next == nil {
		return
	}
	c.Next[i] = noColumn
	if k < last {
		c.Next[i] = col[k]
	}
}

// fewer joins parts of whole rows, where they follow each other, to about n.
func fewer(parts []part, n int) []part {
	if len(parts) <= n {
		return parts
	}
	out := make([]part, 0, n+1)
	each := (len(parts) + n - 1) / n
	joined := 0
	for _, q := range parts {
		if last := len(out) - 1; last >= 0 && joined < each && out[last].p1 == q.p0 {
			out[last].p1 = q.p1
			joined++
			continue
		}
		out = append(out, q)
		joined = 1
	}
	return out
}
