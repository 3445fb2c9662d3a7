//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Sums and products of rows of float64.

func gatherSumF64(g *Gather[float64]) {
	if g.First {
		clear(g.Y)
	}
	sumRowsOfF64(g.Y, g.X, g, g.coefficient)
}

func gatherSumsF64(g *Gather[float64], runs []Run) { gatherEach(g, runs, gatherSumF64) }

func gatherSumHeadsF64(g *Gather[float64], heads int) {
	if g.First {
		clear(g.Y)
	}
	if heads == 0 || len(g.Col) == 0 {
		return
	}
	d := len(g.Y) / heads
	for h := range heads {
		sumRowsOfF64(g.Y[h*d:(h+1)*d], g.X[h*d:], g, func(k int) float64 { return g.C[k*heads+h] })
	}
}

// sumRowsOfF64: for k ascending: y[j] += c(k) * x[(col[k]-base)*stride+j], of four rows at a time. A coefficient of 1
// leaves the bits.
func sumRowsOfF64(y, x []float64, g *Gather[float64], c func(k int) float64) {
	var p [4]unsafe.Pointer
	var b [4]float64
	for from := 0; from < len(g.Col); from += 4 {
		cols := g.Col[from:min(from+4, len(g.Col))]
		for i, col := range cols {
			p[i] = dataF64(x[int(col-g.Base)*g.Stride:][:len(y)])
			b[i] = c(from + i)
		}
		if len(cols) == 4 {
			axpy4F64(y, p[0], p[1], p[2], p[3], b[0], b[1], b[2], b[3])
			continue
		}
		for i := range cols {
			axpyF64(y, unsafe.Slice((*float64)(p[i]), len(y)), b[i])
		}
	}
}

// axpy4F64 adds multiples of four rows to y, one after the other.
func axpy4F64(y []float64, x0, x1, x2, x3 unsafe.Pointer, c0, c1, c2, c3 float64) {
	b0, b1, b2, b3 := fillF64(c0), fillF64(c1), fillF64(c2), fillF64(c3)
	to, end := dataF64(y), len(y)/lanesF64*stepF64
	for j := 0; j < end; j += stepF64 {
		a := (*atF64(to, j)).Add(b0.Mul(*atF64(x0, j))).Add(b1.Mul(*atF64(x1, j)))
		*atF64(to, j) = a.Add(b2.Mul(*atF64(x2, j))).Add(b3.Mul(*atF64(x3, j)))
	}
	clearUpper()
	for j := end; j < len(y)*sizeF64; j += sizeF64 {
		a := (*float64)(unsafe.Add(to, j))
		*a += float64(c0 * *(*float64)(unsafe.Add(x0, j)))
		*a += float64(c1 * *(*float64)(unsafe.Add(x1, j)))
		*a += float64(c2 * *(*float64)(unsafe.Add(x2, j)))
		*a += float64(c3 * *(*float64)(unsafe.Add(x3, j)))
	}
}

func scatterSumF64(s *Scatter[float64]) {
	d := len(s.X) / max(1, s.Heads)
	for k, row := range s.Row {
		y := s.Y[int(row)*s.Stride:][:len(s.X)]
		for h, c := range s.C[k*s.StrideC:][:s.Heads] {
			axpyF64(y[h*d:(h+1)*d], s.X[h*d:(h+1)*d], c)
		}
	}
}

func gatherDotHeadsF64(g *Gather[float64], heads int) { dotPairsF64(g.pairs(heads)) }

func dotSumsF64(g *Gather[float64], w []float64, heads int) {
	dots, sums := *g, *g
	dots.Y, sums.First = w, false
	gatherDotHeadsF64(&dots, heads)
	gatherSumHeadsF64(&sums, heads)
}

// dotPairsF64 takes four products at a time, which hides how long an addition takes. Where fewer are left, the last one
// is taken again.
func dotPairsF64(p *Pairs[float64]) {
	n := len(p.IX) * p.Heads
	if n == 0 {
		return
	}
	x, y, out := dataF64(p.X), dataF64(p.Y), p.Out[:n]
	var from, with [4]unsafe.Pointer
	k, h := 0, 0 // the product that is next
	for i := 0; i < n; i += 4 {
		for q := range 4 {
			from[q] = unsafe.Add(x, (int(p.IX[k]-p.BaseX)*p.StrideX+h*p.D)*sizeF64)
			with[q] = unsafe.Add(y, (int(p.IY[k]-p.BaseY)*p.StrideY+h*p.D)*sizeF64)
			switch {
			case i+q+1 >= n:
			case h+1 < p.Heads:
				h++
			default:
				k, h = k+1, 0
			}
		}
		s := dot4F64(&from, &with, p.D)
		copy(out[i:], s[:])
	}
}

