package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestElements holds the loops over elements against the scalar ones, to the
// bit where neither order nor rounding is free.
func TestElements(t *testing.T) {
	inTables(t, func(t *testing.T, ops *Ops[float32]) { elements(t, ops, 0x1p-23) },
		func(t *testing.T, ops *Ops[float64]) { elements(t, ops, 0x1p-52) })
}

const guard = 32

// same compares z between guards with want, and the guards with what was there.
func same[T Float](t *testing.T, what string, z, before, want []T, tolerance func(i int) float64) {
	t.Helper()
	for i := range z {
		w, allowed := before[i], 0.0
		if i >= guard && i < guard+len(want) {
			w, allowed = want[i-guard], tolerance(i-guard)
		}
		if d := math.Abs(float64(z[i]) - float64(w)); !(d <= allowed) &&
			!(math.IsNaN(float64(z[i])) && math.IsNaN(float64(w))) && z[i] != w {
			t.Fatalf("%s: element %d is %v, want %v", what, i-guard, z[i], w)
		}
	}
}

func elements[T Float](t *testing.T, ops *Ops[T], eps float64) {
	rng := rand.New(rand.NewPCG(2, 1))
	draw := func(n int) []T {
		x := room[T](n)
		for i := range x {
			x[i] = T(rng.NormFloat64())
			if rng.IntN(20) == 0 {
				x[i] = T(math.Inf(rng.IntN(2)*2 - 1))
			}
		}
		return x
	}
	exact := func(int) float64 { return 0 }
	reference := scalarOps[T]()
	for n := range 70 {
		x, y := draw(n), draw(n)
		for name, f := range map[string]func(o *Ops[T], z []T){
			"Plus":  func(o *Ops[T], z []T) { o.Plus(z, x, y) },
			"Minus": func(o *Ops[T], z []T) { o.Minus(z, x, y) },
			"Times": func(o *Ops[T], z []T) { o.Times(z, x, y) },
			"Over":  func(o *Ops[T], z []T) { o.Over(z, x, y) },
			"Gate":  func(o *Ops[T], z []T) { o.Gate(z, x, y) },
			"Leaky": func(o *Ops[T], z []T) { o.Leaky(z, x, y, 0.2) },
		} {
			before, want := draw(n+2*guard), make([]T, n)
			got := slices.Clone(before)
			f(ops, got[guard:guard+n])
			f(&reference, want)
			same(t, fmt.Sprintf("%s of %d", name, n), got, before, want, exact)
		}
		for _, least := range []bool{false, true} { // few different values, NaN and infinities among them
			few := []T{1, 2, T(math.NaN()), T(math.Inf(1)), T(math.Inf(-1))}
			draw := func(n int) []T {
				x := room[T](n)
				for i := range x {
					x[i] = few[rng.IntN(len(few))]
				}
				return x
			}
			x, before, won := draw(n), draw(n+2*guard), make([]int32, n+2*guard)
			for i := range won {
				won[i] = rng.Int32N(3) - 1
			}
			got, gotWon := slices.Clone(before), slices.Clone(won)
			want, wantWon := slices.Clone(before[guard:guard+n]), slices.Clone(won)
			ops.Win(got[guard:guard+n], x, gotWon[guard:guard+n], 0, least)
			reference.Win(want, x, wantWon[guard:guard+n], 0, least)
			same(t, fmt.Sprintf("Win of %d", n), got, before, want, exact)
			ops.Pick(got[guard:guard+n], x, won[guard:guard+n], 0)
			reference.Pick(want, x, won[guard:guard+n], 0)
			same(t, fmt.Sprintf("Pick of %d", n), got, before, want, exact)
			if !slices.Equal(gotWon, wantWon) {
				t.Fatalf("Win of %d: winners are %v, want %v", n, gotWon, wantWon)
			}
		}
		for groups := range 6 {
			x, c := draw(groups*n), draw(groups)
			before, want := draw(groups*n+2*guard), make([]T, groups*n)
			got := slices.Clone(before)
			ops.TimesEach(got[guard:guard+groups*n], x, c, n)
			reference.TimesEach(want, x, c, n)
			same(t, fmt.Sprintf("TimesEach of %d by %d", groups, n), got, before, want, exact)
		}
		for heads := 1; heads < 7; heads++ {
			width := heads * n
			p := Pairs[T]{X: draw(5*width + 9), Y: draw(4*width + 9), StrideX: width + 1, StrideY: width,
				IX: []int32{12, 10, 11, 13}, IY: []int32{0, 3, 1, 0}, BaseX: 10, Heads: heads, D: n}
			for _, s := range [][]T{p.X, p.Y} { // sums of infinities would depend on the order
				for i, v := range s {
					if math.IsInf(float64(v), 0) {
						s[i] = 1
					}
				}
			}
			size := len(p.IX) * heads
			before, want := draw(size+2*guard), make([]T, size)
			got := slices.Clone(before)
			p.Out = got[guard : guard+size]
			ops.DotPairs(&p)
			p.Out = want
			reference.DotPairs(&p)
			same(t, fmt.Sprintf("DotPairs of %d heads of %d", heads, n), got, before, want,
				func(int) float64 { return eps * float64(8*n+1) })
		}
	}
}

