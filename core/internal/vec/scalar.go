package vec

import "math"

// The scalar reference. T(c*x) keeps the compiler from fusing the multiply
// with the add on targets where it would, so the reference rounds alike
// everywhere.

func scalarOps[T Float]() Ops[T] {
	return Ops[T]{
		GatherSum:  gatherSumScalar[T],
		GatherSums: gatherSumsScalar[T],
		Axpy:       axpyScalar[T],
		Add:        addScalar[T],
		Scale:      scaleScalar[T],
		Plus:       plusScalar[T],
		Minus:      minusScalar[T],
		Times:      timesScalar[T],
		Over:       overScalar[T],
		Leaky:      leakyScalar[T],
		TimesEach:  timesEachScalar[T],
		DotPairs:   dotPairsScalar[T],
		Gate:       gateScalar[T],
		Pick:       pickScalar[T],
		Win:        winScalar[T],

		HalfSum:        halfSumScalar[T],
		HalfSums:       halfSumsScalar[T],
		HalfSumHeads:   halfSumHeadsScalar[T],
		HalfDotHeads:   halfDotHeadsScalar[T],
		HalfDotSums:    halfDotSumsScalar[T],
		HalfRows:       halfRowsScalar[T],
		Narrow:         narrowScalar[T],
		GatherSumHeads: gatherSumHeadsScalar[T],
		GatherDotHeads: gatherDotHeadsScalar[T],
		DotSums:        dotSumsScalar[T],
		LeakyDots:      leakyDotsScalar[T],
		LeakySums:      leakySumsScalar[T],
		LeakyBoth:      leakyBothScalar[T],
		Rows:           rowsScalar[T],
		Sigmoid:        scalarOf[T](func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }),
		Tanh:           scalarOf[T](math.Tanh),
		Log:            scalarOf[T](logarithm),
		Softplus:       scalarOf[T](softplus),
		ELU:            eluScalar[T],
		ScatterAdd:     scatterAddScalar[T],
		ScatterSum:     scatterSumScalar[T],
		SumRows:        sumRowsScalar[T],
		MostRows:       mostRowsScalar[T],
		LessRow:        lessRowScalar[T],
		ScatterSlopes:  scatterSlopesScalar[T],
		Exp:            expScalar[T],
	}
}

func gatherSumScalar[T Float](g *Gather[T]) {
	if g.First {
		clear(g.Y)
	}
	d := len(g.Y)
	for k, col := range g.Col {
		x := g.X[int(col-g.Base)*g.Stride:]
		axpyScalar(g.Y, x[:d], g.coefficient(k)) // 1 leaves the bits
	}
}

// coefficient is that of slot k.
func (g *Gather[T]) coefficient(k int) T {
	switch {
	case g.Scale != nil:
		return g.Scale[g.Col[k]-g.Base]
	case g.C != nil:
		return g.C[k]
	}
	return 1
}

func gatherSumsScalar[T Float](g *Gather[T], runs []Run) { gatherEach(g, runs, gatherSumScalar[T]) }

// gatherEach calls sum for each row.
func gatherEach[T Float](g *Gather[T], runs []Run, sum func(g *Gather[T])) {
	one := *g
	for _, r := range runs {
		one.Y, one.Col = g.Y[r.Y:][:g.D], g.Col[r.From:r.To]
		if g.C != nil {
			one.C = g.C[r.At:][:r.To-r.From]
		}
		sum(&one)
	}
}

func axpyScalar[T Float](y, x []T, c T) {
	x = x[:len(y)]
	for j := range y {
		y[j] += T(c * x[j])
	}
}

func addScalar[T Float](y, x []T) {
	x = x[:len(y)]
	for j := range y {
		y[j] += x[j]
	}
}

func scaleScalar[T Float](y []T, c T) {
	for j := range y {
		y[j] *= c
	}
}

func plusScalar[T Float](z, x, y []T) {
	x, y = x[:len(z)], y[:len(z)]
	for j := range z {
		z[j] = x[j] + y[j]
	}
}

