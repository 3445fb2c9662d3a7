//go:build goexperiment.simd && amd64

package vec

import "simd/archsimd"

//go:generate go run ./gen

func simdTables() []*table {
	return []*table{
		{
			name:      "avx2",
			available: func() bool { return archsimd.X86.AVX2() && archsimd.X86.FMA() },
			f32:       withElementsF32x8(opsF32x8()),
			f64:       withElementsF64x4(opsF64x4()),
		},
		{
			name:      "avx512",
			available: archsimd.X86.AVX512,
			f32:       withElementsF32x16(opsF32x16()),
			f64:       withElementsF64x8(opsF64x8()),
		},
	}
}

// Masks of n lanes are read off these at lanes-n.
var (
	ones32 = [16]int32{-1, -1, -1, -1, -1, -1, -1, -1}
	ones64 = [8]int64{-1, -1, -1, -1}
)

// pageSize is the least that a processor protects as one.
const pageSize = 4096

// lanes are the numbers of lanes of 32 bits; registers wrap them.
var lanes = [32]uint32{
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
	16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
}
