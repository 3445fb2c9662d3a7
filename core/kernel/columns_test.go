package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/internal/vec"
)

func TestColumns(t *testing.T) {
	t.Run("float32", func(t *testing.T) { columnKernels[float32](t, 0x1p-23) })
	t.Run("float64", func(t *testing.T) { columnKernels[float64](t, 0x1p-52) })
}

// columnKernels compares with sums in double precision, and the bits of 1 and 3 threads.
func columnKernels[T vec.Float](t *testing.T, eps float64) {
	rng := rand.New(rand.NewPCG(3, 1))
	for _, shape := range [][2]int{{0, 3}, {1, 1}, {1, 47}, {5, 256}, {129, 1}, {700, 47}, {5000, 33}, {40000, 8}} {
		n, width := shape[0], shape[1]
		x, g := make([]T, n*width), make([]T, n*width)
		mean, deviation := make([]float64, width), make([]float64, width)
		for j := range width {
			mean[j], deviation[j] = 100*rng.NormFloat64(), math.Exp(rng.NormFloat64())
		}
		for i := range x {
			x[i], g[i] = T(mean[i%width]+deviation[i%width]*rng.NormFloat64()), T(rng.NormFloat64())
		}
		s := Standard[T]{About: make([]T, width), Scale: make([]T, width), Shift: make([]T, width), Gate: n%2 == 0}
		if n%10 == 0 {
			s.Drop = Dropout{Share: 0.25, Seed: rng.Uint64(), KeyBase: 7}
		}
		times, plus := make([]T, width), make([]T, width)
		for j := range width {
			s.About[j], s.Scale[j], s.Shift[j] = T(mean[j]), T(rng.NormFloat64()), T(rng.NormFloat64())
			times[j], plus[j] = T(rng.NormFloat64()), T(rng.NormFloat64())
		}
		kept := make([]T, len(x))
		for i := range kept {
			kept[i] = 1
		}
		if s.Drop.Share > 0 {
			Drop(NewPool(1), Numbers[T]{Data: kept}, Numbers[T]{Data: kept}, width, s.Drop)
		}
		var bits [][]float64
		for _, threads := range []int{1, 3} {
			p := NewPool(threads)
			got := make([]float64, 4*width)
			z, grad := Numbers[T]{Data: make([]T, len(x))}, Numbers[T]{Data: slices.Clone(g)}
			back := allOfColumns(p, got, z, grad, Numbers[T]{Data: x}, Gradient[T]{s, times, plus})
			for j := range width {
				columns[T]{n, width, eps, got, x, g, z.Data, back.Data, grad.Data, kept, Gradient[T]{s, times, plus}}.check(t, j)
			}
			for _, v := range slices.Concat(z.Data, back.Data, grad.Data) {
				got = append(got, float64(v))
			}
			bits = append(bits, got)
		}
		if !slices.Equal(bits[0], bits[1]) {
			t.Errorf("%v: 1 and 3 threads differ", shape)
		}
	}
}

// allOfColumns computes sums [4, width], rows of x into z, and the gradient of x into grad, which has that of z. It
// returns that of what is gated and dropped, stored as z is.
func allOfColumns[T Float](p *Pool, sums []float64, z, grad, x Numbers[T], s Gradient[T]) (back Numbers[T]) {
	width := len(s.About)
	if z.Half != nil {
		back.Half = make([]BFloat16, len(z.Half))
	} else {
		back.Data = make([]T, len(z.Data))
	}
	ColumnMoments(p, x, width, sums[:width], sums[width:2*width])
	NormalizeSums(p, grad, x, s.Standard, sums[2*width:3*width], sums[3*width:])
	Normalize(p, z, x, s.Standard)
	NormalizeBack(p, back, grad, x, s.Standard)
	NormalizeGrad(p, grad, grad, x, s)
	return back
}

// TestHalfColumns holds what is computed of numbers in bfloat16, and rounded to bfloat16, against the same of numbers
// in T, rounded, to the bit.
func TestHalfColumns(t *testing.T) {
	everyPath(t, func(t *testing.T) {
		t.Run("float32", halfColumns[float32])
		t.Run("float64", halfColumns[float64])
	})
}

