//go:build goexperiment.simd

package vec

import (
	"simd/archsimd"
	"unsafe"
)

// Registers of 128 bits.

// Every arm64 processor has NEON.
func simdTables() []*table {
	return []*table{portable("neon", func() bool { return true })}
}

type (
	f32s = archsimd.Float32x4
	u32s = archsimd.Uint32x4
	i32s = archsimd.Int32x4
	f64s = archsimd.Float64x2
	u64s = archsimd.Uint64x2
)

const (
	lanesF32 = 4
	lanesF64 = 2
)

func fillF32(c float32) f32s { return archsimd.BroadcastFloat32x4(c) }
func fillF64(c float64) f64s { return archsimd.BroadcastFloat64x2(c) }
func fillU32(c uint32) u32s  { return archsimd.BroadcastUint32x4(c) }
func fillU64(c uint64) u64s  { return archsimd.BroadcastUint64x2(c) }
func fillI32(c int32) i32s   { return archsimd.BroadcastInt32x4(c) }

// wideBF16 loads as many numbers of bfloat16 as a register of float32 has.
func wideBF16(p unsafe.Pointer) f32s {
	four := archsimd.BroadcastUint64x2(*(*uint64)(p)).ReshapeToUint16s()
	return four.ExtendLo4ToUint32().ShiftAllLeft(16).BitsToFloat32()
}

// weaveF32 is the lanes of two registers in turn, and unweaveF32 undoes it.
func weaveF32(even, odd u32s) (low, high u32s) { return even.InterleaveLo(odd), even.InterleaveHi(odd) }
func unweaveF32(low, high u32s) (even, odd f32s) {
	return low.ConcatEven(high).BitsToFloat32(), low.ConcatOdd(high).BitsToFloat32()
}

// storeBF16 stores the lower halves of lanes.
func storeBF16(p unsafe.Pointer, v u32s) {
	halves := v.ReshapeToUint16s()
	*(*uint64)(p) = halves.ConcatEven(halves).ReshapeToUint64s().GetElem(0)
}

// edgeF32 has the n elements at p in its first lanes.
func edgeF32(p unsafe.Pointer, n int) u32s {
	var words [lanesF32]uint32
	for i := range n {
		words[i] = *(*uint32)(unsafe.Add(p, i*sizeF32))
	}
	return *(*u32s)(unsafe.Pointer(&words))
}

// storePartF32 stores the first n lanes, which in sets.
func storePartF32(p unsafe.Pointer, v f32s, _ u32s, n int) { v.StorePart((*[lanesF32]float32)(p)[:n]) }

// store4F32 stores the sums of the lanes of four registers: of the two halves, and of neighbours.
func store4F32(to unsafe.Pointer, a, b, c, d f32s) { pairsF32(to, a, b, c, d) }
func store4F64(to unsafe.Pointer, a, b, c, d f64s) { pairsF64(to, a, b, c, d) }

func clearUpper() {}
