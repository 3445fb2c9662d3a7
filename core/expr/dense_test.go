package expr

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestAttentionIsDense holds dot-product attention and its gradients against
// gonum's dense matrices. With u and v [n, d], and how often j -> i is an edge in
// edges[i, j]:
//
//	p   = edges * exp(v uᵀ), rows divided by their sums
//	out = p u
//	dl  = p * (g uᵀ - the sum of p * g uᵀ over each row)
//	du  = pᵀ g + dlᵀ v, dv = dl u
func TestAttentionIsDense(t *testing.T) {
	const n, d, count = 70, 5, 900
	edges := mat.NewDense(n, n, nil)
	rel := relationOf(t, n, count, func(rng *rand.Rand, _ int) (src, dst int64) {
		src, dst = int64(rng.IntN(n)), int64(rng.IntN(n-3)) // three nodes have no in-edges
		edges.Set(int(dst), int(src), edges.At(int(dst), int(src))+1)
		return src, dst
	})
	r := newRun(t, rel, `{"operands":[{"side":"u","shape":[1,5]},{"side":"v","shape":[1,5]}],
		"code":[{"op":"dot","a":0,"b":1},{"op":"softmax","a":2},{"op":"mul","a":0,"b":3}],"result":4,"reduce":"sum"}`)
	forward(r)
	if err := backwardWhole(r); err != nil {
		t.Fatal(err)
	}

	u, v, g := wide(r.Operands[0], d), wide(r.Operands[1], d), wide(r.Grad, d)
	var logits, p, slope, gu, want, du, dv, part mat.Dense
	logits.Mul(v, u.T())
	p.Apply(func(i, j int, l float64) float64 { return edges.At(i, j) * math.Exp(l) }, &logits)
	gu.Mul(g, u.T())
	slope.CloneFrom(&gu)
	for i := range n {
		row := p.RawRowView(i)
		if s := floats.Sum(row); s > 0 {
			floats.Scale(1/s, row)
		}
		mean := floats.Dot(row, gu.RawRowView(i))
		floats.AddConst(-mean, slope.RawRowView(i))
	}
	slope.MulElem(&slope, &p)
	want.Mul(&p, u)
	du.Mul(p.T(), g)
	part.Mul(slope.T(), v)
	du.Add(&du, &part)
	dv.Mul(&slope, u)
	for _, c := range []struct {
		name string
		got  []float32
		want *mat.Dense
	}{{"the result", r.Out, &want}, {"the gradient of u", r.Grads[0], &du}, {"the gradient of v", r.Grads[1], &dv}} {
		if !mat.EqualApprox(wide(c.got, d), c.want, 1e-5) {
			t.Errorf("%s is not the dense one", c.name)
		}
	}
}

// wide is a matrix of rows of width d in double precision.
func wide(x []float32, d int) *mat.Dense {
	m := mat.NewDense(len(x)/d, d, nil)
	m.Apply(func(i, j int, _ float64) float64 { return float64(x[i*d+j]) }, m)
	return m
}