func minusScalar[T Float](z, x, y []T) {
	x, y = x[:len(z)], y[:len(z)]
	for j := range z {
		z[j] = x[j] - y[j]
	}
}

func timesScalar[T Float](z, x, y []T) {
	x, y = x[:len(z)], y[:len(z)]
	for j := range z {
		z[j] = x[j] * y[j]
	}
}

func overScalar[T Float](z, x, y []T) {
	x, y = x[:len(z)], y[:len(z)]
	for j := range z {
		z[j] = x[j] / y[j]
	}
}

func leakyScalar[T Float](z, x, y []T, c T) {
	x, y = x[:len(z)], y[:len(z)]
	for j := range z {
		if x[j] > 0 {
			z[j] = y[j]
		} else {
			z[j] = c * y[j]
		}
	}
}

func gatherSumHeadsScalar[T Float](g *Gather[T], heads int) {
	if g.First {
		clear(g.Y)
	}
	d := len(g.Y) / heads
	for k, col := range g.Col {
		x := g.X[int(col-g.Base)*g.Stride:]
		for h, c := range g.C[k*heads : (k+1)*heads] {
			axpyScalar(g.Y[h*d:(h+1)*d], x[h*d:(h+1)*d], c)
		}
	}
}

func gateScalar[T Float](z, x, y []T) {
	x, y = x[:len(z)], y[:len(z)]
	for j := range z {
		if x[j] <= 0 {
			z[j] = 0
		} else {
			z[j] = y[j]
		}
	}
}

func pickScalar[T Float](z, x []T, won []int32, edge int32) {
	x, won = x[:len(z)], won[:len(z)]
	for j := range z {
		z[j] = 0
		if won[j] == edge {
			z[j] = x[j]
		}
	}
}

func winScalar[T Float](best, x []T, won []int32, edge int32, least bool) {
	x, won = x[:len(best)], won[:len(best)]
	for j, v := range x {
		better := v > best[j]
		if least {
			better = v < best[j]
		}
		if better || v == best[j] && edge < won[j] {
			best[j], won[j] = v, edge
		}
	}
}

func timesEachScalar[T Float](z, x, c []T, d int) {
	for g, s := range c {
		to, from := z[g*d:(g+1)*d], x[g*d:(g+1)*d]
		for j := range to {
			to[j] = from[j] * s
		}
	}
}

func dotPairsScalar[T Float](p *Pairs[T]) {
	width := p.Heads * p.D
	for k, ix := range p.IX {
		x := p.X[int(ix-p.BaseX)*p.StrideX:][:width]
		y := p.Y[int(p.IY[k]-p.BaseY)*p.StrideY:][:width]
		for h := range p.Heads {
			var s T
			for j := h * p.D; j < (h+1)*p.D; j++ {
				s += T(x[j] * y[j])
			}
			p.Out[k*p.Heads+h] = s
		}
	}
}

func expScalar[T Float](y, x []T) {
	for j, v := range x[:len(y)] {
		y[j] = T(math.Exp(float64(v)))
	}
}

func gatherDotHeadsScalar[T Float](g *Gather[T], heads int) { dotPairsScalar(g.pairs(heads)) }

func dotSumsScalar[T Float](g *Gather[T], w []T, heads int) {
	dots := *g
	dots.Y = w
	gatherDotHeadsScalar(&dots, heads)
	if heads > 0 {
		gatherSumHeadsScalar(g, heads)
	}
}

func rowsScalar[T Float](z, x []T, stride int, base int32, index []int32, w int) {
	if w == 1 {
		for k, i := range index {
			z[k] = x[int(i-base)*stride]
		}
		return
	}
	for k, i := range index {
		copy(z[k*w:(k+1)*w], x[int(i-base)*stride:][:w])
	}
}

func scatterAddScalar[T Float](y, x []T, index []int32, w int) {
	for k, i := range index {
		to, from := y[int(i)*w:][:w], x[k*w:(k+1)*w]
		for j, v := range from {
			to[j] += v
		}
	}
}

