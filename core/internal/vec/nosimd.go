//go:build !(goexperiment.simd && amd64)

package vec

func simdTables() []*table { return nil }
