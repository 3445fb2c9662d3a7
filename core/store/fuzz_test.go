package store

import (
	"errors"
	"path/filepath"
	"runtime/metrics"
	"testing"
)

// bounded runs a reader on input of a fuzzer: it may fail with a FormatError
// alone, and must not take memory out of proportion to the input. The slack of
// 8 MiB is for the fuzzing engine, whose memory is counted along.
func bounded(t *testing.T, data []byte, perByte uint64, read func([]byte) error) {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	before := s[0].Value.Uint64()
	err := read(data)
	metrics.Read(s)
	if taken := s[0].Value.Uint64() - before; taken > 8<<20+perByte*uint64(len(data)) {
		t.Errorf("%d bytes of memory for an input of %d", taken, len(data))
	}
	var fe *FormatError
	if err != nil && !errors.As(err, &fe) {
		t.Errorf("%v is no FormatError", err)
	}
}

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

func seeds(f *testing.F, pattern string) {
	paths, _ := filepath.Glob(pattern)
	if len(paths) == 0 {
		f.Fatalf("no seeds: %s", pattern)
	}
	for _, p := range paths {
		f.Add(mustRead(f, p))
	}
}

func FuzzGraphFile(f *testing.F) {
	paths, _ := filepath.Glob("testdata/dgl-*/*/part*/graph.dgl")
	for _, p := range paths {
		f.Add(unpadded(mustRead(f, p)))
	}
	homo := bookOf(f, "testdata/dgl-1.1.3/metis/metis.json")
	hetero := bookOf(f, "testdata/dgl-1.1.3/hetero/hetero.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		data = padded(data)
		bounded(t, data, 64, func(b []byte) error { return readGraph(b, homo, 0) })
		bounded(t, data, 64, func(b []byte) error { return readGraph(b, hetero, 1) })
	})
}

func FuzzTensorFile(f *testing.F) {
	seeds(f, "testdata/dgl-*/*/part*/*_feat.dgl")
	f.Fuzz(func(t *testing.T, data []byte) { bounded(t, data, 16, readTensors) })
}

func FuzzPartitionJSON(f *testing.F) {
	seeds(f, "testdata/dgl-*/*/*.json")
	f.Fuzz(func(t *testing.T, data []byte) { bounded(t, data, 1024, readDescription) })
}

func FuzzNPZ(f *testing.F) {
	seeds(f, "testdata/npz/*.npz")
	f.Fuzz(func(t *testing.T, data []byte) { bounded(t, data, 8*maxInflate, readNPZ) })
}
