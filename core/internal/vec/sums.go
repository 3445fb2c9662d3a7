//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Sums of rows times coefficients, which stay in registers over all slots of a row. The columns are walked in tiles:
// those of rows of float32 are in sums_f32.go, of bfloat16 in sums_bf16.go, and for AVX-512 in sums_amd64.go. Nothing
// is fused.

// sumTile adds rows of x, stride bytes apart, to w columns at y. cols has at least one. The last register of a tile
// ends where the tile does, rather than past it: the columns that two registers share get the same sum twice.
type sumTile = func(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool)

// coefficients are those of slots, step bytes apart, or, where rows is -1 and step 0, of source rows. Nothing gathers
// the latter beforehand: each is in a line of its own, which comes while the row does. at: nil for none.
type coefficients struct {
	at         unsafe.Pointer // of the slot
	step, rows int
}

// of is where the coefficient of the slot is, with a source row.
func (c *coefficients) of(row int) unsafe.Pointer { return unsafe.Add(c.at, row&c.rows*sizeF32) }

// next goes to the next slot.
func (c *coefficients) next(row int) unsafe.Pointer {
	c.at = unsafe.Add(c.at, c.step)
	return c.of(row)
}

// coefficientsOf are those of n slots of g, from one on.
func coefficientsOf(g *Gather[float32], from int64, n int) coefficients {
	switch {
	case n == 0:
	case g.Scale != nil:
		return coefficients{at: unsafe.Pointer(&g.Scale[0]), rows: -1}
	case g.C != nil:
		return coefficients{at: unsafe.Pointer(&g.C[from:][:n][0]), step: sizeF32}
	}
	return coefficients{}
}

// sums is the loops of one type of rows.
type sums struct {
	item int // bytes of an element of a row
	// tile is the first tile of w columns, with coefficients or without, and how many of them it has.
	tile func(w int, weighted bool) (int, sumTile)
	most int // where rows have more columns, they are brought near first; only of bfloat16
}

// one is Ops.GatherSum, or HalfSum.
func (s *sums) one(g *Gather[float32]) {
	switch {
	case len(g.Col) == 0:
		if g.First {
			clear(g.Y)
		}
	case len(g.Y) > s.most:
		s.heads(g, 1)
	default:
		s.columns(g, 0, len(g.Y), coefficientsOf(g, 0, len(g.Col)))
	}
}

// many is Ops.GatherSums, or HalfSums. It has next to nothing to do between two rows of one tile.
func (s *sums) many(g *Gather[float32], runs []Run) {
	w, tile := s.tile(g.D, g.C != nil || g.Scale != nil)
	if w != g.D {
		gatherEach(g, runs, s.one)
		return
	}
	x, stride, base := s.from(g, 0), g.Stride*s.item, int(g.Base)
	for _, r := range runs {
		y, cols := g.Y[r.Y:][:w], g.Col[r.From:r.To]
		if len(cols) == 0 {
			if g.First {
				clear(y)
			}
			continue
		}
		c := coefficientsOf(g, r.At, len(cols))
		tile(unsafe.Pointer(unsafe.SliceData(y)), x, w, stride, cols, base, c, g.First)
	}
}

// heads is Ops.HalfSumHeads: it takes one head after the other, in whose sums the coefficients of a slot are heads
// apart.
func (s *sums) heads(g *Gather[float32], heads int) {
	if len(g.Y) == 0 || len(g.Col) == 0 {
		if g.First {
			clear(g.Y)
		}
		return
	}
	sums, d := *g, len(g.Y)/heads
	sums.Out = nil // of another loop
	nearF32(&sums, len(g.Y), heads, func(g Gather[float32]) {
		for h := range heads {
			c := coefficientsOf(&g, 0, len(g.Col))
			if heads > 1 {
				c = coefficients{at: unsafe.Pointer(&g.C[h]), step: heads * sizeF32}
			}
			s.columns(&g, h*d, (h+1)*d, c)
		}
	})
}

// columns is columns [from, to).
func (s *sums) columns(g *Gather[float32], from, to int, c coefficients) {
	y, x, stride, base := g.Y[from:to], s.from(g, from), g.Stride*s.item, int(g.Base)
	for len(y) > 0 {
		w, tile := s.tile(len(y), c.at != nil)
		tile(unsafe.Pointer(unsafe.SliceData(y)), x, w, stride, g.Col, base, c, g.First)
		if y = y[w:]; len(y) > 0 { // past the last tile they would point to nothing
			x = unsafe.Add(x, w*s.item)
		}
	}
}

// from is where a column of the first row is.
func (s *sums) from(g *Gather[float32], column int) unsafe.Pointer {
	if s.item == sizeBF16 {
		return unsafe.Pointer(unsafe.SliceData(g.Half[min(column, len(g.Half)):]))
	}
	return unsafe.Pointer(unsafe.SliceData(g.X[min(column, len(g.X)):]))
}
