//go:build goexperiment.simd && (amd64 || arm64)

package vec

import (
	"simd/archsimd"
	"unsafe"
)

// The loops in the files *_f32.go and *_f64.go are written once for every processor: on registers of lanesF32 and
// lanesF64 elements, whose types and whose loads and stores a file lanes_*.go names. Go's generics would cost a call
// for each instruction. docs/decisions/0023-one-source.md says why not Go's package simd, and why float64 has fewer
// loops.
//
// Every loop ends with clearUpper: on amd64 Go's own code uses legacy SSE instructions, and the first of
// those after a loop that does not costs hundreds of cycles.

// portable is the loops written once.
func portable(name string, available func() bool) *table {
	return &table{name, available, opsF32(), opsF64(), columnsF32(), columnsF64()}
}

// pageSize is the least that a processor protects as one.
const pageSize = 4096

// What Go copies or moves one by one is moved as integers: floats it moves by legacy SSE instructions.
type wordF32 = uint32

const (
	sizeF32 = int(unsafe.Sizeof(float32(0)))
	sizeF64 = int(unsafe.Sizeof(float64(0)))
	stepF32 = lanesF32 * sizeF32 // bytes of a register
	stepF64 = lanesF64 * sizeF64
)

// firstF32 has ones in the first n lanes.
func firstF32(n int) u32s {
	return *(*u32s)(unsafe.Pointer(&onesF32[lanesF32-n]))
}

// onesF32 is as many ones as a register has lanes, and as many zeros.
var onesF32 = func() (m [2 * lanesF32]uint32) {
	for i := range lanesF32 {
		m[i]--
	}
	return m
}()

// partF32 loads the first n lanes, which in sets, and zeros for the others. At the end of a page, behind
// which there may be nothing, it reads no further than they go.
func partF32(p unsafe.Pointer, in u32s, n int) f32s {
	if uintptr(p)%pageSize > pageSize-uintptr(stepF32) {
		return edgeF32(p, n).And(in).BitsToFloat32()
	}
	return (*(*u32s)(p)).And(in).BitsToFloat32()
}

// pairsF32 stores the sums of the lanes of four registers of 128 bits: of neighbours, twice.
func pairsF32(to unsafe.Pointer, a, b, c, d archsimd.Float32x4) {
	a.ConcatAddPairs(b).ConcatAddPairs(c.ConcatAddPairs(d)).StoreArray((*[4]float32)(to))
}

func pairsF64(to unsafe.Pointer, a, b, c, d archsimd.Float64x2) {
	a.ConcatAddPairs(b).StoreArray((*[2]float64)(to))
	c.ConcatAddPairs(d).StoreArray((*[2]float64)(unsafe.Add(to, 16)))
}

// Rows of 128 bits.
func loadQuadF32(p unsafe.Pointer) archsimd.Float32x4 {
	return archsimd.LoadFloat32x4Array((*[4]float32)(p))
}
func storeQuadF32(p unsafe.Pointer, v archsimd.Float32x4) { v.StoreArray((*[4]float32)(p)) }
