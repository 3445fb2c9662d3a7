package main

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"sar/core/session"
)

// conv is one graph convolution:
//
//	out = D_in^-1/2 A D_out^-1/2 (x W) + b
//
// with x [nodes of this worker, in] and out [nodes of this worker, width].
type conv struct {
	graph   *session.Graph
	fromDeg []float64 // D_out^-1/2 of this worker's nodes
	toDeg   []float64 // D_in^-1/2

	weight, bias         *mat.Dense // [in, width], [1, width]
	gradWeight, gradBias *mat.Dense

	x *mat.Dense // what backward needs of forward
}

// newConv draws weights as Glorot and Bengio (2010) do.
func newConv(g *session.Graph, in, width int, rng *rand.Rand) (*conv, error) {
	l := &conv{
		graph: g, weight: mat.NewDense(in, width, nil), bias: mat.NewDense(1, width, nil),
		gradWeight: mat.NewDense(in, width, nil), gradBias: mat.NewDense(1, width, nil),
	}
	limit := math.Sqrt(6 / float64(in+width))
	l.weight.Apply(func(_, _ int, _ float64) float64 { return limit * (2*rng.Float64() - 1) }, l.weight)
	var err error
	if l.fromDeg, err = inverseRoots(g, true); err != nil {
		return nil, err
	}
	l.toDeg, err = inverseRoots(g, false)
	return l, err
}

// inverseRoots returns 1/sqrt(max(degree, 1)) of this worker's nodes.
func inverseRoots(g *session.Graph, outgoing bool) ([]float64, error) {
	info, err := g.Info(0)
	if err != nil {
		return nil, err
	}
	degrees := make([]int64, info.NumDst) // sources and destinations are the same nodes
	if err := g.Degrees(0, outgoing, degrees); err != nil {
		return nil, err
	}
	roots := make([]float64, len(degrees))
	for i, d := range degrees {
		roots[i] = 1 / math.Sqrt(float64(max(d, 1)))
	}
	return roots, nil
}

// sum is copy_u and a sum over in-edges. grads says whose gradients backward will ask
// for, and in backward, where every worker asks for the same, that all have agreed on them.
func sum(grads uint32) session.Aggregation {
	return session.Aggregation{Message: session.CopyU, Reduce: session.ReduceSum, NeedGrad: grads, Agreed: grads}
}

// forward is collective: every worker calls it.
func (l *conv) forward(x *mat.Dense, train bool) (*mat.Dense, error) {
	n, _ := x.Dims()
	_, width := l.weight.Dims()
	l.x = x
	xw, out := mat.NewDense(n, width, nil), mat.NewDense(n, width, nil)
	xw.Mul(x, l.weight)
	scaleRows(xw, l.fromDeg)
	var need uint32
	if train {
		need = session.GradU
	}
	if _, err := session.Forward(l.graph, sum(need), rows(xw), nil, rows(out)); err != nil {
		return nil, err
	}
	scaleRows(out, l.toDeg)
	out.Apply(func(_, j int, v float64) float64 { return v + l.bias.At(0, j) }, out)
	return out, nil
}

// backward sets the gradients of weight and bias, for this worker's part of the
// loss, and returns that of x W. It overwrites gradOut. Collective.
func (l *conv) backward(gradOut *mat.Dense) (*mat.Dense, error) {
	n, width := gradOut.Dims()
	for j := range width {
		l.gradBias.Set(0, j, mat.Sum(gradOut.ColView(j)))
	}
	scaleRows(gradOut, l.toDeg)
	gradXW := mat.NewDense(n, width, nil)
	into := rows(gradXW)
	if err := session.Backward(l.graph, sum(session.GradU), session.Gradients[float64]{Out: rows(gradOut), GradU: &into}); err != nil {
		return nil, err
	}
	scaleRows(gradXW, l.fromDeg)
	l.gradWeight.Mul(l.x.T(), gradXW)
	return gradXW, nil
}

// rows is a dense matrix as the engine takes it: the same memory.
func rows(m *mat.Dense) session.Rows[float64] {
	raw := m.RawMatrix() // of matrices made by NewDense the stride is the width
	return session.Rows[float64]{Data: raw.Data, N: raw.Rows, Width: raw.Cols}
}

func scaleRows(m *mat.Dense, by []float64) {
	m.Apply(func(i, _ int, v float64) float64 { return by[i] * v }, m)
}

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

// relu returns max(m, 0).
func relu(m *mat.Dense) *mat.Dense {
	var out mat.Dense
	out.Apply(func(_, _ int, v float64) float64 { return max(v, 0) }, m)
	return &out
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
