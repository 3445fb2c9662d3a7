package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// stored is a matrix with columns in the order of its rows.
func stored(a CSR) CSR {
	col := make([]int32, len(a.Col))
	for place, i := range a.Order.Rows {
		copy(col[a.before(place):a.before(place+1)], a.Col[a.at(int(i)):a.at(int(i)+1)])
	}
	a.Col, a.Order.Stored = col, true
	return a
}

// TestStoredInOrder: columns stored in the order of the rows change no bit, with every
// kind of coefficients, hub rows, rows without slots, narrow pointers and wide ones.
func TestStoredInOrder(t *testing.T) {
	everyPath(t, func(t *testing.T) {
		testStored[float32](t)
		testStored[float64](t)
	})
}

func testStored[T Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	m := randomMatrix(rng, 500, 200, 1, 20_000, true)
	a := m.CSR
	a.Order = shuffled(rng, a.Ptr)
	wide := stored(a)
	narrowed := wide
	narrowed.Ptr, narrowed.Ptr32 = nil, narrow(a.Ptr)
	narrowed.Order.Before, narrowed.Order.Before32 = nil, narrow(a.Order.Before)
	for _, width := range []int{40, 1, 264}[:some(3)] {
		x := randoms[T](rng, m.cols*width)
		scale, post := randoms[T](rng, m.cols), randoms[T](rng, m.Rows())
		for _, heads := range []int{0, 1, 4} {
			if heads > 0 && width%heads != 0 {
				continue
			}
			var w []T
			if heads > 0 {
				w = randoms[T](rng, len(m.Col)*heads)
			}
			for form := range 4 {
				var s []T
				if form&1 != 0 {
					s = scale
				}
				edge := a.Edge
				if form&2 != 0 {
					edge = nil
				}
				product := func(p *Pool, b CSR) []T {
					b.Edge = edge
					y := guardedOf[T](2 * m.Rows() * width)
					SpMM(p, y.s[:len(y.s)/2], productOf(x, width, b, w, max(1, heads), s))
					SpMM(p, y.s[len(y.s)/2:], scaled(productOf(x, width, b, w, max(1, heads), nil), post))
					y.check(t, "stored")
					return y.s
				}
				want := product(NewPool(1), m.CSR)
				for k, b := range []CSR{wide, narrowed} {
					threads := []int{1, 4}[(form/2+form+k)%2]
					what := fmt.Sprintf("width %d, %d heads, form %d, %d threads, matrix %d", width, heads, form, threads, k)
					sameBits(t, what, product(NewPool(threads), b), want)
				}
			}
		}
	}
}

// TestStoredIsRefused: what looks for the slots of a row by its number refuses.
func TestStoredIsRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	m := randomMatrix(rng, 20, 20, 0, 0, false)
	a := m.CSR
	a.Order = shuffled(rng, a.Ptr)
	a = stored(a)
	p, x, w := NewPool(1), make([]float32, 20), make([]float32, len(a.Col))
	cursor := slices.Clone(m.Ptr)
	for name, f := range map[string]func(){
		"rows":   func() { SpMMRows(p, x[1:], productOf(x, 1, a, nil, 1, nil), 1, 20) },
		"window": func() { SpMMWindow(p, x, productOf(x, 1, a, nil, 1, nil), Window{&Cursor{Slot: cursor}, 0, 20, true}) },
		"sddmm":  func() { SDDMM(p, w, x, productOf(x, 1, a, nil, 1, nil)) },
		"onto":   func() { SpMMAccumulate(p, x, productOf(x, 1, a, nil, 1, nil), make([]uint8, 20), 1, 20) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s took a matrix that is stored in its order", name)
				}
			}()
			f()
		}()
	}
}