func dot4F64(x, y *[4]unsafe.Pointer, d int) (s [4]float64) {
	x0, x1, x2, x3, y0, y1, y2, y3 := x[0], x[1], x[2], x[3], y[0], y[1], y[2], y[3]
	end := d / lanesF64 * stepF64
	var a0, a1, a2, a3 f64s
	for j := 0; j < end; j += stepF64 {
		a0 = (*atF64(x0, j)).MulAdd(*atF64(y0, j), a0)
		a1 = (*atF64(x1, j)).MulAdd(*atF64(y1, j), a1)
		a2 = (*atF64(x2, j)).MulAdd(*atF64(y2, j), a2)
		a3 = (*atF64(x3, j)).MulAdd(*atF64(y3, j), a3)
	}
	store4F64(unsafe.Pointer(&s), a0, a1, a2, a3)
	clearUpper()
	for j := end; j < d*sizeF64; j += sizeF64 {
		for q := range s {
			s[q] += float64(*(*float64)(unsafe.Add(x[q], j)) * *(*float64)(unsafe.Add(y[q], j)))
		}
	}
	return s
}

// Loops of leaky ReLU of sums of two rows, of whole registers.

func leakyDotsF64(g *Gather[float64], w, a []float64, heads int, alpha float64) {
	d := len(w) / max(1, heads)
	for k, col := range g.Col {
		x := g.X[int(col-g.Base)*g.Stride:][:len(w)]
		for h := range heads {
			from, to := h*d, (h+1)*d
			g.Out[k*heads+h] = leakyDotF64(x[from:to], w[from:to], a[from:to], alpha)
		}
	}
}

func leakyDotF64(x, w, a []float64, alpha float64) float64 {
	var sum f64s
	slope, px, pw, pa := fillF64(alpha), dataF64(x), dataF64(w), dataF64(a)
	for j := 0; j < len(x)*sizeF64; j += stepF64 {
		s := (*atF64(px, j)).Add(*atF64(pw, j))
		sum = s.Max(s.Mul(slope)).MulAdd(*atF64(pa, j), sum)
	}
	var s [4]float64
	store4F64(unsafe.Pointer(&s), sum, sum, sum, sum)
	clearUpper()
	return s[0]
}

func leakySumsF64(g *Gather[float64], w, a []float64, heads int, alpha float64) {
	d := len(g.Y) / max(1, heads)
	for k, col := range g.Col {
		x := g.X[int(col-g.Base)*g.Stride:][:len(g.Y)]
		for h, c := range g.C[k*heads : (k+1)*heads] {
			from, to := h*d, (h+1)*d
			if a == nil {
				addLeakyF64(g.Y[from:to], x[from:to], w[from:to], c, alpha)
			} else {
				addSlopesF64(g.Y[from:to], x[from:to], w[from:to], a[from:to], c, alpha)
			}
		}
	}
}

func leakyBothF64(g *Gather[float64], w, a, values []float64, heads int, alpha float64) {
	leakySumsF64(g, w, a, heads, alpha)
	of := *g
	of.Y = values[:len(g.Y)]
	leakySumsF64(&of, w, nil, heads, alpha)
}

func scatterSlopesF64(s *Scatter[float64]) {
	d := len(s.X) / max(1, s.Heads)
	for k, row := range s.Row {
		y, w := s.Y[int(row)*s.Stride:][:len(s.X)], s.W[int(row)*s.StrideW:][:len(s.X)]
		for h, c := range s.C[k*s.StrideC:][:s.Heads] {
			from, to := h*d, (h+1)*d
			addSlopesF64(y[from:to], w[from:to], s.X[from:to], s.A[from:to], c, s.Alpha)
		}
	}
}

// addLeakyF64: y += c * max(x + w, alpha * (x + w))
func addLeakyF64(y, x, w []float64, c, alpha float64) {
	b, slope, to, px, pw := fillF64(c), fillF64(alpha), dataF64(y), dataF64(x), dataF64(w)
	for j := 0; j < len(y)*sizeF64; j += stepF64 {
		s := (*atF64(px, j)).Add(*atF64(pw, j))
		*atF64(to, j) = (*atF64(to, j)).Add(b.Mul(s.Max(s.Mul(slope))))
	}
	clearUpper()
}

// addSlopesF64: y += c * (x + w > 0 ? a : alpha * a)
func addSlopesF64(y, x, w, a []float64, c, alpha float64) {
	var zero f64s
	b, slope, to, px, pw, pa := fillF64(c), fillF64(alpha), dataF64(y), dataF64(x), dataF64(w), dataF64(a)
	for j := 0; j < len(y)*sizeF64; j += stepF64 {
		up := *atF64(pa, j)
		t := up.IfElse((*atF64(px, j)).Add(*atF64(pw, j)).Greater(zero), slope.Mul(up))
		*atF64(to, j) = (*atF64(to, j)).Add(b.Mul(t))
	}
	clearUpper()
}
