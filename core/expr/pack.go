package expr

import "sar/core/kernel"

const packShare = 1 << 16 // elements of a task

func eachRows(p *kernel.Pool, n, width int, f func(r0, r1 int)) {
	parts := min(n, 1+n*(width+8)/packShare)
	p.Run(parts, func(t int) { f(n*t/parts, n*(t+1)/parts) })
}

// Columns is some columns of a matrix: row i is Data[i*Stride : i*Stride+Width].
type Columns[T Float] struct {
	Data          []T
	Stride, Width int
}

// ColumnsAt is width columns from offset on.
func ColumnsAt[T Float](data []T, offset, stride, width int) Columns[T] {
	return Columns[T]{tail(data, offset), stride, width}
}

func (c *Columns[T]) row(i int) []T { return c.Data[i*c.Stride:][:c.Width] }

// GatherRows: dst[i, :] = src[idx[i], :]. Rows of src are contiguous.
func GatherRows[T Float](p *kernel.Pool, dst Columns[T], src []T, idx []int32) {
	eachRows(p, len(idx), dst.Width, func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			copy(dst.row(i), src[int(idx[i])*dst.Width:][:dst.Width])
		}
	})
}

// ScatterAddRows: dst[idx[i], :] += src[i, :]. Rows of dst are contiguous. No index may occur
// twice.
func ScatterAddRows[T Float](p *kernel.Pool, dst []T, src Columns[T], idx []int32) {
	eachRows(p, len(idx), src.Width, func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			to := dst[int(idx[i])*src.Width:][:src.Width]
			for j, v := range src.row(i) {
				to[j] += v
			}
		}
	})
}
