package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// shuffled is an order at random.
func shuffled(rng *rand.Rand, ptr []int64) Order {
	n := len(ptr) - 1
	o := Order{Rows: make([]int32, n), Before: make([]int64, n+1)}
	for place, i := range rng.Perm(n) {
		o.Rows[place] = int32(i)
		o.Before[place+1] = o.Before[place] + ptr[i+1] - ptr[i]
	}
	return o
}

// TestOrderChangesNoBit has rows that are many tasks, and hub rows.
func TestOrderChangesNoBit(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	m := randomMatrix(rng, 2000, 500, 3, 90_000, true)
	for _, width := range []int{40, 1, 100}[:some(3)] {
		x, g := randoms[float32](rng, m.cols*width), randoms[float32](rng, m.Rows()*width)
		w, scale := randoms[float32](rng, len(m.Col)), randoms[float32](rng, m.cols)
		want, wantDots := make([]float32, m.Rows()*width), make([]float32, len(m.Col))
		wantScaled := make([]float32, len(want))
		SpMM(NewPool(1), want, productOf(x, width, m.CSR, w, 1, nil))
		SpMM(NewPool(1), wantScaled, productOf(x, width, m.CSR, w, 1, scale))
		SDDMM(NewPool(1), wantDots, g, productOf(x, width, m.CSR, nil, 1, nil))
		a := m.CSR
		a.Order = shuffled(rng, a.Ptr)
		for _, threads := range []int{1, 2, 5} {
			p, what := NewPool(threads), fmt.Sprintf("width %d, %d threads", width, threads)
			y, dots := guardedOf[float32](len(want)), guardedOf[float32](len(wantDots))
			SpMM(p, y.s, productOf(x, width, a, w, 1, nil))
			sameBits(t, what, y.s, want)
			SpMM(p, y.s, productOf(x, width, a, w, 1, scale))
			sameBits(t, what+" scaled", y.s, wantScaled)
			SDDMM(p, dots.s, g, productOf(x, width, a, nil, 1, nil))
			sameBits(t, what+" sddmm", dots.s, wantDots)

			part := guardedOf[float32](700 * width)
			SpMMRows(p, part.s, productOf(x, width, a, w, 1, nil), 300, 1000)
			sameBits(t, what+" rows", part.s, want[300*width:1000*width])

			clear(dots.s)
			cursor, cursorDots := append([]int64{}, m.Ptr[:m.Rows()]...), append([]int64{}, m.Ptr[:m.Rows()]...)
			kept := &Cursor{Slot: cursor, Next: make([]int32, m.Rows())}
			for begin := 0; begin < m.cols; begin += 200 {
				end := min(m.cols, begin+200)
				// As an exchange does: own rows in their order, those of peers in sequence.
				b := a
				if begin == 200 {
					b.Order = Order{}
				}
				SpMMWindow(p, y.s, scaled(productOf(x[begin*width:end*width], width, b, w, 1, nil), nil),
					Window{kept, int32(begin), int32(end), begin == 0})
				SDDMMWindow(p, dots.s, g, productOf(x[begin*width:end*width], width, b, nil, 1, nil),
					Window{Cursor: &Cursor{Slot: cursorDots}, Begin: int32(begin), End: int32(end)})
			}
			sameBits(t, what+" window", y.s, want)
			sameBits(t, what+" sddmm window", dots.s, wantDots)
			for i := range cursor {
				if cursor[i] != m.Ptr[i+1] || cursorDots[i] != m.Ptr[i+1] {
					t.Fatalf("%s: cursors of row %d are %d and %d after the last window, want %d", what, i, cursor[i], cursorDots[i],
						m.Ptr[i+1])
				}
			}
			y.check(t, what)
			dots.check(t, what)
			part.check(t, what)
		}
	}
}

// TestOrderIsPlanned checks that work is divided by what the order's rows cost,
// and that a thread keeps more of it at a time.
func TestOrderIsPlanned(t *testing.T) {
	n, width := 20_000, 100
	ptr := make([]int64, n+1)
	for i := range n { // all work in the odd rows
		ptr[i+1] = ptr[i] + int64(i%2*200)
	}
	a := CSR{Ptr: ptr, Order: Order{Rows: make([]int32, n), Before: make([]int64, n+1)}}
	for place := range n { // which come last
		i := place * 2 % n
		if place >= n/2 {
			i++
		}
		a.Order.Rows[place] = int32(i)
		a.Order.Before[place+1] = a.Order.Before[place] + ptr[i+1] - ptr[i]
	}
	rows, hubs := plan(&a, 0, n, width, 4, 2)
	if len(hubs) > 0 || len(rows) < 8 || rows[0].p1 < n/2 {
		t.Fatalf("%d parts of rows, %d of hubs; the first is %+v", len(rows), len(hubs), rows[0])
	}
	at := 0
	for _, q := range rows {
		if q.p0 != at {
			t.Fatalf("part %+v comes after place %d", q, at)
		}
		at = q.p1
	}
	if at != n {
		t.Fatalf("the parts end at place %d of %d", at, n)
	}
	plain, _ := plan(&CSR{Ptr: ptr}, 0, n, width, 4, 2)
	if len(plain) > 2*len(rows) { // a thread stays with rows that may read the same sources
		t.Errorf("%d parts with an order, %d without", len(rows), len(plain))
	}
}
