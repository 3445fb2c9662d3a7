package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestColumns holds the loops over columns against the scalar ones, to the bit.
func TestColumns(t *testing.T) {
	for _, name := range Available() {
		table, reference := tables[slices.IndexFunc(tables, func(x *table) bool { return x.name == name })], tables[0]
		t.Run(name+"/float32", func(t *testing.T) { columnLoops(t, &table.columns32, &reference.columns32) })
		t.Run(name+"/float64", func(t *testing.T) { columnLoops(t, &table.columns64, &reference.columns64) })
	}
}

func columnLoops[T Float](t *testing.T, ops, reference *ColumnOps[T]) {
	rng := rand.New(rand.NewPCG(7, 1))
	draw := func(n int) []T {
		x := room[T](n)
		for i := range x {
			if x[i] = T(rng.NormFloat64()); rng.IntN(30) == 0 {
				x[i] = []T{0, T(math.NaN()), T(math.Inf(1)), T(math.Inf(-1))}[rng.IntN(4)]
			}
		}
		return x
	}
	exact := func(int) float64 { return 0 }
	for d := range 70 {
		for rows := range 4 {
			given := Columns[T]{
				X: draw(rows * d), G: draw(rows * d), About: draw(d), Scale: draw(d), Shift: draw(d), B: draw(d), C: draw(d),
				Gate: (d+rows)%2 == 0,
			}
			for name, f := range map[string]func(o *ColumnOps[T]) func(*Columns[T]){
				"Sums":       func(o *ColumnOps[T]) func(*Columns[T]) { return o.Sums },
				"Deviations": func(o *ColumnOps[T]) func(*Columns[T]) { return o.Deviations },
				"Affine":     func(o *ColumnOps[T]) func(*Columns[T]) { return o.Affine },
				"Products":   func(o *ColumnOps[T]) func(*Columns[T]) { return o.Products },
				"Gradient":   func(o *ColumnOps[T]) func(*Columns[T]) { return o.Gradient },
			} {
				before := draw(2*d + rows*d + 2*guard)
				got, want := slices.Clone(before), slices.Clone(before)
				for _, side := range []struct {
					ops *ColumnOps[T]
					at  []T
				}{{ops, got[guard:]}, {reference, want[guard:]}} {
					c := given
					c.Plain, c.Along, c.Z = side.at[:d:d], side.at[d:2*d:2*d], side.at[2*d:2*d+rows*d]
					f(side.ops)(&c)
				}
				same(t, fmt.Sprintf("%s of %d rows of %d", name, rows, d), got, before, want[guard:len(want)-guard], exact)
			}
			drop := Drop[T]{A: rng.Uint32(), B: rng.Uint32(), Below: rng.Int32(), Scale: draw(1)[0]}
			before := draw(rows*d + 2*guard)
			got, want := slices.Clone(before), make([]T, rows*d)
			ops.Drop(got[guard:], given.X, &drop)
			dropScalar(want, given.X, &drop)
			same(t, fmt.Sprintf("Drop of %d", rows*d), got, before, want, exact)
			in := slices.Clone(given.G) // in place of the gradient
			c, apart := given, given
			c.G, c.Z = in, in
			apart.Z = make([]T, rows*d)
			ops.Gradient(&c)
			reference.Gradient(&apart)
			same(t, "Gradient in place", slices.Concat(make([]T, guard), in, make([]T, guard)), make([]T, len(in)+2*guard),
				apart.Z, exact)
		}
	}
}