// TestExp compares with the exponential in double precision, rounded.
func TestExp(t *testing.T) {
	for _, table := range tables {
		if table.available() {
			t.Run(table.name+"/float32", func(t *testing.T) {
				exponentials(t, &table.f32, func(got, want float32) float64 {
					return math.Abs(float64(math.Float32bits(got)) - float64(math.Float32bits(want)))
				}, 89, -105)
			})
			t.Run(table.name+"/float64", func(t *testing.T) {
				exponentials(t, &table.f64, func(got, want float64) float64 {
					return math.Abs(float64(int64(math.Float64bits(got)) - int64(math.Float64bits(want))))
				}, 709, -746) // above 709.6 math.Exp gives up too early
			})
		}
	}
}

func exponentials[T Float](t *testing.T, ops *Ops[T], ulps func(got, want T) float64, top, bottom float64) {
	rng := rand.New(rand.NewPCG(4, 1))
	x := []T{0, T(math.Copysign(0, -1)), 1, -1, T(top), T(bottom), T(math.Inf(1)), T(math.Inf(-1)), T(math.NaN()), 1e30,
		-1e30, 1e-30, T(top) - 2, T(bottom) + 4, T(bottom) + 17}
	for range 100000 {
		x = append(x, T(bottom+rng.Float64()*(top-bottom)), T(rng.NormFloat64()))
	}
	y := make([]T, len(x))
	for n := range 40 { // every tail
		ops.Exp(y[:n], x[:n])
	}
	ops.Exp(y, x)
	worst := 0.0
	for i, v := range x {
		want := T(math.Exp(float64(v)))
		if math.IsNaN(float64(want)) {
			if !math.IsNaN(float64(y[i])) {
				t.Errorf("exp(%v) = %v", v, y[i])
			}
			continue
		}
		d := ulps(y[i], want)
		worst = max(worst, d)
		if d > 2 {
			t.Fatalf("exp(%v) = %v, want %v: %g units in the last place", v, y[i], want, d)
		}
	}
	t.Logf("at most %g units in the last place", worst)
}

// TestGatherSumHeads compares to the bit with GatherSum head by head.
func TestGatherSumHeads(t *testing.T) {
	inTables(t, gatherSumHeads[float32], gatherSumHeads[float64])
}

func gatherSumHeads[T Float](t *testing.T, ops *Ops[T]) {
	rng := rand.New(rand.NewPCG(5, 1))
	draw := normals[T](rng)
	for heads := 1; heads < 10; heads++ {
		for d := HeadLanes[T](); d <= 4*HeadLanes[T](); d += HeadLanes[T]() {
			for _, n := range []int{0, 1, 7} {
				width := heads * d
				before, c := draw(width+2*guard), draw(n*heads)
				g := Gather[T]{X: draw(9 * (width + 3)), Stride: width + 3, Base: 100, C: c, First: n == 7}
				for range n {
					g.Col = append(g.Col, 100+rng.Int32N(9))
				}
				got, want := slices.Clone(before), slices.Clone(before)
				g.Y = got[guard : guard+width]
				ops.GatherSumHeads(&g, heads)
				for h := range heads {
					one := g
					one.Y, one.X, one.C = want[guard+h*d:guard+(h+1)*d], g.X[h*d:], make([]T, n)
					for k := range one.C {
						one.C[k] = c[k*heads+h]
					}
					ops.GatherSum(&one)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%d heads of %d, %d rows: not the bits of GatherSum", heads, d, n)
				}
			}
		}
	}
}

// TestGatherDotHeads compares to the bit with DotPairs, every number of rows that a tile may
// be left with.
func TestGatherDotHeads(t *testing.T) {
	inTables(t, gatherDotHeads[float32], gatherDotHeads[float64])
}

