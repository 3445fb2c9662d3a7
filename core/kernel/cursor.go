package kernel

import "sar/core/internal/ascending"

// Cursor is how far windows of columns have come in the rows of a matrix.
type Cursor = ascending.Cursor[int64]

// needCursor panics where c is not of n rows.
func needCursor(c *Cursor, n int) {
	need("cursor", len(c.Slot), n)
	if c.Next != nil {
		need("next columns", len(c.Next), n)
	}
}
