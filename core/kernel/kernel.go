// Package kernel holds the engine's computations on rows: products of a sparse
// matrix with rows of features (SpMM), whole, by rows, or one window of columns
// at a time; the products of rows along edges (SDDMM); and row gather and
// scatter. Arrays are row-major and contiguous; n is rows of the matrix, m its
// columns, E its slots, h heads, d features a head, width = h*d.
//
// Every sum is taken slot by slot in ascending order, starting from +0. So a
// result has the same bits for every number of threads, for every way of
// cutting the columns into windows, and in every run. It may differ in the
// last bits between SIMD paths (see SIMD). Nothing is skipped: zeros multiply
// like other numbers, so NaN and Inf are carried.
package kernel

import (
	"fmt"

	"sar/core/internal/vec"
)

// Float lists the element types.
type Float = vec.Float

// BFloat16 is the upper half of a float32, in which source rows may be stored.
type BFloat16 = vec.BFloat16

// SIMD is the name of the instruction set in use: "scalar", "avx2", "avx512", "neon".
func SIMD() string { return vec.Name() }

// ChooseSIMD puts a path into use, "" for the best of this CPU. The error says
// which there are.
func ChooseSIMD(name string) (string, error) { return vec.Choose(name) }

// CSR is a sparse matrix by rows: row i has slots Ptr[i]..Ptr[i+1]-1, slot k
// reads column Col[k], and Edge[k] is the row of slot k in arrays of edge
// values (nil: k itself). Columns ascend in each row; they may repeat.
type CSR struct {
	Ptr   []int64
	Ptr32 []int32 // Ptr in 32 bits: a matrix has one of the two
	Col   []int32
	Edge  []int32
	Order Order
}

// Order is the order in which kernels compute the rows of a matrix. It changes
// no bit of a result, only the time: rows that read the same source rows are
// best computed one after the other, while those are still in the cache.
type Order struct {
	Rows   []int32 // the row at each place, every row once; nil: as they are
	Before []int64 // [n+1] slots of the rows at the places before this one
	// Before32 is Before of a matrix that has Ptr32.
	Before32 []int32
	// Stored: Col lies in this order too, so that the slots of the row at a place
	// are those from Before on. Ptr and what belongs to edges stay in the order of
	// rows. SpMM takes such a matrix, nothing else does.
	Stored bool
}

// Rows is the number of rows.
func (a *CSR) Rows() int { return max(0, len(a.Ptr)-1, len(a.Ptr32)-1) }

// at is Ptr[i].
func (a *CSR) at(i int) int64 {
	if a.Ptr32 != nil {
		return int64(a.Ptr32[i])
	}
	return a.Ptr[i]
}

// before is the slots of the rows at the places before p of the order, or of
// the rows before p where there is none.
func (a *CSR) before(p int) int64 {
	switch o := &a.Order; {
	case o.Rows == nil:
		return a.at(p)
	case o.Before32 != nil:
		return int64(o.Before32[p])
	default:
		return o.Before[p]
	}
}

// slots are those of row i, which is at a place of the order.
func (a *CSR) slots(place int, i int32) (from, to int64) {
	if a.Order.Stored {
		return a.before(place), a.before(place + 1)
	}
	return a.at(int(i)), a.at(int(i) + 1)
}

// needRows panics where slots do not lie in the order of rows.
func (a *CSR) needRows() {
	if a.Order.Stored {
		panic("kernel: the columns of this matrix are stored in its order, which only SpMM of all rows takes")
	}
}

// row is the row at a place of the order.
func (a *CSR) row(place int) int {
	if a.Order.Rows == nil {
		return place
	}
	return int(a.Order.Rows[place])
}

// need panics when an array is shorter than the kernel is about to assume.
// Behind this check the loops use pointers, so it is what stands between a
// wrong shape and someone else's memory.
func need(name string, have, want int) {
	if have < want {
		panic(fmt.Sprintf("kernel: %s has %d elements, %d are needed", name, have, want))
	}
}
