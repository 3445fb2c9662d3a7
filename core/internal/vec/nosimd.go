//go:build !(goexperiment.simd && (amd64 || arm64))

package vec

func simdTables() []*table { return nil }
