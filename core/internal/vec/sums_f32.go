//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Sums of rows times coefficients, which stay in registers over all slots of a row. Nothing is fused.

// gatherSumF32 walks the columns in tiles of up to eight registers.
func gatherSumF32(g *Gather[float32]) {
	d := len(g.Y)
	y, x := unsafe.Pointer(unsafe.SliceData(g.Y)), unsafe.Pointer(unsafe.SliceData(g.X))
	c := unsafe.Pointer(unsafe.SliceData(g.C))
	for d > 0 {
		w := min(d, 8*lanesF32)
		tileF32(w)(y, x, (w-lanesF32)*sizeF32, g.Stride*sizeF32, g.Col, int(g.Base), c, g.First)
		if d -= w; d > 0 { // past the last tile they would point to nothing
			y, x = unsafe.Add(y, w*sizeF32), unsafe.Add(x, w*sizeF32)
		}
	}
}

// gatherSumsF32 has next to nothing to do between two rows of one tile.
func gatherSumsF32(g *Gather[float32], runs []Run) {
	if g.D == 0 || g.D > 8*lanesF32 {
		gatherEach(g, runs, gatherSumF32)
		return
	}
	sum, x, stride, base := tileF32(g.D), unsafe.Pointer(unsafe.SliceData(g.X)), g.Stride*sizeF32, int(g.Base)
	end := (g.D - lanesF32) * sizeF32
	for _, r := range runs {
		var c unsafe.Pointer
		if g.C != nil {
			c = unsafe.Pointer(unsafe.SliceData(g.C[r.At:][:r.To-r.From]))
		}
		y := unsafe.Pointer(unsafe.SliceData(g.Y[r.Y:][:g.D]))
		sum(y, x, end, stride, g.Col[r.From:r.To], base, c, g.First)
	}
}
