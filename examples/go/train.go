package main

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"sar/core/session"
)

// dropout zeroes entries with probability p and scales the others by 1/(1-p).
func dropout(m *mat.Dense, p float64, rng *rand.Rand) *mat.Dense {
	var dropped mat.Dense
	dropped.Apply(func(_, _ int, v float64) float64 {
		if v == 0 || rng.Float64() < p { // most entries of the features are 0 anyway
			return 0
		}
		return v / (1 - p)
	}, m)
	return &dropped
}

// elu is x above 0, and exp(x)-1 below.
func elu(m *mat.Dense) *mat.Dense {
	var out mat.Dense
	out.Apply(func(_, _ int, v float64) float64 { return max(v, math.Expm1(min(v, 0))) }, m)
	return &out
}

// throughELU makes of the gradient of dropped = dropout(elu(h), p) that of h, in place.
func throughELU(grad, dropped *mat.Dense, p float64) {
	grad.Apply(func(i, j int, v float64) float64 {
		d := dropped.At(i, j)
		if d == 0 {
			return 0
		}
		return v / (1 - p) * min(1, 1+d*(1-p)) // elu has the slope elu(h)+1 below 0
	}, grad)
}

// crossEntropy sums -log softmax(logits)[label] over the rows under the mask,
// divided by count. Rows of the gradient that are not under the mask are 0.
func crossEntropy(logits *mat.Dense, labels []int64, mask []byte, count float64) (loss float64, grad *mat.Dense) {
	n, classes := logits.Dims()
	grad = mat.NewDense(n, classes, nil)
	for i := range n {
		if mask[i] == 0 {
			continue
		}
		row := logits.RawRowView(i)
		most := mat.Max(logits.RowView(i))
		var total float64
		for _, v := range row {
			total += math.Exp(v - most)
		}
		loss -= (row[labels[i]] - most - math.Log(total)) / count
		for j, v := range row {
			grad.Set(i, j, math.Exp(v-most)/total/count)
		}
		grad.Set(i, int(labels[i]), grad.At(i, int(labels[i]))-1/count)
	}
	return loss, grad
}

// adam is Adam with weight decay, on the gradients of all workers.
type adam struct {
	o            options
	params       []*mat.Dense
	grads        []*mat.Dense
	first, other [][]float64 // moments
	steps        int
}

func newAdam(o options, layers ...*layer) *adam {
	a := &adam{o: o}
	for _, l := range layers {
		a.params, a.grads = append(a.params, l.params...), append(a.grads, l.grads...)
	}
	for _, p := range a.params {
		n := len(p.RawMatrix().Data)
		a.first, a.other = append(a.first, make([]float64, n)), append(a.other, make([]float64, n))
	}
	return a
}

// step adds up gradients and loss over the workers and changes the parameters,
// alike on every worker. Collective.
func (a *adam) step(ctx context.Context, s *session.Session, loss *float64) error {
	flat := []float64{*loss} // one message for all
	for _, g := range a.grads {
		flat = append(flat, g.RawMatrix().Data...)
	}
	if err := session.AllReduce(ctx, s, session.Reduce, flat, session.Sum); err != nil {
		return err
	}
	*loss, flat = flat[0], flat[1:]
	a.steps++
	const b1, b2, eps = 0.9, 0.999, 1e-8
	c1, c2 := 1-math.Pow(b1, float64(a.steps)), 1-math.Pow(b2, float64(a.steps))
	for k, p := range a.params {
		values := p.RawMatrix().Data
		for i := range values {
			g := flat[i] + a.o.decay*values[i]
			a.first[k][i] = b1*a.first[k][i] + (1-b1)*g
			a.other[k][i] = b2*a.other[k][i] + (1-b2)*g*g
			values[i] -= a.o.rate * (a.first[k][i] / c1) / (math.Sqrt(a.other[k][i]/c2) + eps)
		}
		flat = flat[len(values):]
	}
	return nil
}
