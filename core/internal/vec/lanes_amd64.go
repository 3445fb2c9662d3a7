//go:build goexperiment.simd

package vec

import (
	"simd/archsimd"
	"unsafe"
)

// Registers of 256 bits.

func simdTables() []*table {
	avx2 := func() bool { return archsimd.X86.AVX2() && archsimd.X86.FMA() }
	return []*table{portable("avx2", avx2), avx512()}
}

type (
	f32s = archsimd.Float32x8
	u32s = archsimd.Uint32x8
	i32s = archsimd.Int32x8
	f64s = archsimd.Float64x4
	u64s = archsimd.Uint64x4
)

const (
	lanesF32 = 8
	lanesF64 = 4
)

func fillF32(c float32) f32s { return archsimd.BroadcastFloat32x8(c) }
func fillF64(c float64) f64s { return archsimd.BroadcastFloat64x4(c) }
func fillU32(c uint32) u32s  { return archsimd.BroadcastUint32x8(c) }
func fillU64(c uint64) u64s  { return archsimd.BroadcastUint64x4(c) }
func fillI32(c int32) i32s   { return archsimd.BroadcastInt32x8(c) }

// wideBF16 loads as many numbers of bfloat16 as a register of float32 has.
func wideBF16(p unsafe.Pointer) f32s {
	return archsimd.LoadUint16x8Array((*[lanesF32]uint16)(p)).ExtendToUint32().ShiftAllLeft(16).BitsToFloat32()
}

// weaveF32 is the lanes of two registers in turn, and unweaveF32 undoes it.
func weaveF32(even, odd u32s) (low, high u32s) {
	low, high = even.InterleaveLoGrouped(odd), even.InterleaveHiGrouped(odd)
	return low.ConcatPermute128Scalars(0, 2, high), low.ConcatPermute128Scalars(1, 3, high)
}

func unweaveF32(low, high u32s) (even, odd f32s) {
	low, high = low.ConcatPermute128Scalars(0, 2, high), low.ConcatPermute128Scalars(1, 3, high)
	return low.ConcatPermuteScalarsGrouped(0, 2, 4, 6, high).BitsToFloat32(),
		low.ConcatPermuteScalarsGrouped(1, 3, 5, 7, high).BitsToFloat32()
}

// storeBF16 stores the lower halves of lanes, whose upper ones are 0.
func storeBF16(p unsafe.Pointer, v u32s) {
	low, high := v.BitsToInt32().GetLo(), v.BitsToInt32().GetHi()
	low.SaturateToUint16Concat(high).StoreArray((*[lanesF32]uint16)(p))
}

// edgeF32 has the n elements at p in its first lanes: a register that ends where they do, moved down.
func edgeF32(p unsafe.Pointer, n int) u32s {
	back := lanesF32 - n
	return (*(*u32s)(unsafe.Add(p, -back*sizeF32))).Permute(*(*u32s)(unsafe.Pointer(&lanes[back])))
}

// storePartF32 stores the first n lanes, which in sets.
func storePartF32(p unsafe.Pointer, v f32s, in u32s, _ int) {
	v.StoreArrayMasked((*[lanesF32]float32)(p), in.BitsToInt32().ToMask())
}

// store4F32 stores the sums of the lanes of four registers: of halves, and at last of neighbours.
func store4F32(to unsafe.Pointer, a, b, c, d f32s) {
	a0, b0 := a.GetLo().Add(a.GetHi()), b.GetLo().Add(b.GetHi())
	c0, d0 := c.GetLo().Add(c.GetHi()), d.GetLo().Add(d.GetHi())
	pairsF32(to, a0, b0, c0, d0)
}

func store4F64(to unsafe.Pointer, a, b, c, d f64s) {
	a0, b0 := a.GetLo().Add(a.GetHi()), b.GetLo().Add(b.GetHi())
	c0, d0 := c.GetLo().Add(c.GetHi()), d.GetLo().Add(d.GetHi())
	pairsF64(to, a0, b0, c0, d0)
}

// lanes are the numbers of lanes; Permute wraps them.
var lanes = [2 * lanesF32]uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func clearUpper() { archsimd.ClearAVXUpperBits() }
