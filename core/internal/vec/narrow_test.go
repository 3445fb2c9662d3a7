package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// edges are numbers at which rounding may go wrong: zero, denormal ones, those next to the largest, infinite ones,
// NaNs whose upper half is that of an infinite one, or all ones.
var edges = []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0x18000, 0x7fffff, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff, 0x7f800000,
	0x7f800001, 0x7f80ffff, 0x7fc00000, 0x7fffffff}

// TestNarrow holds rounding against the nearest of the two neighbours, by distance: numbers of every exponent, those
// in the middle, zeros, denormal and infinite ones and NaN, and that nothing beside is written.
func TestNarrow(t *testing.T) {
	inTables(t, narrow[float32], narrow[float64])
}

func narrow[T Float](t *testing.T, ops *Ops[T]) {
	rng := rand.New(rand.NewPCG(4, 4))
	for n := range 40 {
		for range 50 {
			x := room[T](n)
			for i := range x {
				bits := rng.Uint32()
				if rng.IntN(4) == 0 {
					bits = bits&^0xffff | 0x8000 // between two
				}
				if rng.IntN(4) == 0 {
					bits = edges[rng.IntN(len(edges))] | bits&(1<<31)
				}
				x[i] = T(math.Float32frombits(bits))
			}
			z := room[BFloat16](n + 2)
			z[n], z[n+1] = 7, 7
			ops.Narrow(z[:n], x)
			if !slices.Equal(z[n:], []BFloat16{7, 7}) {
				t.Fatal("written behind the end")
			}
			for i, v := range x {
				if want := nearest(float64(v)); z[i] != want {
					t.Fatalf("%v of %d is %#x, want %#x", v, n, z[i], want)
				}
			}
		}
	}
}

// nearest looks at the numbers of bfloat16 that are not beyond v, and next to it.
func nearest(v float64) BFloat16 {
	if math.IsNaN(v) {
		return 0x7fc0
	}
	down := BFloat16(math.Float32bits(float32(v)) >> 16)
	up := down + 1
	a, b := math.Abs(v-wide[float64](down)), math.Abs(wide[float64](up)-v)
	if up&0x7fff == 0x7f80 { // infinite, at the distance of the number that would come next
		b = math.Abs(math.Copysign(math.Ldexp(1, 128), v) - v)
	}
	if math.IsInf(v, 0) || a < b || a == b && down&1 == 0 {
		return down
	}
	return up
}
