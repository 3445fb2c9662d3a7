package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/mem"
)

// TestBlocks aggregates twice over blocks, with edge weights, and compares with
// the whole graph at the seeds; likewise the gradients of features and weights.
func TestBlocks(t *testing.T) {
	const width = 3
	for _, parts := range worlds(1, 2, 3, 5) {
		for _, keep := range []bool{true, false} {
			for seed := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed, uint64(parts)))
				g := randomGraph(rng, 40, 130, parts)
				var seeds []int64
				for v := range g.n {
					if rng.IntN(6) == 0 && seed > 0 { // seed 0: no seeds anywhere
						seeds = append(seeds, int64(v))
					}
				}
				x, w := random[float64](rng, g.n*width), random[float64](rng, len(g.src))
				up := make([]float64, g.n*width)
				for _, v := range seeds {
					copy(up[v*width:(v+1)*width], random[float64](rng, width))
				}
				mid, _, _ := g.serial(width, 1, false, x, w, up)
				out, gradMid, gradW := g.serial(width, 1, false, mid, w, up)
				_, gradX, gradW0 := g.serial(width, 1, false, x, w, gradMid)
				for k := range gradW {
					gradW[k] += gradW0[k]
				}
				workers(t, parts, Config{}, func(s *Session) error {
					return blockCase{seeds, keep, width, x, w, up, out, gradX, gradW}.check(s, &g)
				})
			}
		}
	}
	if live := mem.Stats()[mem.Structure].Live; live != 0 {
		t.Errorf("%d bytes of structure left", live)
	}
}

// blockCase is two layers over blocks, and what they must give.
type blockCase struct {
	seeds                       []int64
	keep                        bool
	width                       int
	x, w, up, out, gradX, gradW []float64
}

func (c blockCase) check(s *Session, g *whole) error {
	seeds, keep, width, x, w, up, out, gradX, gradW := c.seeds, c.keep, c.width, c.x, c.w, c.up, c.out, c.gradX, c.gradW
	p := s.Rank()
	src, dst, at := g.of(p)
	lo := g.starts[p]
	full, err := s.GraphFromEdges(ctx, g.starts, src, dst)
	if err != nil {
		return err
	}
	defer full.Free()
	var rows []int64
	for _, v := range seeds {
		if v >= lo && v < g.starts[p+1] {
			rows = append(rows, v-lo)
		}
	}
	top, err := full.Block(ctx, [][]int64{rows}, keep)
	if err != nil {
		return err
	}
	defer top.Free()
	middle, err := top.BlockRows(0, false)
	if err != nil {
		return err
	}
	wide := make([]int64, len(middle))
	for i, v := range middle {
		wide[i] = int64(v)
	}
	bottom, err := full.Block(ctx, [][]int64{wide}, keep)
	if err != nil {
		return err
	}
	defer bottom.Free()
	if keep && !slices.EqualFunc(middle[:len(rows)], rows, func(a int32, b int64) bool { return int64(a) == b }) {
		return fmt.Errorf("seeds %v are no prefix of the source rows %v", rows, middle)
	}
	input, err := bottom.BlockRows(0, false)
	if err != nil {
		return err
	}
	pick := func(from []float64, at []int32) []float64 {
		var y []float64
		for _, v := range at {
			y = append(y, from[(lo+int64(v))*int64(width):][:width]...)
		}
		return y
	}
	program := aggregateCase{width: width, heads: 1}.program()
	type layer struct {
		g       *Graph
		edges   []int32
		u, e, y Rows[float64]
	}
	layers := []layer{{g: bottom}, {g: top}}
	u := pick(x, input)
	for i := range layers {
		l := &layers[i]
		if l.edges, err = l.g.BlockEdges(0); err != nil {
			return err
		}
		e := make([]float64, len(l.edges))
		for k, j := range l.edges {
			e[k] = w[at[j]]
		}
		info, err := l.g.Info(0)
		if err != nil {
			return err
		}
		l.u = Rows[float64]{Data: u, N: int(info.NumSrc), Width: width}
		l.e = Rows[float64]{Data: e, N: int(info.NumEdges), Width: 1}
		l.y = Rows[float64]{Data: make([]float64, int(info.NumDst)*width), N: int(info.NumDst), Width: width}
		call := ProgramCall[float64]{Operands: []Rows[float64]{l.u, l.e}, Out: l.y}
		if _, _, err = ProgramForward(l.g, program, call, 3); err != nil {
			return err
		}
		u = l.y.Data
	}
	seedRows := make([]int32, len(rows))
	for i, v := range rows {
		seedRows[i] = int32(v)
	}
	if err := closeTo("out", layers[1].y.Data, pick(out, seedRows), 1e-12); err != nil {
		return err
	}
	gotW := make([]float64, len(at))
	grad := pick(up, seedRows)
	for i := 1; i >= 0; i-- {
		l := &layers[i]
		gradOut := Rows[float64]{Data: grad, N: l.y.N, Width: width}
		gu := Rows[float64]{Data: make([]float64, l.u.N*width), N: l.u.N, Width: width}
		ge := Rows[float64]{Data: make([]float64, l.e.N), N: l.e.N, Width: 1}
		call := ProgramCall[float64]{Operands: []Rows[float64]{l.u, l.e}}
		if err := ProgramBackward(l.g, program, call, 3, gradOut, []*Rows[float64]{&gu, &ge}); err != nil {
			return err
		}
		for k, j := range l.edges {
			gotW[j] += ge.Data[k]
		}
		grad = gu.Data
	}
	wantW := make([]float64, len(at))
	for k, j := range at {
		wantW[k] = gradW[j]
	}
	if err := closeTo("gradient of weights", gotW, wantW, 1e-12); err != nil {
		return err
	}
	return closeTo("gradient of features", grad, pick(gradX, input), 1e-12)
}

func TestRefusedBlocks(t *testing.T) {
	workers(t, 1, Config{}, func(s *Session) error {
		g, err := s.GraphFromEdges(ctx, []int64{0, 3}, []int64{0, 1}, []int64{1, 2})
		if err != nil {
			return err
		}
		defer g.Free()
		for _, seeds := range [][][]int64{{{3}}, {{-1}}, {{1, 0, 1}}, {{1, 1}}, {}, {{}, {}}} {
			if b, err := g.Block(ctx, seeds, true); err == nil {
				b.Free()
				return fmt.Errorf("seeds %v are not refused", seeds)
			}
		}
		b, err := g.Block(ctx, [][]int64{{1, 2}}, true)
		if err != nil {
			return err
		}
		defer b.Free()
		if _, err := b.Block(ctx, [][]int64{{0}}, true); err == nil {
			return fmt.Errorf("a block of a block")
		}
		if _, err := g.BlockEdges(0); err == nil {
			return fmt.Errorf("edges of a graph that is no block")
		}
		return nil
	})
}
