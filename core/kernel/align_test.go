package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/mem"
)

// What is copied is what saves lines, and rows that fill whole lines never are.
func TestAlignedPitch(t *testing.T) {
	for _, c := range []struct {
		width, bytes, pitch int
		pays                bool
	}{
		{47, 4, 48, true}, {41, 4, 48, true}, {16, 4, 16, false}, {48, 4, 48, false}, {256, 4, 256, false},
		{100, 4, 112, false}, {1, 4, 16, false}, {17, 4, 32, false}, {31, 4, 32, true}, {47, 8, 48, true}, {8, 8, 8, false},
	} {
		if pitch, pays := alignedPitch(c.width, c.bytes); pitch != c.pitch || pays != c.pays {
			t.Errorf("%d numbers of %d bytes: pitch %d, pays %v; want %d, %v", c.width, c.bytes, pitch, pays, c.pitch, c.pays)
		}
	}
}

// A copy of x changes no bit: whole products, windows, weights, both types, one
// size after another out of the same memory.
func TestAlignedBits(t *testing.T) {
	for _, width := range []int{47, 15, 31, 93, 1, 47} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			alignedBits[float32](t, width)
			alignedBits[float64](t, width)
		})
	}
}

func alignedBits[T Float](t *testing.T, width int) {
	const n, degree = 300, 60
	rng := rand.New(rand.NewPCG(uint64(width), 3))
	dense := CSR{Ptr: make([]int64, n+1), Col: make([]int32, n*degree)}
	for i := range n {
		row := dense.Col[i*degree : (i+1)*degree]
		for k := range row {
			row[k] = rng.Int32N(n)
		}
		slices.Sort(row)
		dense.Ptr[i+1] = int64((i + 1) * degree)
	}
	p := NewPool(2)
	defer func() { p.spare.Free() }()
	x, w := make([]T, n*width), make([]T, len(dense.Col))
	for i := range x {
		x[i] = T(rng.NormFloat64())
	}
	for i := range w {
		w[i] = T(rng.NormFloat64())
	}
	for _, weights := range [][]T{nil, w} {
		got, want := make([]T, n*width), make([]T, n*width)
		SpMM(p, got, productOf(x, width, dense, weights, 1, nil))
		_, pays := alignedPitch(width, sizeof[T]())
		if kept := len(p.spare.Data) > 0; kept != pays && weights == nil && width != 1 {
			t.Errorf("width %d: copied %v, pays %v", width, kept, pays)
		}
		for i := range n { // a few slots each: nothing is copied
			one := CSR{Ptr: []int64{0, dense.Ptr[i+1] - dense.Ptr[i]}, Col: dense.Col[dense.Ptr[i]:dense.Ptr[i+1]]}
			var ones []T
			if weights != nil {
				ones = weights[dense.Ptr[i]:dense.Ptr[i+1]]
			}
			SpMM(p, want[i*width:(i+1)*width], productOf(x, width, one, ones, 1, nil))
		}
		same(t, "whole", got, want)
		clear(got)
		cursor := append([]int64(nil), dense.Ptr[:n]...)
		SpMMWindow(p, got, productOf(x[:200*width], width, dense, weights, 1, nil), Window{&Cursor{Slot: cursor}, 0, 200, true})
		SpMMWindow(p, got, productOf(x[200*width:], width, dense, weights, 1, nil), Window{&Cursor{Slot: cursor}, 200, n, false})
		same(t, "windows", got, want)
	}
}

func same[T Float](t *testing.T, what string, got, want []T) {
	t.Helper()
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// The pool keeps the larger of two copies, and what it keeps is counted.
func TestSpare(t *testing.T) {
	p, before := NewPool(1), mem.Stats()[mem.Scratch].Live
	a, _ := p.takeSpare(1 << 20)
	b, _ := p.takeSpare(1 << 12)
	p.keepSpare(b)
	p.keepSpare(a)
	if live := mem.Stats()[mem.Scratch].Live - before; live != 1<<20 || len(p.spare.Data) != 1<<20 {
		t.Errorf("%d bytes are kept, %d counted", len(p.spare.Data), live)
	}
	c, _ := p.takeSpare(100)
	if len(c.Data) != 1<<20 {
		t.Errorf("%d bytes, the kept ones are %d", len(c.Data), 1<<20)
	}
	c.Free()
}
