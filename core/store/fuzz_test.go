package store

import (
	"archive/zip"
	"encoding/json"
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

// FuzzSums reads what is no file of checksums, and, with its own checksum put
// right, one that fits no file.
func FuzzSums(f *testing.F) {
	path := writeRandom(f, 30, 60, 1)
	f.Add(mustRead(f, filepath.Join(filepath.Dir(path), "part0", checksumFile)), uint(40))
	f.Add([]byte(`{"format": "SAR checksums 1", "method": "crc32c", "files": {"node_feats": {"bytes": 5, "ranges": [{"bytes": 5, "block": 4, "sums": "d2a3f2b100000002"}]}}}`), uint(5))
	f.Fuzz(func(t *testing.T, data []byte, size uint) {
		bounded(t, data, 1024, func(b []byte) error {
			_, err := parseSums("x.crc", b)
			return err
		})
		var top map[string]json.RawMessage
		if json.Unmarshal(data, &top) != nil || len(top) == 0 {
			return
		}
		delete(top, sealKey)
		sealed, err := seal(top)
		if err != nil {
			return
		}
		size %= 1 << 16
		bounded(t, sealed, 1024, func(b []byte) error {
			sums, err := parseSums("x.crc", b)
			if err != nil {
				return err
			}
			for _, of := range sums {
				whole := inMemory(make([]byte, size))
				if err := whole.attach(of); err != nil {
					return err
				}
				if err := whole.readAt(make([]byte, size/2), int64(size)/3, "the middle"); err != nil {
					return err
				}
				if err := whole.check(of); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// FuzzMembers puts arrays into a zip with right checksums: what FuzzNPZ changes
// is nearly always refused for a wrong one.
func FuzzMembers(f *testing.F) {
	ids := make([]byte, 16)
	ids[0], ids[12] = 1, 2
	f.Add(npyOf("<i4", "(2, 2)", ids), npyOf("<f4", "(3, 2)", make([]byte, 24)), npyOf("<i8", "()", []byte{3, 0, 0, 0, 0, 0, 0, 0}), false)
	f.Add(npyOf("<i4", "(2, 2)", ids), npyOf("|b1", "(3,)", make([]byte, 3)), npyOf("<f8", "(2, 1)", ids), true)
	f.Add(npyOf("<u8", "(2, 1)", ids), npyOf("<f2", "(0, 3)", nil), npyOf("<i2", "(1,)", []byte{9, 0}), false)
	f.Fuzz(func(t *testing.T, edges, x, third []byte, deflated bool) {
		method := zip.Store
		if deflated {
			method = zip.Deflate
		}
		for _, names := range [][3]string{{"edge_index", "x", "num_nodes"}, {"a:b:c/edge_index", "a/x", "a:b:c/w"}} {
			b := zipOf(t, method, map[string][]byte{names[0]: edges, names[1]: x, names[2]: third})
			bounded(t, b, 8*maxInflate, readNPZ)
		}
	})
}
