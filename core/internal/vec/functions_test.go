package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestFunctions holds functions of one number against those of package math in double precision,
// rounded.
func TestFunctions(t *testing.T) {
	for _, table := range tables {
		if table.available() {
			t.Run(table.name+"/float32", func(t *testing.T) {
				functions(t, &table.f32, func(got, want float32) float64 {
					return math.Abs(float64(ordered(int64(int32(math.Float32bits(got))),
						31) - ordered(int64(int32(math.Float32bits(want))), 31)))
				}, 0x1p-126)
			})
			t.Run(table.name+"/float64", func(t *testing.T) {
				functions(t, &table.f64, func(got, want float64) float64 {
					return math.Abs(float64(ordered(int64(math.Float64bits(got)), 63) - ordered(int64(math.Float64bits(want)), 63)))
				}, 0x1p-1022)
			})
		}
	}
}

// ordered makes neighbouring floats neighbouring integers, across 0 as well.
func ordered(bits int64, sign int) int64 {
	if bits < 0 {
		return -(bits & (1<<sign - 1))
	}
	return bits
}

func functions[T Float](t *testing.T, ops *Ops[T], ulps func(got, want T) float64, normal float64) {
	rng := rand.New(rand.NewPCG(9, 1))
	x := []T{0, T(math.Copysign(0, -1)), 1, -1, 0.625, -0.625, -0.5, 20, T(math.Nextafter32(20, 21)), T(math.Inf(1)),
		T(math.Inf(-1)), T(math.NaN()), 1e30, -1e30,
		1e-30, -1e-30, T(normal), T(normal / 8), -T(normal / 8), 100, -100, 1000, -1000}
	for range 60000 {
		x = append(x, T(rng.NormFloat64()), T(20*rng.NormFloat64()), T(math.Exp(30*rng.NormFloat64())))
	}
	reference := scalarOps[T]()
	for name, f := range map[string]func(o *Ops[T], z, x []T){
		"Sigmoid":  func(o *Ops[T], z, x []T) { o.Sigmoid(z, x) },
		"Tanh":     func(o *Ops[T], z, x []T) { o.Tanh(z, x) },
		"Softplus": func(o *Ops[T], z, x []T) { o.Softplus(z, x) },
		"Log":      func(o *Ops[T], z, x []T) { o.Log(z, x) },
		"ELU":      func(o *Ops[T], z, x []T) { o.ELU(z, x, 1) },
	} {
		got, want := make([]T, len(x)), make([]T, len(x))
		for n := range 40 { // every tail, and nothing beyond it
			got[n] = 7
			few := room[T](n)
			copy(few, x)
			f(ops, got[:n], few)
			if got[n] != 7 {
				t.Fatalf("%s of %d numbers writes beyond", name, n)
			}
		}
		f(ops, got, x)
		f(&reference, want, x)
		worst := 0.0
		for i, v := range x {
			if math.IsNaN(float64(want[i])) || math.IsNaN(float64(got[i])) {
				if !math.IsNaN(float64(want[i])) || !math.IsNaN(float64(got[i])) {
					t.Fatalf("%s(%v) = %v, want %v", name, v, got[i], want[i])
				}
				continue
			}
			if math.Abs(float64(want[i])) < normal && math.Abs(float64(got[i])-float64(want[i])) < normal {
				continue // below the normal range
			}
			d := ulps(got[i], want[i])
			worst = max(worst, d)
			if d > 4 {
				t.Fatalf("%s(%v) = %v, want %v: %g units in the last place", name, v, got[i], want[i], d)
			}
		}
		t.Logf("%s: at most %g units in the last place", name, worst)
	}
}
