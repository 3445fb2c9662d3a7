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