func gatherDotHeads[T Float](t *testing.T, ops *Ops[T]) {
	rng := rand.New(rand.NewPCG(6, 1))
	draw := normals[T](rng)
	for heads := 1; heads < 10; heads++ {
		for d := 1; d <= 4*HeadLanes[T](); d += 1 + d%3 {
			for n := range 10 {
				width := heads * d
				before := draw(n*heads + 2*guard)
				got, want := slices.Clone(before), slices.Clone(before)
				g := Gather[T]{Y: draw(width), X: draw(9 * (width + 3)), Stride: width + 3, Base: 100,
					Out: got[guard : guard+n*heads]}
				p := Pairs[T]{X: g.X, Y: g.Y, StrideX: g.Stride, BaseX: 100, IY: make([]int32, n), Heads: heads, D: d,
					Out: want[guard : guard+n*heads]}
				for range n {
					g.Col = append(g.Col, 100+rng.Int32N(9))
				}
				p.IX = g.Col
				ops.GatherDotHeads(&g, heads)
				ops.DotPairs(&p)
				if !slices.Equal(got, want) {
					t.Fatalf("%d heads of %d, %d rows: not the bits of DotPairs", heads, d, n)
				}
				w, y := g.Y, draw(width+2*guard)
				g.C, got = draw(n*heads), slices.Clone(before)
				sums, both := slices.Clone(y), slices.Clone(y)
				for h := range heads {
					one := Gather[T]{Y: sums[guard+h*d : guard+(h+1)*d], X: g.X[h*d:], Stride: g.Stride, Base: g.Base, Col: g.Col}
					for k := range n {
						one.C = append(one.C, g.C[k*heads+h])
					}
					if n > 0 {
						ops.GatherSum(&one)
					}
				}
				g.Y, g.Out = both[guard:guard+width], got[guard:guard+n*heads]
				ops.DotSums(&g, w, heads)
				if !slices.Equal(got, want) || !slices.Equal(both, sums) {
					t.Fatalf("DotSums of %d heads of %d, %d rows: not the bits of GatherDotHeads and GatherSum", heads, d, n)
				}
			}
		}
	}
}

// TestMoves compares rows that are moved and added with what plain Go makes of them.
func TestMoves(t *testing.T) {
	inTables(t, moves[float32], moves[float64])
}

func moves[T Float](t *testing.T, ops *Ops[T]) {
	rng := rand.New(rand.NewPCG(7, 1))
	draw := normals[T](rng)
	reference := scalarOps[T]()
	for w := range 20 {
		for _, n := range []int{0, 1, 5} {
			index := make([]int32, n)
			for k := range index {
				index[k] = rng.Int32N(3)
			}
			x, before := draw(3*(w+2)), draw(n*w+2*guard)
			got, want := slices.Clone(before), slices.Clone(before)
			shifted := make([]int32, n)
			for k := range index {
				shifted[k] = index[k] + 7
			}
			ops.Rows(got[guard:guard+n*w], x, w+2, 7, shifted, w)
			reference.Rows(want[guard:guard+n*w], x, w+2, 7, shifted, w)
			if !slices.Equal(got, want) {
				t.Fatalf("Rows of %d: %v, want %v", w, got, want)
			}
			y := draw(3 * w)
			got, want = slices.Clone(y), slices.Clone(y)
			ops.ScatterAdd(got, before[guard:], index, w)
			reference.ScatterAdd(want, before[guard:], index, w)
			if !slices.Equal(got, want) {
				t.Fatalf("ScatterAdd of %d: %v, want %v", w, got, want)
			}
		}
	}
}

// TestLeaky compares the loops of attention with a nonlinearity with plain Go.
func TestLeaky(t *testing.T) {
	inTables(t, func(t *testing.T, ops *Ops[float32]) { leakyLoops(t, ops, 0x1p-23) },
		func(t *testing.T, ops *Ops[float64]) { leakyLoops(t, ops, 0x1p-52) })
}

func leakyLoops[T Float](t *testing.T, ops *Ops[T], eps float64) {
	rng := rand.New(rand.NewPCG(8, 1))
	draw := normals[T](rng)
	reference := scalarOps[T]()
	for heads := 1; heads < 10; heads++ {
		for d := HeadLanes[T](); d <= 4*HeadLanes[T](); d += HeadLanes[T]() {
			for n := range 10 {
				width := heads * d
				before, out := draw(width+2*guard), draw(n*heads+2*guard)
				w, a := draw(width), draw(width)
				g := Gather[T]{X: draw(9 * (width + 3)), Stride: width + 3, Base: 100, C: draw(n * heads)}
				for range n {
					g.Col = append(g.Col, 100+rng.Int32N(9))
				}
				what := fmt.Sprintf("%d heads of %d, %d rows", heads, d, n)
				got, want := slices.Clone(out), slices.Clone(out[guard:guard+n*heads])
				g.Out = got[guard : guard+n*heads]
				ops.LeakyDots(&g, w, a, heads, 0.2)
				g.Out = want
				reference.LeakyDots(&g, w, a, heads, 0.2)
				same(t, "LeakyDots of "+what, got, out, want, func(int) float64 { return eps * float64(8*d+1) })
				slopes, values := slices.Clone(before), slices.Clone(before)
				g.Y = slopes[guard : guard+width]
				ops.LeakyBoth(&g, w, a, values[guard:guard+width], heads, 0.2)
				for _, a := range [][]T{nil, a} {
					got, want := slices.Clone(before), slices.Clone(before[guard:guard+width])
					g.Y = got[guard : guard+width]
					ops.LeakySums(&g, w, a, heads, 0.2)
					g.Y = want
					reference.LeakySums(&g, w, a, heads, 0.2)
					same(t, "LeakySums of "+what, got, before, want, func(int) float64 { return 0 })
					if a == nil && !slices.Equal(got, values) || a != nil && !slices.Equal(got, slopes) {
						t.Fatalf("LeakyBoth of %s: not the bits of LeakySums", what)
					}
				}
			}
		}
	}
}
