//go:build goexperiment.simd && amd64

package vec

func init() {
	columnTables["avx2"] = &columnTable{columnsF32x8(), columnsF64x4()}
	columnTables["avx512"] = &columnTable{columnsF32x16(), columnsF64x8()}
}
