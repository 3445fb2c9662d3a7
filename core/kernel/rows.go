package kernel

import (
	"unsafe"

	"sar/core/internal/vec"
	"sar/core/internal/view"
)

// Rows are Width columns of a matrix: row i is Data[r*Stride : r*Stride+Width], r = Index[i], or i where there is no
// index. Data begins with the first of these columns.
type Rows[T any] struct {
	Data          []T
	Stride, Width int
	Index         []int32
}

// RowsOf is rows of width numbers that lie one after the other.
func RowsOf[T any](data []T, width int, index []int32) Rows[T] {
	return Rows[T]{Data: data, Stride: width, Width: width, Index: index}
}

// RowsAt is width columns from offset on.
func RowsAt[T any](data []T, offset, stride, width int) Rows[T] {
	return Rows[T]{Data: data[min(offset, len(data)):], Stride: stride, Width: width}
}

func (x *Rows[T]) row(i int) []T {
	if x.Index != nil {
		i = int(x.Index[i])
	}
	return x.Data[i*x.Stride:][:x.Width]
}

// rowsWork is the elements of one task that moves rows or adds them.
const rowsWork = 1 << 16

// eachRows calls f on ranges of n rows that cost about elements each, in
// parallel.
func eachRows(p *Pool, n, elements int, f func(r0, r1 int)) { eachRowsOf(p, taskWork, n, elements, f) }

func eachRowsOf(p *Pool, work, n, elements int, f func(r0, r1 int)) {
	parts := min(n, 1+n*(elements+rowCost)/work)
	p.Run(parts, func(t int) { f(n*t/parts, n*(t+1)/parts) })
}

// CopyRows: dst[i,:] = src[i,:], n rows of any type. No row of dst may occur twice.
func CopyRows[T any](p *Pool, n int, dst, src Rows[T]) {
	var t T
	eachRowsOf(p, rowsWork, n, dst.Width*int(unsafe.Sizeof(t))/4, func(r0, r1 int) {
		to, from := dst, src // the loop keeps them in registers
		for i := r0; i < r1; i++ {
			copy(to.row(i), from.row(i))
		}
	})
}

// shortRow is a row that a call of a loop costs more than.
const shortRow = 8

// AddRows: y[i,:] += x[i,:], n rows. No row of y may occur twice, but for AddRepeatedRows.
func AddRows[T Float](p *Pool, n int, y, x Rows[T]) {
	eachRowsOf(p, rowsWork, n, x.Width, func(r0, r1 int) { addRows(y, x, r0, r1, 0, 1<<31) })
}

// AddRepeatedRows is AddRows for i ascending, where rows of y, of which there are rows, may occur more than once.
func AddRepeatedRows[T Float](p *Pool, n int, y, x Rows[T], rows int) {
	parts := min(p.Threads(), 1+n*x.Width/rowsWork)
	p.Run(parts, func(t int) { addRows(y, x, 0, n, rows*t/parts, rows*(t+1)/parts) })
}

// addRows adds rows i0..i1-1 of x to those of y that are among low..high-1.
func addRows[T Float](y, x Rows[T], i0, i1, low, high int) {
	ops := vec.Get[T]()
	for i := i0; i < i1; i++ {
		if k := int(y.Index[i]); k < low || k >= high {
			continue
		}
		to, from := y.row(i), x.row(i)
		if x.Width >= shortRow {
			ops.Add(to, from)
			continue
		}
		for j, v := range from {
			to[j] += v
		}
	}
}

// ScaleRows: y[i,:] *= s[i]. y [len(s), width].
func ScaleRows[T Float](p *Pool, y []T, width int, s []T) {
	need("y", len(y), len(s)*width)
	ops := vec.Get[T]()
	eachRows(p, len(s), width, func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			ops.Scale(y[i*width:(i+1)*width], s[i])
		}
	})
}

// Narrow rounds x to bfloat16.
func Narrow[T Float](p *Pool, z []BFloat16, x []T) {
	need("x", len(x), len(z))
	ops := vec.Get[T]()
	eachRows(p, len(z), 1, func(r0, r1 int) { ops.Narrow(z[r0:r1], x[r0:r1]) })
}

// NarrowInPlace is Narrow into the front of x's own memory.
func NarrowInPlace[T Float](p *Pool, x []T) {
	z := view.Numbers[BFloat16](view.Bytes(x))
	doubling(len(x), func(begin, end int) { Narrow(p, z[begin:end], x[begin:end]) })
}

// doubling takes n numbers in steps. What a step makes of its own, of half their size or less, goes where steps before
// it have read, so that threads may take its numbers in any order.
func doubling(n int, step func(begin, end int)) {
	for begin, end := 0, min(n, 1); begin < n; begin, end = end, min(n, 2*end) {
		step(begin, end)
	}
}

// NarrowRows: z[i,:] = x[i,:], rounded to bfloat16, n rows.
func NarrowRows[T Float](p *Pool, n int, z Rows[BFloat16], x Rows[T]) {
	ops := vec.Get[T]()
	eachRows(p, n, x.Width, func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			ops.Narrow(z.row(i), x.row(i))
		}
	})
}

// Widen: z = x.
func Widen[T Float](p *Pool, z []T, x []BFloat16) {
	need("x", len(x), len(z))
	ops := vec.Get[T]()
	eachRows(p, len(z), 1, func(r0, r1 int) { ops.Widen(z[r0:r1], x[r0:r1]) })
}