func sumRowsScalar[T Float](y, x []T) {
	for w := len(y); len(x) > 0 && w > 0; x = x[w:] {
		for h, v := range x[:w] {
			y[h] += v
		}
	}
}

func mostRowsScalar[T Float](y, x []T) {
	for w := len(y); len(x) > 0 && w > 0; x = x[w:] {
		for h, v := range x[:w] {
			if v > y[h] {
				y[h] = v
			}
		}
	}
}

func lessRowScalar[T Float](z, y, x []T) {
	for w := len(y); len(x) > 0 && w > 0; x, z = x[w:], z[w:] {
		for h, v := range x[:w] {
			z[h] = v - y[h]
		}
	}
}

func scatterSumScalar[T Float](s *Scatter[T]) {
	d := len(s.X) / max(1, s.Heads)
	for k, row := range s.Row {
		y := s.Y[int(row)*s.Stride:][:len(s.X)]
		for h := range s.Heads {
			axpyScalar(y[h*d:(h+1)*d], s.X[h*d:(h+1)*d], s.C[k*s.StrideC+h])
		}
	}
}

func scatterSlopesScalar[T Float](s *Scatter[T]) {
	d := len(s.X) / max(1, s.Heads)
	for k, row := range s.Row {
		y, w := s.Y[int(row)*s.Stride:][:len(s.X)], s.W[int(row)*s.StrideW:][:len(s.X)]
		for j, x := range s.X {
			f := s.A[j]
			if !(w[j]+x > 0) {
				f = T(s.Alpha * f)
			}
			y[j] += T(s.C[k*s.StrideC+j/d] * f)
		}
	}
}

func leakyDotsScalar[T Float](g *Gather[T], w, a []T, heads int, alpha T) {
	d := len(w) / max(1, heads)
	for k, col := range g.Col {
		x := g.X[int(col-g.Base)*g.Stride:][:len(w)]
		for h := range heads {
			var sum T
			for j := h * d; j < (h+1)*d; j++ {
				s := x[j] + w[j]
				sum += T(max(s, T(alpha*s)) * a[j])
			}
			g.Out[k*heads+h] = sum
		}
	}
}

func leakySumsScalar[T Float](g *Gather[T], w, a []T, heads int, alpha T) {
	d := len(g.Y) / max(1, heads)
	for k, col := range g.Col {
		x := g.X[int(col-g.Base)*g.Stride:][:len(g.Y)]
		for j := range g.Y {
			s := x[j] + w[j]
			var f T
			switch {
			case a == nil:
				f = max(s, T(alpha*s))
			case s > 0:
				f = a[j]
			default:
				f = T(alpha * a[j])
			}
			g.Y[j] += T(g.C[k*heads+j/d] * f)
		}
	}
}

func scalarOf[T Float](f func(x float64) float64) func(z, x []T) {
	return func(z, x []T) {
		for j, v := range x[:len(z)] {
			z[j] = T(f(float64(v)))
		}
	}
}

// logarithm is math.Log, which on amd64 (Go 1.26) is wrong below the normal range.
func logarithm(x float64) float64 {
	if x > 0 && x < 0x1p-1022 {
		return math.Log(x*0x1p54) - 54*math.Ln2
	}
	return math.Log(x)
}

// softplus is the identity where torch has it so.
func softplus(x float64) float64 {
	if x > 20 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

func eluScalar[T Float](z, x []T, c T) {
	for j, v := range x[:len(z)] {
		if v > 0 {
			z[j] = v
		} else {
			z[j] = c * T(math.Expm1(float64(v)))
		}
	}
}

func leakyBothScalar[T Float](g *Gather[T], w, a, values []T, heads int, alpha T) {
	leakySumsScalar(g, w, a, heads, alpha)
	of := *g
	of.Y = values[:len(g.Y)]
	leakySumsScalar(&of, w, nil, heads, alpha)
}