func halfColumns[T vec.Float](t *testing.T) {
	rng, p := rand.New(rand.NewPCG(3, 9)), NewPool(2)
	// as is numbers in bfloat16, or the same ones in T.
	as := func(half bool, x []BFloat16) Numbers[T] {
		if half {
			return Numbers[T]{Half: slices.Clone(x)}
		}
		z := make([]T, len(x))
		Widen(p, z, x)
		return Numbers[T]{Data: z}
	}
	narrow := func(x Numbers[T]) []BFloat16 {
		if x.Half == nil {
			x.Half = make([]BFloat16, len(x.Data))
			Narrow(p, x.Half, x.Data)
		}
		return x.Half
	}
	for _, shape := range [][2]int{{0, 3}, {1, 1}, {5, 256}, {129, 1}, {700, 47}, {3, 5000}, {5000, 33}} {
		for _, share := range []float64{0, 0.25, 1} {
			n, width := shape[0], shape[1]
			columns := func() []T { return randoms[T](rng, width) }
			s := Gradient[T]{Standard[T]{columns(), columns(), columns(), n%2 == 0, Dropout{Share: share}}, columns(), columns()}
			x, g := narrow(Numbers[T]{Data: randoms[T](rng, n*width)}), narrow(Numbers[T]{Data: randoms[T](rng, n*width)})
			want, z, grad := make([]float64, 4*width), as(false, x), as(false, g)
			back := allOfColumns(p, want, z, grad, as(false, x), s)
			for which := 1; which < 8; which++ {
				got, into, of := make([]float64, 4*width), as(which&1 > 0, x), as(which&2 > 0, g)
				ofRows := allOfColumns(p, got, into, of, as(which&4 > 0, x), s)
				if !slices.Equal(got, want) {
					t.Fatalf("%v, form %d: sums are %v, want %v", shape, which, got, want)
				}
				if !slices.Equal(narrow(into), narrow(z)) || !slices.Equal(narrow(of), narrow(grad)) ||
					!slices.Equal(narrow(ofRows), narrow(back)) {
					t.Fatalf("%v, form %d: rows or gradients are not those of T, rounded", shape, which)
				}
			}
			same, dropped, wide := as(true, x), as(true, x), as(false, x)
			Normalize(p, same, same, s.Standard)
			Drop(p, dropped, dropped, width, s.Drop)
			Drop(p, wide, wide, width, s.Drop)
			if !slices.Equal(same.Half, narrow(z)) || !slices.Equal(dropped.Half, narrow(wide)) {
				t.Fatalf("%v: in place, rows are not those of T, rounded", shape)
			}
		}
	}
}

// columns is what went in and came out.
type columns[T Float] struct {
	n, width            int
	eps                 float64
	got                 []float64
	x, g, z, back, grad []T
	kept                []T // what dropout multiplies with
	Gradient[T]
}

func (c columns[T]) check(t *testing.T, j int) {
	t.Helper()
	n, width, eps, got, x, g, z, grad, s, times, plus := c.n, c.width, c.eps, c.got, c.x, c.g, c.z, c.grad, c.Standard,
		c.Times, c.Plus
	var sum, squares, plain, along, size float64
	for i := range n {
		sum += float64(x[i*width+j])
	}
	mean := sum / max(1, float64(n))
	for i := range n {
		at := i*width + j
		centred := x[at] - s.About[j]
		v, b := T(centred*s.Scale[j])+s.Shift[j], g[at]*c.kept[at]
		if s.Gate && v <= 0 {
			v, b = 0, 0
		}
		v *= c.kept[at]
		if want := T(b*s.Scale[j]) + T(centred*times[j]) + plus[j]; z[at] != v || c.back[at] != b || grad[at] != want {
			t.Fatalf("[%d, %d]: %v and gradients %v %v, want %v, %v and %v", i, j, z[at], c.back[at], grad[at], v, b, want)
		}
		d := float64(x[at]) - mean
		squares += d * d
		plain += float64(b)
		along += float64(b) * float64(centred)
		size += math.Abs(float64(b) * float64(centred))
	}
	double := 0x1p-52 / eps // the sums above are rounded too
	near := func(what string, have, want, scale float64) {
		if math.Abs(have-want) > 40*eps*scale+0x1p-55*float64(n)*math.Abs(want) { // the sum here is rounded too
			t.Fatalf("%d rows, %s of column %d: %v, want %v", n, what, j, have, want)
		}
	}
	near("mean", got[j], mean, math.Sqrt(squares/max(1, float64(n)))+double*math.Abs(mean))
	near("squares", got[width+j], squares, squares+double*mean*mean)
	near("sum", got[2*width+j], plain, size+float64(n))
	near("products", got[3*width+j], along, size)
}

func BenchmarkColumns(b *testing.B) {
	const n, width = 60000, 256
	p := NewPool(1)
	x, z := make([]float32, n*width), make([]float32, n*width)
	for i := range x {
		x[i] = float32(i % 1000)
	}
	half, into := make([]BFloat16, n*width), make([]BFloat16, n*width)
	Narrow(p, half, x)
	one := make([]float32, width)
	for j := range one {
		one[j] = 1
	}
	s := Standard[float32]{About: one, Scale: one, Shift: one, Gate: true}
	drop := s
	drop.Drop = Dropout{Share: 0.5}
	sums := make([]float64, 2*width)
	for _, in := range []struct {
		name string
		x, z Numbers[float32]
	}{{"float32", Numbers[float32]{Data: x}, Numbers[float32]{Data: z}},
		{"bfloat16", Numbers[float32]{Half: half}, Numbers[float32]{Half: into}}} {
		for _, of := range []struct {
			name string
			f    func()
		}{
			{"moments", func() { ColumnMoments(p, in.x, width, sums[:width], sums[width:]) }},
			{"normalize", func() { Normalize(p, in.z, in.x, s) }},
			{"sums", func() { NormalizeSums(p, in.z, in.x, s, sums[:width], sums[width:]) }},
			{"gradient", func() { NormalizeGrad(p, in.z, in.z, in.x, Gradient[float32]{s, one, one}) }},
			{"normalize dropped", func() { Normalize(p, in.z, in.x, drop) }},
			{"sums dropped", func() { NormalizeSums(p, in.z, in.x, drop, sums[:width], sums[width:]) }},
			{"gradient dropped", func() { NormalizeGrad(p, in.z, in.z, in.x, Gradient[float32]{drop, one, one}) }},
			{"drop", func() { Drop(p, in.z, in.x, width, drop.Drop) }},
		} {
			b.Run(of.name+"/"+in.name, func(b *testing.B) {
				for b.Loop() {
					of.f()
				}
			})
		}
	}
}
