package session

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"
)

func asBytes(x []float64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 8*len(x))
}

func asFloats(b []byte) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// Weighted sums and their gradients, computed in visits of a stream and again
// from fetched rows, against the serial ones; with windows of which chunks have
// many edges and few.
func TestStreamAndFetchAgainstSerial(t *testing.T) {
	const width = 5
	for _, parts := range worlds(1, 2, 3, 4, 6) {
		for _, window := range []int64{1 << 19, 1 << 22} {
			t.Run(fmt.Sprintf("P=%d/%d", parts, window), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(parts), 9))
				for _, g := range []whole{randomGraph(rng, 3000, 9000, parts), randomGraph(rng, 50, 900, parts),
					randomGraph(rng, 1, 3, parts), randomGraph(rng, 30, 0, parts)} {
					u, gradOut, w := random[float64](rng, g.n*width), random[float64](rng, g.n*width), random[float64](rng, len(g.src))
					wantOut, wantU, wantW := g.serial(width, 1, false, u, w, gradOut)
					workers(t, parts, Config{Window: window}, func(s *Session) error {
						return edgeCase{width, u, gradOut, w, wantOut, wantU, wantW}.stream(s, &g)
					})
				}
			})
		}
	}
}

// edgeCase is a weighted sum, and what it and its gradients must be.
type edgeCase struct {
	width                                int
	u, gradOut, w, wantOut, wantU, wantW []float64
}

func (c edgeCase) stream(s *Session, g *whole) error {
	width, u, gradOut, w, wantOut, wantU, wantW := c.width, c.u, c.gradOut, c.w, c.wantOut, c.wantU, c.wantW
	p := s.Rank()
	src, dst, at := g.of(p)
	lo, hi := int(g.starts[p])*width, int(g.starts[p+1])*width
	dg, err := s.GraphFromEdges(ctx, g.starts, src, dst)
	if err != nil {
		return err
	}
	defer dg.Free()
	n := (hi - lo) / width
	own, grad := append([]float64{}, u[lo:hi]...), gradOut[lo:hi]
	out, gradU, gradW := make([]float64, hi-lo), make([]float64, hi-lo), make([]float64, len(at))

	const room = 64
	what := Stream{
		Flags: 1 << p, Src: make([]int64, room), Dst: make([]int64, room), Edge: make([]int64, room),
		Fields: []StreamField{{Data: asBytes(own), N: n, Bytes: 8 * width}},
	}
	each := func(b *StreamBlock, f func(x, y []float64, to, from int, edge int64)) {
		x := asFloats(b.Rows[0])
		var y []float64
		if b.Grad[0] != nil {
			y = asFloats(b.Grad[0])
		}
		for k := range b.Edges {
			f(x, y, int(what.Dst[k])*width, int(what.Src[k])*width, what.Edge[k])
		}
	}
	what.Visit = func(b *StreamBlock) error {
		each(b, func(x, _ []float64, to, from int, edge int64) {
			for c := range width {
				out[to+c] += w[at[edge]] * x[from+c]
			}
		})
		return nil
	}
	flags, err := dg.Stream(0, what)
	if err != nil {
		return err
	}
	if want := uint16(1<<s.World() - 1); flags != want {
		return fmt.Errorf("flags %b, want those of every rank, %b", flags, want)
	}
	what.Fields[0].Float, what.Fields[0].Grad = 8, asBytes(gradU)
	what.Visit = func(b *StreamBlock) error {
		each(b, func(x, y []float64, to, from int, edge int64) {
			for c := range width {
				y[from+c] += w[at[edge]] * grad[to+c]
				gradW[edge] += x[from+c] * grad[to+c]
			}
		})
		return nil
	}
	if _, err := dg.Stream(0, what); err != nil {
		return err
	}
	if err := closeTo("out", out, wantOut[lo:hi], 1e-12); err != nil {
		return err
	}
	if err := closeTo("grad_u", gradU, wantU[lo:hi], 1e-12); err != nil {
		return err
	}
	for edge, k := range at {
		if err := closeTo("grad_w", gradW[edge:edge+1], wantW[k:k+1], 1e-12); err != nil {
			return err
		}
	}
	return edgeCase{width, own, grad, w, wantOut[lo:hi], wantU[lo:hi], nil}.fetch(dg, at)
}

// fetch does the same, of own rows, with one row fetched for every edge. Edge k has weight at[k].
func (c edgeCase) fetch(dg *Graph, at []int) error {
	width, own, grad, w, wantOut, wantU := c.width, c.u, c.gradOut, c.w, c.wantOut, c.wantU
	n := len(own) / width
	rows, indptr := make([]int64, n), make([]int64, n+1)
	for i := range rows {
		rows[i] = int64(i)
	}
	columns, edges := make([]int64, len(at)), make([]int64, len(at))
	if err := dg.InEdges(0, rows, indptr, columns, edges); err != nil {
		return err
	}
	got := make([]float64, len(at)*width)
	_, err := dg.FetchForward(0, columns, 0, FetchRows{asBytes(own), n, 8 * width},
		FetchRows{asBytes(got), len(at), 8 * width})
	if err != nil {
		return err
	}
	out, back, gradU := make([]float64, n*width), make([]float64, len(got)), make([]float64, n*width)
	for i := range rows {
		for k := indptr[i]; k < indptr[i+1]; k++ {
			weight := w[at[edges[k]]]
			for c := range width {
				out[i*width+c] += weight * got[int(k)*width+c]
				back[int(k)*width+c] = weight * grad[i*width+c]
			}
		}
	}
	gradRows := FetchRows{asBytes(gradU), n, 8 * width}
	if err := dg.FetchBackward(0, columns, 8, FetchRows{asBytes(back), len(at), 8 * width}, &gradRows); err != nil {
		return err
	}
	if err := closeTo("out of fetched rows", out, wantOut, 1e-12); err != nil {
		return err
	}
	return closeTo("grad of fetched rows", gradU, wantU, 1e-12)
}
