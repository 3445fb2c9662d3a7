package session

import (
	"runtime"

	"sar/core/kernel"
	"sar/core/mem"
)

// Computations on rows, by the process's threads and without a graph.
type (
	CSR               = kernel.CSR
	Product[T Float]  = kernel.Product[T]
	Standard[T Float] = kernel.Standard[T]
	Gradient[T Float] = kernel.Gradient[T]
	Dropout           = kernel.Dropout
	Numbers[T Float]  = kernel.Numbers[T]
)

// pool is shared by all sessions of the process: threads belong to the machine. At first there
// are as many as the process may use processors, by its affinity and its control group.
var pool = kernel.NewPool(runtime.GOMAXPROCS(0))

// Threads is the number of kernel threads of the process. SetThreads changes it, to at least 1.
func Threads() int     { return pool.Threads() }
func SetThreads(n int) { pool.SetThreads(n) }

// Parallel calls f(0) … f(tasks-1) on the kernel threads, as kernel.Pool.Run does.
func Parallel(tasks int, f func(task int)) { pool.Run(tasks, f) }

// SIMD is the name of the instruction set in use. ChooseSIMD puts another into use, "" for the best of this CPU.
func SIMD() string                           { return kernel.SIMD() }
func ChooseSIMD(name string) (string, error) { return kernel.ChooseSIMD(name) }

// These are the functions of package kernel that have their names.

func SpMM[T Float](y []T, m Product[T])                 { kernel.SpMM(pool, y, m) }
func SDDMM[T Float](dw, g []T, m Product[T])            { kernel.SDDMM(pool, dw, g, m) }
func Checksum(b []byte) uint64                          { return kernel.Checksum(pool, b) }
func Normalize[T Float](z, x Numbers[T], s Standard[T]) { kernel.Normalize(pool, z, x, s) }
func NormalizeGrad[T Float](z, g, x Numbers[T], s Gradient[T]) {
	kernel.NormalizeGrad(pool, z, g, x, s)
}
func NormalizeBack[T Float](z, g, x Numbers[T], s Standard[T]) {
	kernel.NormalizeBack(pool, z, g, x, s)
}

// Drop has the name of that of package kernel too.
func Drop[T Float](z, x Numbers[T], width int, d Dropout) { kernel.Drop(pool, z, x, width, d) }

func ColumnMoments[T Float](x Numbers[T], width int, mean, squares []float64) {
	kernel.ColumnMoments(pool, x, width, mean, squares)
}

func NormalizeSums[T Float](g, x Numbers[T], s Standard[T], plain, along []float64) {
	kernel.NormalizeSums(pool, g, x, s, plain, along)
}

// ResetPeaks begins anew to look for the most that was held.
func ResetPeaks() { mem.ResetPeaks() }
