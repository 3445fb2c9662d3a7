package kernel

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"testing"
)

// benchGraph is a random graph, or the one in the file that SAR_BENCH_CSR
// names: n and the number of slots as int64, then ptr as int64, col as int32.
func benchGraph(b *testing.B, n, degree int) CSR {
	b.Helper()
	name := os.Getenv("SAR_BENCH_CSR")
	if name == "" {
		rng := rand.New(rand.NewPCG(1, 2))
		a := CSR{Ptr: make([]int64, n+1), Col: make([]int32, n*degree)}
		for i := range n {
			row := a.Col[i*degree : (i+1)*degree]
			for k := range row {
				row[k] = rng.Int32N(int32(n))
			}
			sort.Slice(row, func(x, y int) bool { return row[x] < row[y] })
			a.Ptr[i+1] = int64((i + 1) * degree)
		}
		return a
	}
	f, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	var size [2]int64
	read := func(v any) {
		if err := binary.Read(r, binary.LittleEndian, v); err != nil && err != io.EOF {
			b.Fatal(err)
		}
	}
	read(&size)
	a := CSR{Ptr: make([]int64, size[0]+1), Col: make([]int32, size[1])}
	read(a.Ptr)
	read(a.Col)
	return a
}

func BenchmarkSpMM(b *testing.B) {
	a := benchGraph(b, 60_000, 47)
	n := a.Rows()
	x, y := make([]float32, n*256), make([]float32, n*256)
	for i := range x {
		x[i], y[i] = float32(i%97), 1 // and no page is new when the clock starts
	}
	half, out := make([]BFloat16, len(x)), make([]BFloat16, len(x))
	for i, v := range x {
		half[i] = BFloat16(math.Float32bits(v) >> 16)
	}
	w := make([]float32, len(a.Col))
	for i := range w {
		w[i] = 1
	}
	for _, threads := range []int{1, 2} {
		p := NewPool(threads)
		for _, width := range []int{256, 100, 47} {
			b.Run(fmt.Sprintf("copy/width=%d/threads=%d", width, threads), func(b *testing.B) {
				for b.Loop() {
					SpMM(p, y[:n*width], productOf(x[:n*width], width, a, nil, 1, nil))
				}
			})
			for name, scale := range map[string][]float32{"half": nil, "half, scaled": w[:n]} {
				b.Run(fmt.Sprintf("%s/width=%d/threads=%d", name, width, threads), func(b *testing.B) {
					m := Product[float32]{A: a, Half: half[:n*width], Width: width, Heads: 1, Scale: scale}
					for b.Loop() {
						SpMMHalf(p, out[:n*width], m)
					}
				})
			}
			b.Run(fmt.Sprintf("mul/width=%d/threads=%d", width, threads), func(b *testing.B) {
				for b.Loop() {
					SpMM(p, y[:n*width], productOf(x[:n*width], width, a, w, 1, nil))
				}
			})
			b.Run(fmt.Sprintf("sddmm/width=%d/threads=%d", width, threads), func(b *testing.B) {
				for b.Loop() {
					SDDMM(p, w, y[:n*width], productOf(x[:n*width], width, a, nil, 1, nil))
				}
			})
		}
	}
}

// BenchmarkHub is a matrix in which one row has as many slots as all others.
func BenchmarkHub(b *testing.B) {
	const n, hub = 100_000, 1_000_000
	rng := rand.New(rand.NewPCG(3, 4))
	a := CSR{Ptr: make([]int64, n+1)}
	for i := range n {
		degree := 10
		if i == n/3 {
			degree = hub
		}
		run := make([]int32, degree)
		for k := range run {
			run[k] = rng.Int32N(n)
		}
		slices.Sort(run)
		a.Col = append(a.Col, run...)
		a.Ptr[i+1] = int64(len(a.Col))
	}
	x, y := make([]float32, n*256), make([]float32, n*256)
	for i := range x {
		x[i], y[i] = float32(i%97), 1
	}
	for _, width := range []int{256, 47, 16} {
		for _, threads := range []int{1, 2} {
			p := NewPool(threads)
			b.Run(fmt.Sprintf("width=%d/threads=%d", width, threads), func(b *testing.B) {
				for b.Loop() {
					SpMM(p, y[:n*width], productOf(x[:n*width], width, a, nil, 1, nil))
				}
			})
		}
	}
}
