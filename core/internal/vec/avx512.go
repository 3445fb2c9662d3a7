//go:build goexperiment.simd && amd64

package vec

import "simd/archsimd"

//go:generate go run ./gen

// avx512 is the loops in the files *_avx512_*.go, which are made of templates.
func avx512() *table {
	columnTables["avx512"] = &columnTable{columnsF32x16(), columnsF64x8()}
	t := &table{
		name:      "avx512",
		available: archsimd.X86.AVX512,
		f32:       withElementsF32x16(opsF32x16()),
		f64:       withElementsF64x8(opsF64x8()),
	}
	t.f32.withHalves(opsF32()) // of 256 bits
	t.f64.withHalves(scalarOps[float64]())
	return t
}

// lanes are the numbers of lanes of 32 bits; registers wrap them.
var lanes = [32]uint32{
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
	16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
}
