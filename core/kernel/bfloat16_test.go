package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/internal/vec"
	"sar/core/internal/view"
)

// TestHalf holds every product of rows in bfloat16 against that of the same numbers as T, to the bit.
func TestHalf(t *testing.T) {
	everyPath(t, func(t *testing.T) {
		t.Run("float32", testHalf[float32])
		t.Run("float64", testHalf[float64])
	})
}

func testHalf[T Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 8))
	for _, width := range []int{1, 7, 8, 47, 64, 72, 256} {
		for _, heads := range []int{1, 2} {
			if width%heads != 0 {
				continue
			}
			m := randomMatrix(rng, 60, 40, 2, 700, heads == 2)
			x, half := make([]T, m.cols*width), make([]vec.BFloat16, m.cols*width)
			for i := range x {
				v := float32(rng.NormFloat64())
				half[i] = vec.BFloat16(math.Float32bits(v) >> 16)
				x[i] = T(math.Float32frombits(uint32(half[i]) << 16))
			}
			n := m.Rows()
			p, weights, scale := NewPool(2), randoms[T](rng, len(m.Col)*heads), randoms[T](rng, m.cols)
			filled := make([]uint8, n)
			for i := range filled {
				filled[i] = uint8(i % 2)
			}
			before, g := randoms[T](rng, n*width), randoms[T](rng, n*width)
			for _, form := range []struct {
				name     string
				w, scale []T
			}{{"plain", nil, nil}, {"weighted", weights, nil}, {"scaled", nil, scale}, {"both", weights, scale}} {
				// all computes everything that reads source rows, which begin with column begin for windows.
				all := func(begin int, source Product[T]) map[string][]T {
					source.A, source.Width, source.W, source.Heads, source.Scale = m.CSR, width, form.w, heads, form.scale
					out := map[string][]T{"SpMM": make([]T, n*width), "Post": make([]T, n*width), "Widen": make([]T, n*width),
						"Window":     make([]T, n*width),
						"Accumulate": append([]T{}, before...), "Scatter": append([]T{}, before...),
						"SDDMM": make([]T, len(m.Col)*heads), "SDDMMWindow": make([]T, len(m.Col)*heads)}
					SpMM(p, out["SpMM"], source)
					rounded, want := make([]vec.BFloat16, n*width), make([]vec.BFloat16, n*width)
					source.Post = g[:n]
					SpMMHalf(p, rounded, source)
					SpMM(p, out["Post"], source)
					source.Post = nil
					Narrow(p, want, out["Post"])
					if !slices.Equal(rounded, want) {
						t.Fatalf("%s: SpMMHalf is not SpMM, rounded", form.name)
					}
					Widen(p, out["Widen"], rounded)
					for i, v := range rounded {
						if w := T(math.Float32frombits(uint32(v) << 16)); out["Widen"][i] != w {
							t.Fatalf("%v is widened to %v", w, out["Widen"][i])
						}
					}
					SDDMM(p, out["SDDMM"], g, source)
					a := SpMMAccumulate(p, out["Accumulate"], source, filled, 3, n)
					for i := range a.Parts {
						a.Run(i)
					}
					source.Scale = nil
					tail := source
					tail.X, tail.Half = source.X[min(begin*width, len(source.X)):], source.Half[min(begin*width, len(source.Half)):]
					sum, dots := Cursor{Slot: append([]int64{}, m.Ptr[:n]...)}, Cursor{Slot: append([]int64{}, m.Ptr[:n]...)}
					SpMMWindow(p, out["Window"], source, Window{Cursor: &sum, End: int32(begin), First: true})
					SDDMMWindow(p, out["SDDMMWindow"], g, source, Window{Cursor: &dots, End: int32(begin), First: true})
					SpMMWindow(p, out["Window"], tail, Window{Cursor: &sum, Begin: int32(begin), End: int32(m.cols)})
					SDDMMWindow(p, out["SDDMMWindow"], g, tail, Window{Cursor: &dots, Begin: int32(begin), End: int32(m.cols)})
					SpMMScatter(p, out["Scatter"], tail,
						Columns{m.colPtr, m.rows, m.colEdge, int32(begin), int32(m.cols)})
					return out
				}
				want := all(m.cols/3, Product[T]{X: x})
				for name, got := range all(m.cols/3, Product[T]{Half: half}) {
					sameBits(t, form.name+" "+name, got, want[name])
				}
			}
		}
	}
}

// Rounding where the numbers lie gives what rounding elsewhere does, for any number of threads.
func TestNarrowInPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, threads := range []int{1, 3} {
		p := NewPool(threads)
		for _, n := range []int{0, 1, 2, 3, 1000, 1 << 20} {
			x, want := make([]float32, n), make([]BFloat16, n)
			for i := range x {
				x[i] = rng.Float32() - 0.5
			}
			Narrow(p, want, x)
			NarrowInPlace(p, x)
			if !slices.Equal(view.Numbers[BFloat16](view.Bytes(x))[:n], want) {
				t.Errorf("%d numbers, %d threads: others are rounded", n, threads)
			}
		}
	}
}

// No step of doubling writes what it has yet to read, but for the first, of one number.
func TestDoubling(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 1000, 1 << 20} {
		taken := 0
		doubling(n, func(begin, end int) {
			if begin != taken || end <= begin || begin > 0 && end > 2*begin {
				t.Errorf("of %d: a step from %d to %d after %d", n, begin, end, taken)
			}
			taken = end
		})
		if taken != n {
			t.Errorf("of %d: %d are taken", n, taken)
		}
	}
}
