package kernel

import (
	"sar/core/internal/vec"
)

// eachRows calls f on ranges of n rows that cost about elements each, in
// parallel.
func eachRows(p *Pool, n, elements int, f func(r0, r1 int)) {
	parts := min(n, 1+n*(elements+rowCost)/taskWork)
	p.Run(parts, func(t int) { f(n*t/parts, n*(t+1)/parts) })
}

// GatherRows: dst[i,:] = src[idx[i],:], rows of rowBytes bytes of any type.
func GatherRows(p *Pool, dst, src []byte, rowBytes int, idx []int32) {
	need("dst", len(dst), len(idx)*rowBytes)
	eachRows(p, len(idx), rowBytes/4, func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			from := int(idx[i]) * rowBytes
			copy(dst[i*rowBytes:(i+1)*rowBytes], src[from:from+rowBytes])
		}
	})
}

// ScatterAddRows: y[idx[i],:] += x[i,:]. x [len(idx), width]. No index may
// occur twice.
func ScatterAddRows[T Float](p *Pool, y []T, width int, idx []int32, x []T) {
	need("x", len(x), len(idx)*width)
	ops := vec.Get[T]()
	eachRows(p, len(idx), width, func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			ops.Add(y[int(idx[i])*width:][:width], x[i*width:(i+1)*width])
		}
	})
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
