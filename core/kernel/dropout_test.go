package kernel

import (
	"cmp"
	"math"
	"slices"
	"testing"
)

// TestDropout holds the statistics of what is drawn against those of independent draws, within 6 standard deviations:
// of every row and column, and of pairs of elements that lie near each other or have near keys or seeds.
func TestDropout(t *testing.T) {
	const n, width = 3000, 256
	p := NewPool(2)
	drawn := func(d Dropout) []float64 {
		z := make([]float32, n*width)
		for i := range z {
			z[i] = 1
		}
		Drop(p, Numbers[float32]{Data: z}, Numbers[float32]{Data: z}, width, d)
		off := make([]float64, len(z)) // from the mean, in standard deviations
		for i, v := range z {
			off[i] = (float64(v)*(1-d.Share) - (1 - d.Share)) / math.Sqrt(d.Share*(1-d.Share))
		}
		return off
	}
	near := func(what string, sum float64, count int) {
		t.Helper()
		if math.Abs(sum) > 6*math.Sqrt(float64(count)) {
			t.Errorf("%s: %v standard deviations off", what, sum/math.Sqrt(float64(count)))
		}
	}
	for _, share := range []float64{0.1, 0.5, 0.8} {
		d := Dropout{Share: share, Seed: 5, KeyBase: 1 << 40}
		one := drawn(d)
		rows, columns := make([]float64, n), make([]float64, width)
		for i, v := range one {
			rows[i/width] += v
			columns[i%width] += v
		}
		for _, sum := range rows {
			near("row", sum, width)
		}
		for _, sum := range columns {
			near("column", sum, n)
		}
		layer, epoch, other := d, d, d
		layer.Seed, epoch.Seed, other.KeyBase = 6, 1<<32+5, 2<<40
		for name, with := range map[string][]float64{
			"neighbouring column": one[1:], "second column": one[2:], "eighth column": one[8:],
			"neighbouring row": one[width:], "diagonal": one[width+1:],
			"another seed": drawn(layer), "a seed of other high bits": drawn(epoch), "another worker": drawn(other),
		} {
			sum := 0.0
			for i, v := range with {
				sum += v * one[i]
			}
			near(name, sum, len(with))
		}
	}
	keys := make([]int64, n)
	for i := range keys {
		keys[i] = int64(n - 1 - i)
	}
	straight, turned := drawn(Dropout{Share: 0.3, Seed: 9}), drawn(Dropout{Share: 0.3, Seed: 9, Keys: keys})
	for i := range n {
		if j := n - 1 - i; !slices.Equal(straight[i*width:(i+1)*width], turned[j*width:(j+1)*width]) {
			t.Fatalf("the row of key %d is not the same elsewhere", i)
		}
	}
}

// TestDropoutOfAllAndOfNothing also has what is not finite: what is dropped is multiplied by 0.
func TestDropoutOfAllAndOfNothing(t *testing.T) {
	x := []float64{1, -2, math.Pi, math.Inf(1), math.NaN(), math.Inf(-1)}
	z := make([]float64, len(x))
	for share, want := range map[float64][]float64{0: x, 1: {0, 0, 0, math.NaN(), math.NaN(), math.NaN()}} {
		Drop(NewPool(1), Numbers[float64]{Data: z}, Numbers[float64]{Data: x}, 2, Dropout{Share: share})
		if slices.CompareFunc(z, want, cmp.Compare[float64]) != 0 {
			t.Errorf("share %v: %v, want %v", share, z, want)
		}
	}
}
