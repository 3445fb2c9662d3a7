// Package storetest has what the tests of the rooms of store share: small files of every kind,
// and readers held to damaged ones.
package storetest

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// Change edits bytes of a file in place.
func Change(t testing.TB, path string, off int64, b ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

// Directory are the files of a graph directory, by name.
type Directory map[string][]byte

func (d Directory) Write(t testing.TB, dir string) string {
	t.Helper()
	for name, data := range d {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o775); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o664); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// With is a copy in which one file is another.
func (d Directory) With(name string, data []byte) Directory {
	out := maps.Clone(d)
	out[name] = data
	return out
}

func Int32s(v ...int32) (b []byte) {
	for _, x := range v {
		b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
	}
	return b
}

// SmallDirectory is a graph of two node types and two relations: users follow each other, also
// themselves and twice, and rate items, one of which nobody rates.
func SmallDirectory() Directory {
	return Directory{
		"graph.json": []byte(`{
			"format": "SAR graph 1", "name": "small", "made by": "a test",
			"node_types": {
				"user": {"count": 3, "ids": null, "features": {
					"x": {"file": "nodes/user/x.npy", "dtype": "float32", "shape": [3, 2]}}},
				"item": {"count": 2, "features": {}}
			},
			"edge_types": [
				{"type": ["user", "rates", "item"], "count": 2,
				 "indptr": {"file": "edges/r/indptr.npy"}, "source": {"file": "edges/r/source.npy", "dtype": "int64"},
				 "features": {"stars": {"file": "edges/r/stars.npy", "shape": [2]}}},
				{"type": ["user", "follows", "user"], "count": 4, "symmetric": false,
				 "indptr": {"file": "edges/f/indptr.npy", "dtype": "int64", "shape": [4]}, "source": {"file": "edges/f/source.npy"}}
			]}`),
		"nodes/user/x.npy":   Array("<f4", "(3, 2)", Int32s(1, 2, 3, 4, 5, 6)),
		"edges/r/indptr.npy": Array("<i8", "(3,)", Bytes([]int64{0, 0, 2})),
		"edges/r/source.npy": Array("<i8", "(2,)", Bytes([]int64{0, 2})),
		"edges/r/stars.npy":  Array("|u1", "(2,)", []byte{4, 5}),
		"edges/f/indptr.npy": Array("<i8", "(4,)", Bytes([]int64{0, 1, 1, 4})),
		"edges/f/source.npy": Array("<i4", "(4,)", Int32s(0, 1, 1, 2)),
	}
}

func Bytes(v []int64) []byte {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

// NPY makes a .npy file of any header and data.
func NPY(header string, data []byte) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(b[8:], uint16(len(header)))
	return append(append(b, header...), data...)
}

func Array(descr, shape string, data []byte) []byte {
	return NPY(fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape), data)
}

func Zip(t testing.TB, method uint16, members map[string][]byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for name, b := range members {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: method})
		if err == nil {
			_, err = f.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
