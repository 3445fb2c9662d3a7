package dgl

import (
	"path/filepath"
	"testing"

	"sar/core/store/storetest"
)

// The 4 KiB of padding in a graph file would draw nearly all mutations: the
// fuzzer sees files without it.
const padFrom = 32

func unpadded(b []byte) []byte {
	return append(append([]byte(nil), b[:padFrom]...), b[graphsHeader:]...)
}

func padded(b []byte) []byte {
	if len(b) < padFrom {
		return b
	}
	out := make([]byte, graphsHeader, graphsHeader+len(b)-padFrom)
	copy(out, b[:padFrom])
	return append(out, b[padFrom:]...)
}

func FuzzGraphFile(f *testing.F) {
	paths, _ := filepath.Glob("../testdata/dgl-*/*/part*/graph.dgl")
	for _, p := range paths {
		f.Add(unpadded(storetest.MustRead(f, p)))
	}
	homo := bookOf(f, "../testdata/dgl-1.1.3/metis/metis.json")
	hetero := bookOf(f, "../testdata/dgl-1.1.3/hetero/hetero.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		data = padded(data)
		storetest.Bounded(t, data, 64, func(b []byte) error { return readGraph(b, homo, 0) })
		storetest.Bounded(t, data, 64, func(b []byte) error { return readGraph(b, hetero, 1) })
	})
}

func FuzzTensorFile(f *testing.F) {
	storetest.Seeds(f, "../testdata/dgl-*/*/part*/*_feat.dgl")
	f.Fuzz(func(t *testing.T, data []byte) { storetest.Bounded(t, data, 16, readTensors) })
}
