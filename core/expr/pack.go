package expr

import "sar/core/kernel"

const packShare = 1 << 16 // elements of a task

func eachRows(p *kernel.Pool, n, width int, f func(r0, r1 int)) {
	parts := min(n, 1+n*(width+8)/packShare)
	p.Run(parts, func(t int) { f(n*t/parts, n*(t+1)/parts) })
}

// GatherRows: dst[i, offset:offset+width] = src[idx[i], :]. Rows of dst have stride
// elements, those of src width.
func GatherRows[T Float](p *kernel.Pool, dst []T, offset, stride int, src []T, width int, idx []int32) {
	eachRows(p, len(idx), width, func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			copy(dst[i*stride+offset:][:width], src[int(idx[i])*width:][:width])
		}
	})
}

// ScatterAddRows: dst[idx[i], :] += src[i, offset:offset+width]. No index may occur twice.
func ScatterAddRows[T Float](p *kernel.Pool, dst []T, width int, idx []int32, src []T, offset, stride int) {
	eachRows(p, len(idx), width, func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			to, from := dst[int(idx[i])*width:][:width], src[i*stride+offset:][:width]
			for j, v := range from {
				to[j] += v
			}
		}
	})
}
