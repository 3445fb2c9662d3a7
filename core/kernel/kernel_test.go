package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"sar/core/internal/vec"
	"sar/core/internal/view"
)

// everyPath runs f once for each SIMD path of this CPU and build.
func everyPath(t *testing.T, f func(t *testing.T)) {
	was := vec.Name()
	defer func() { _, _ = vec.Choose(was) }()
	for _, name := range vec.Available() {
		if _, err := vec.Choose(name); err != nil {
			t.Fatal(err)
		}
		t.Run(name, f)
	}
}

// matrix is a random CSR with its transpose (columns) over the same slots.
type matrix struct {
	CSR
	cols    int
	colPtr  []int32
	rows    []int32
	colEdge []int32
}

// randomMatrix has empty rows, repeated columns and hub rows; permute gives
// slots edge numbers that are not their own.
func randomMatrix(rng *rand.Rand, n, cols, hubs, hubSlots int, permute bool) matrix {
	m := matrix{cols: cols}
	m.Ptr = make([]int64, n+1)
	hub := map[int]bool{}
	for range hubs {
		hub[rng.IntN(n)] = true
	}
	for i := range n {
		deg := rng.IntN(12)
		if rng.IntN(4) == 0 {
			deg = 0
		}
		if hub[i] {
			deg = hubSlots
		}
		row := make([]int32, deg)
		for k := range row {
			row[k] = int32(rng.IntN(cols))
		}
		sort.Slice(row, func(a, b int) bool { return row[a] < row[b] })
		m.Col = append(m.Col, row...)
		m.Ptr[i+1] = int64(len(m.Col))
	}
	edges := make([]int32, len(m.Col))
	for k := range edges {
		edges[k] = int32(k)
	}
	if permute {
		rng.Shuffle(len(edges), func(a, b int) { edges[a], edges[b] = edges[b], edges[a] })
		m.Edge = edges
	}
	type slot struct {
		col, row, edge int32
		k              int
	}
	var slots []slot
	for i := range n {
		for k := m.Ptr[i]; k < m.Ptr[i+1]; k++ {
			slots = append(slots, slot{m.Col[k], int32(i), edges[k], int(k)})
		}
	}
	sort.Slice(slots, func(a, b int) bool {
		if slots[a].col != slots[b].col {
			return slots[a].col < slots[b].col
		}
		return slots[a].k < slots[b].k
	})
	m.colPtr = make([]int32, cols+1)
	for _, s := range slots {
		m.colPtr[s.col+1]++
		m.rows = append(m.rows, s.row)
		m.colEdge = append(m.colEdge, s.edge)
	}
	for j := range cols {
		m.colPtr[j+1] += m.colPtr[j]
	}
	return m
}

func (m matrix) edge(k int64) int {
	if m.Edge == nil {
		return int(k)
	}
	return int(m.Edge[k])
}

// guarded is a slice of n elements with guard words around it.
type guarded[T Float] struct{ all, s []T }

const guards, guardValue = 70, 12345

func guardedOf[T Float](n int) guarded[T] {
	all := make([]T, n+2*guards)
	for i := range all {
		all[i] = guardValue
	}
	return guarded[T]{all, all[guards : guards+n : guards+n]}
}

func (g guarded[T]) check(t *testing.T, what string) {
	t.Helper()
	for i := range guards {
		if g.all[i] != guardValue || g.all[len(g.all)-1-i] != guardValue {
			t.Fatalf("%s: written outside the buffer (guard %d)", what, i)
		}
	}
}

func randoms[T Float](rng *rand.Rand, n int) []T {
	s := guardedOf[T](n).s // so that reading past the end shows
	for i := range s {
		s[i] = T(rng.NormFloat64())
	}
	return s
}

// oracle is SpMM in float64, and the sum of magnitudes for a tolerance.
func oracle[T Float](m matrix, x []T, width int, w []T, heads int, scale []T) (y, size []float64) {
	n, d := m.Rows(), width/heads
	y, size = make([]float64, n*width), make([]float64, n*width)
	for i := range n {
		for k := m.Ptr[i]; k < m.Ptr[i+1]; k++ {
			for j := range width {
				c := 1.0
				if w != nil {
					c = float64(w[m.edge(k)*heads+j/d])
				}
				if scale != nil {
					c *= float64(scale[m.Col[k]])
				}
				v := c * float64(x[int(m.Col[k])*width+j])
				y[i*width+j] += v
				size[i*width+j] += math.Abs(v)
			}
		}
	}
	return y, size
}

