package main

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"sar/core/session"
)

// layer sends z = x W over the edges, by a program, and adds b. x is [nodes of this worker, in],
// the result [nodes of this worker, width].
type layer struct {
	graph    *session.Graph
	program  session.Program
	operands func(z session.Rows[float64]) []session.Rows[float64]
	sent     []int // operands that are z
	learned  []int // operands that are parameters

	params, grads []*mat.Dense // W [in, width], b [1, width], and those of learned

	x    *mat.Dense // what backward needs of forward
	call *session.Call[float64]
}

func newLayer(g *session.Graph, in, width int, rng *rand.Rand) *layer {
	l := &layer{graph: g}
	l.param(in, width, math.Sqrt(6/float64(in+width)), rng)
	l.param(1, width, 0, rng)
	return l
}

// param adds a parameter, drawn as Glorot and Bengio (2010) do.
func (l *layer) param(n, width int, limit float64, rng *rand.Rand) *mat.Dense {
	p := mat.NewDense(n, width, nil)
	p.Apply(func(_, _ int, _ float64) float64 { return limit * (2*rng.Float64() - 1) }, p)
	l.params, l.grads = append(l.params, p), append(l.grads, mat.NewDense(n, width, nil))
	return p
}

// newGCN is a graph convolution (Kipf and Welling, 2017): D_in^-1/2 A D_out^-1/2 z + b.
func newGCN(g *session.Graph, in, width int, rng *rand.Rand) (*layer, error) {
	var b session.Builder
	z, from, to := b.U(width), b.U(1), b.V(1)
	l := newLayer(g, in, width, rng)
	l.sent = []int{0}
	fromDegree, err := inverseRoots(g, true)
	if err != nil {
		return nil, err
	}
	toDegree, err := inverseRoots(g, false)
	if err != nil {
		return nil, err
	}
	l.operands = func(z session.Rows[float64]) []session.Rows[float64] {
		return []session.Rows[float64]{z, fromDegree, toDegree}
	}
	l.program, err = z.Mul(from).Mul(to).Sum()
	return l, err
}

// inverseRoots returns 1/sqrt(max(degree, 1)) of this worker's nodes.
func inverseRoots(g *session.Graph, outgoing bool) (roots session.Rows[float64], err error) {
	info, err := g.Info(0)
	if err != nil {
		return roots, err
	}
	degrees := make([]int64, info.NumDst) // sources and destinations are the same nodes
	if err := g.Degrees(0, outgoing, degrees); err != nil {
		return roots, err
	}
	for _, d := range degrees {
		roots.Data = append(roots.Data, 1/math.Sqrt(float64(max(d, 1))))
	}
	roots.N, roots.Width = len(degrees), 1
	return roots, nil
}

// newGAT is graph attention (Veličković et al., 2018): each head weighs the messages z of a node by
// a softmax of leaky_relu(l·z of the source + r·z of the node).
func newGAT(g *session.Graph, in, heads, dim int, rng *rand.Rand) (*layer, error) {
	var b session.Builder
	zu, zv, left, right := b.U(heads, dim), b.V(heads, dim), b.P(heads, dim), b.P(heads, dim)
	l := newLayer(g, in, heads*dim, rng)
	l.sent, l.learned = []int{0, 1}, []int{2, 3}
	limit := math.Sqrt(6 / float64(dim+1))
	scores := [2]session.Rows[float64]{}
	for i := range scores {
		scores[i] = rows(l.param(1, heads*dim, limit, rng))
	}
	l.operands = func(z session.Rows[float64]) []session.Rows[float64] {
		return []session.Rows[float64]{z, z, scores[0], scores[1]}
	}
	var err error
	l.program, err = zu.Mul(zu.Dot(left).Add(zv.Dot(right)).LeakyReLU(0.2).Softmax()).Sum()
	return l, err
}

// forward is collective: every worker calls it.
func (l *layer) forward(ctx context.Context, x *mat.Dense) (out *mat.Dense, err error) {
	l.x = x
	var z mat.Dense
	z.Mul(x, l.params[0])
	in := session.Inputs[float64]{Operands: l.operands(rows(&z)), Grads: append(l.sent, l.learned...)}
	if l.call, err = session.Run(ctx, l.graph, l.program, in); err != nil {
		return nil, err
	}
	out = mat.NewDense(l.call.Out.N, l.call.Out.Width, nil)
	out.Apply(func(i, j int, _ float64) float64 {
		return l.call.Out.Data[i*l.call.Out.Width+j] + l.params[1].At(0, j)
	}, out)
	return out, nil
}

// backward sets the gradients of the parameters, for this worker's part of the loss, and returns
// that of z. Collective.
func (l *layer) backward(ctx context.Context, gradOut *mat.Dense) (*mat.Dense, error) {
	n, width := gradOut.Dims()
	for j := range width {
		l.grads[1].Set(0, j, mat.Sum(gradOut.ColView(j)))
	}
	found, err := l.call.Backward(ctx, rows(gradOut))
	if err != nil {
		return nil, err
	}
	gradZ := mat.NewDense(n, width, nil)
	for _, i := range l.sent {
		gradZ.Add(gradZ, mat.NewDense(n, width, found[i].Data))
	}
	for k, i := range l.learned {
		l.grads[2+k].Copy(mat.NewDense(1, width, found[i].Data))
	}
	l.grads[0].Mul(l.x.T(), gradZ)
	return gradZ, nil
}

// rows is a dense matrix as the engine takes it: the same memory.
func rows(m *mat.Dense) session.Rows[float64] {
	raw := m.RawMatrix() // whole matrices have the width as their stride
	return session.Rows[float64]{Data: raw.Data, N: raw.Rows, Width: raw.Cols}
}
