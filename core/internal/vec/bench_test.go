package vec

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkLoops is the loops that training spends its time in, on rows that the second cache holds.
func BenchmarkLoops(b *testing.B) {
	b.Run("float32", benchLoops[float32])
	b.Run("float64", benchLoops[float64])
}

func benchLoops[T Float](b *testing.B) {
	const rows, degree = 512, 24
	rng := rand.New(rand.NewPCG(1, 1))
	col := make([]int32, rows*degree)
	for k := range col {
		col[k] = rng.Int32N(rows)
	}
	ops, columns := Get[T](), ColumnLoops[T]()
	for _, d := range []int{47, 64, 128, 256} {
		heads := 4
		if d == 47 {
			heads = 1
		}
		fill := func(n int) []T {
			x := make([]T, n)
			for i := range x {
				x[i] = T(rng.NormFloat64())
			}
			return x
		}
		x, w, a, mean := fill(rows*d), fill(d), fill(d), fill(d)
		stored := make([]BFloat16, rows*d)
		c, y, z := fill(len(col)*heads), make([]T, rows*d), make([]T, rows*d)
		out, won := make([]T, len(col)*heads), make([]int32, d)
		runs := make([]Run, rows)
		for r := range runs {
			runs[r] = Run{Y: r * d, From: int64(r * degree), To: int64(r*degree + degree), At: int64(r * degree)}
		}
		// each calls f for every row, with its slots.
		each := func(f func(g *Gather[T], r int)) func() {
			return func() {
				for r := range rows {
					from, to := r*degree, r*degree+degree
					f(&Gather[T]{Y: y[r*d:][:d], X: x, Stride: d, Col: col[from:to], C: c[from*heads : to*heads],
						Half: stored, First: true, Out: out[from*heads : to*heads], D: d}, r)
				}
			}
		}
		scatter := func(f func(s *Scatter[T])) func() {
			return each(func(g *Gather[T], r int) {
				f(&Scatter[T]{Y: y, Stride: d, Row: g.Col, X: x[r*d:][:d], C: g.C, Heads: heads, StrideC: heads,
					A: a, W: z, StrideW: d, Alpha: 0.2})
			})
		}
		// rowwise calls f for every row of z, x and y.
		rowwise := func(f func(z, x, y []T)) func() {
			return func() {
				for at := 0; at < rows*d; at += d {
					f(z[at:at+d], x[at:at+d], y[at:at+d])
				}
			}
		}
		softmax := func(most, sum []T) func() {
			return rowwise(func(z, x, _ []T) {
				n := d / len(sum) * len(sum)
				ops.MostRows(most, x[:n])
				ops.LessRow(z[:n], most, x[:n])
				ops.Exp(z[:n], z[:n])
				ops.SumRows(sum, z[:n])
			})
		}
		sums := &Gather[T]{Y: y, X: x, Stride: d, Col: col, First: true, D: d}
		half := &Gather[T]{Y: y, Half: stored, Stride: d, Col: col, First: true, D: d}
		weighted := &Gather[T]{Y: y, X: x, Stride: d, Col: col, C: c, First: true, D: d}
		pairs := &Pairs[T]{Out: out[:rows*heads], X: x, Y: z, StrideX: d, StrideY: d,
			IX: col[:rows], IY: col[rows : 2*rows], Heads: heads, D: d / heads}
		block := &Columns[T]{X: x, G: y, Z: z, About: mean, Scale: w, Shift: a, B: w, C: a,
			Plain: make([]T, d), Along: make([]T, d), Gate: true}
		loops := []struct {
			name string
			any  bool // width; others are for whole registers
			run  func()
		}{
			{"GatherSum", true, each(func(g *Gather[T], _ int) { g.C = nil; ops.GatherSum(g) })},
			{"GatherSumWeighted", true, each(func(g *Gather[T], _ int) { g.C = g.C[:len(g.Col)]; ops.GatherSum(g) })},
			{"GatherSums", true, func() { ops.GatherSums(sums, runs) }},
			{"HalfSums", true, func() { ops.HalfSums(half, runs) }},
			{"HalfRows", true, func() { ops.HalfRows(z, half.Half, d, 0, col[:rows], d) }},
			{"GatherSumsWeighted", true, func() { ops.GatherSums(weighted, runs) }},
			{"GatherSumHeads", false, each(func(g *Gather[T], _ int) { ops.GatherSumHeads(g, heads) })},
			{"HalfSumHeads", true, each(func(g *Gather[T], _ int) { ops.HalfSumHeads(g, heads) })},
			{"HalfDotHeads", true, each(func(g *Gather[T], _ int) { ops.HalfDotHeads(g, heads) })},
			{"HalfDotSums", true, each(func(g *Gather[T], _ int) { ops.HalfDotSums(g, w, heads) })},
			{"GatherDotHeads", true, each(func(g *Gather[T], _ int) { ops.GatherDotHeads(g, heads) })},
			{"DotSums", true, each(func(g *Gather[T], _ int) { ops.DotSums(g, w, heads) })},
			{"DotPairs", true, func() { ops.DotPairs(pairs) }},
			{"LeakyDots", false, each(func(g *Gather[T], _ int) { ops.LeakyDots(g, w, a, heads, 0.2) })},
			{"LeakySums", false, each(func(g *Gather[T], _ int) { ops.LeakySums(g, w, nil, heads, 0.2) })},
			{"LeakySumsSlopes", false, each(func(g *Gather[T], _ int) { ops.LeakySums(g, w, a, heads, 0.2) })},
			{"LeakyBoth", false, each(func(g *Gather[T], _ int) { ops.LeakyBoth(g, w, a, z[:d], heads, 0.2) })},
			{"ScatterSum", true, scatter(func(s *Scatter[T]) { ops.ScatterSum(s) })},
			{"ScatterSlopes", false, scatter(func(s *Scatter[T]) { ops.ScatterSlopes(s) })},
			{"ScatterAdd", true, func() { ops.ScatterAdd(y, x, col[:rows], d) }},
			{"Rows", true, func() { ops.Rows(z, x, d, 0, col[:rows], d) }},
			{"Axpy", true, rowwise(func(_, x, y []T) { ops.Axpy(y, x, 0.5) })},
			{"Add", true, rowwise(func(_, x, y []T) { ops.Add(y, x) })},
			{"Times", true, rowwise(func(z, x, y []T) { ops.Times(z, x, y) })},
			{"Leaky", true, rowwise(func(z, x, _ []T) { ops.Leaky(z, x, x, 0.2) })},
			{"Gate", true, rowwise(func(z, x, _ []T) { ops.Gate(z, x, x) })},
			{"Win", true, rowwise(func(_, x, _ []T) { ops.Win(y[:d], x, won, 1, false) })},
			{"TimesEach", true, func() { ops.TimesEach(z, x, c[:rows], d) }},
			{"Softmax1", true, softmax(make([]T, 1), make([]T, 1))},
			{"Softmax4", true, softmax(make([]T, 4), make([]T, 4))},
			{"Exp", true, func() { ops.Exp(z, x) }},
			{"Sigmoid", true, func() { ops.Sigmoid(z, x) }},
			{"Tanh", true, func() { ops.Tanh(z, x) }},
			{"ELU", true, func() { ops.ELU(z, x, 1) }},
			{"Softplus", true, func() { ops.Softplus(z, x) }},
			{"Log", true, func() { ops.Log(z, x) }},
			{"ColumnSums", true, func() { columns.Sums(block) }},
			{"Deviations", true, func() { columns.Deviations(block) }},
			{"Affine", true, func() { columns.Affine(block) }},
			{"Products", true, func() { columns.Products(block) }},
			{"Gradient", true, func() { columns.Gradient(block) }},
		}
		for _, loop := range loops {
			if loop.any || d != 47 {
				b.Run(fmt.Sprintf("%s/%d", loop.name, d), func(b *testing.B) {
					// Denormal and infinite numbers of the loop before would change the time.
					clear(y)
					clear(z)
					for b.Loop() {
						loop.run()
						clear(block.Plain)
						clear(block.Along)
					}
				})
			}
		}
	}
}