func near[T Float](t *testing.T, what string, got []T, want, size []float64, terms int) {
	t.Helper()
	eps := 0x1p-23
	if view.Size[T]() == 8 {
		eps = 0x1p-52
	}
	for i := range want {
		if d := math.Abs(float64(got[i]) - want[i]); !(d <= size[i]*eps*float64(terms+4)) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func sameBits[T Float](t *testing.T, what string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float64bits(float64(got[i])) != math.Float64bits(float64(want[i])) {
			t.Fatalf("%s: element %d is %v, want the bits of %v", what, i, got[i], want[i])
		}
	}
}

var testWidths = func() []int {
	w := []int{100, 127, 128, 129, 256, 257, 300, 513}
	for i := 1; i <= 70; i++ {
		w = append(w, i)
	}
	return w
}()

func TestSpMM(t *testing.T) {
	everyPath(t, func(t *testing.T) {
		t.Run("float32", testSpMM[float32])
		t.Run("float64", testSpMM[float64])
	})
}

func testSpMM[T Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, width := range testWidths {
		for _, mode := range []struct {
			heads          int
			w, scale, perm bool
		}{{1, false, false, false}, {1, true, false, false}, {1, true, true, true}, {1, false, true, false},
			{2, true, false, true}, {4, true, true, false}} {
			if width%mode.heads != 0 {
				continue
			}
			m := randomMatrix(rng, 40, 30, 1, 600, mode.perm)
			x := randoms[T](rng, m.cols*width)
			var w, scale []T
			if mode.w {
				w = randoms[T](rng, len(m.Col)*mode.heads)
			}
			if mode.scale {
				scale = randoms[T](rng, m.cols)
			}
			what := fmt.Sprintf("width %d %+v", width, mode)
			want, size := oracle(m, x, width, w, mode.heads, scale)
			y := guardedOf[T](m.Rows() * width)
			SpMM(NewPool(1), y.s, productOf(x, width, m.CSR, w, mode.heads, scale))
			y.check(t, what)
			near(t, what, y.s, want, size, 600)

			part := guardedOf[T](17 * width)
			SpMMRows(NewPool(2), part.s, productOf(x, width, m.CSR, w, mode.heads, scale), 5, 22)
			part.check(t, what)
			sameBits(t, what+" rows", part.s, y.s[5*width:22*width])
			if scale == nil {
				testChunks(t, rng, m, y.s, productOf(x, width, m.CSR, w, mode.heads, nil))
			}
		}
	}
}

// testChunks holds windows and scatters of random chunks against the whole.
func testChunks[T Float](t *testing.T, rng *rand.Rand, m matrix, want []T, whole Product[T]) {
	t.Helper()
	width := whole.Width
	p := NewPool(1 + rng.IntN(3))
	y := guardedOf[T](len(want))
	scattered := guardedOf[T](len(want))
	clear(scattered.s)
	cursor := append([]int64{}, m.Ptr[:m.Rows()]...)
	edge := m.colEdge
	for begin, first := 0, true; begin < m.cols; first = false {
		end := min(m.cols, begin+1+rng.IntN(12))
		chunk := whole
		chunk.X = append([]T{}, whole.X[begin*width:end*width]...)
		SpMMWindow(p, y.s, chunk, Window{&Cursor{Slot: cursor}, int32(begin), int32(end), first})
		SpMMScatter(p, scattered.s, chunk, Columns{m.colPtr, m.rows, edge, int32(begin), int32(end)})
		begin = end
	}
	for i, k := range cursor {
		if k != m.Ptr[i+1] {
			t.Fatalf("cursor of row %d is %d after the last window, want %d", i, k, m.Ptr[i+1])
		}
	}
	y.check(t, "window")
	scattered.check(t, "scatter")
	sameBits(t, fmt.Sprintf("window, width %d", width), y.s, want)
	sameBits(t, fmt.Sprintf("scatter, width %d", width), scattered.s, want)
}

func TestSDDMM(t *testing.T) {
	everyPath(t, func(t *testing.T) {
		t.Run("float32", testSDDMM[float32])
		t.Run("float64", testSDDMM[float64])
	})
}

func testSDDMM[T Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, width := range testWidths {
		for _, heads := range []int{1, 2, 4} {
			if width%heads != 0 {
				continue
			}
			m := randomMatrix(rng, 30, 25, 1, 600, width%2 == 0)
			d := width / heads
			x, g := randoms[T](rng, m.cols*width), randoms[T](rng, m.Rows()*width)
			want, size := make([]float64, len(m.Col)*heads), make([]float64, len(m.Col)*heads)
			for i := range m.Rows() {
				for k := m.Ptr[i]; k < m.Ptr[i+1]; k++ {
					for j := range width {
						v := float64(x[int(m.Col[k])*width+j]) * float64(g[i*width+j])
						want[m.edge(k)*heads+j/d] += v
						size[m.edge(k)*heads+j/d] += math.Abs(v)
					}
				}
			}
			dw := guardedOf[T](len(want))
			SDDMM(NewPool(2), dw.s, g, productOf(x, width, m.CSR, nil, heads, nil))
			dw.check(t, "sddmm")
			near(t, fmt.Sprintf("sddmm width %d heads %d", width, heads), dw.s, want, size, width)

			cut := guardedOf[T](len(want))
			cursor := append([]int64{}, m.Ptr[:m.Rows()]...)
			for begin := 0; begin < m.cols; begin += 7 {
				end := min(m.cols, begin+7)
				chunk := append([]T{}, x[begin*width:end*width]...)
				SDDMMWindow(NewPool(2), cut.s, g, productOf(chunk, width, m.CSR, nil, heads, nil),
					Window{Cursor: &Cursor{Slot: cursor}, Begin: int32(begin), End: int32(end)})
			}
			cut.check(t, "sddmm window")
			sameBits(t, "sddmm window", cut.s, dw.s)
		}
	}
}

func TestNaNIsCarried(t *testing.T) {
	everyPath(t, func(t *testing.T) {
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		a := CSR{Ptr: []int64{0, 2, 3}, Col: []int32{0, 1, 1}}
		x := []float32{1, 2, nan, inf}
		y := make([]float32, 4)
		SpMM(NewPool(1), y, productOf(x, 2, a, []float32{1, 0, 0}, 1, nil))
		for i, v := range y {
			if v == v {
				t.Errorf("element %d is %v: a zero weight dropped NaN or Inf", i, v)
			}
		}
		dw := make([]float32, 3)
		SDDMM(NewPool(1), dw, []float32{0, 0, 0, 0}, productOf(x, 2, a, nil, 1, nil))
		if dw[0] != 0 || dw[1] == dw[1] || dw[2] == dw[2] {
			t.Errorf("dot products are %v, want 0, NaN, NaN", dw)
		}
	})
}

func TestRows(t *testing.T) {
	everyPath(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(9, 10))
		for _, threads := range []int{1, 2, 5} {
			p := NewPool(threads)
			for _, width := range []int{1, 3, 16, 47, 100, 257} {
				n, m := 3000, 4000
				idx := make([]int32, n)
				for i, v := range rng.Perm(m)[:n] {
					idx[i] = int32(v)
				}
				src := make([]byte, m*width)
				for i := range src {
					src[i] = byte(rng.Uint32())
				}
				dst := make([]byte, n*width)
				CopyRows(p, n, RowsOf(dst, width, nil), RowsOf(src, width, idx))
				x, y := randoms[float64](rng, n*width), randoms[float64](rng, m*width)
				want := append([]float64{}, y...)
				s := randoms[float64](rng, m)
				for i, r := range idx {
					if string(dst[i*width:(i+1)*width]) != string(src[int(r)*width:int(r+1)*width]) {
						t.Fatalf("gathered row %d differs", i)
					}
					for j := range width {
						want[int(r)*width+j] += x[i*width+j]
					}
				}
				AddRows(p, n, RowsOf(y, width, idx), RowsOf(x, width, nil))
				sameBits(t, "scatter add", y, want)
				for i := range want {
					want[i] *= s[i/width]
				}
				ScaleRows(p, y, width, s)
				sameBits(t, "scale", y, want)
			}
		}
	})
}

// productOf is a Product of what most tests give one.
func productOf[T Float](x []T, width int, a CSR, w []T, heads int, scale []T) Product[T] {
	return Product[T]{A: a, X: x, Width: width, W: w, Heads: heads, Scale: scale}
}

func scaled[T Float](m Product[T], post []T) Product[T] {
	m.Post = post
	return m
}
