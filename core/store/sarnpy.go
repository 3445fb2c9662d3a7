package store

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sar/core/internal/view"
)

// npyFile is an array of a part that is being written.
type npyFile struct {
	path string
	off  int64 // of the first element
	n    int64 // elements
	json fileJSON
}

// npyBytes is the header of an .npy file.
func npyBytes(d DType, shape []int64) []byte {
	kind := dtypes[d].npy
	if d == BFloat16 { // which numpy does not have
		kind = dtypes[Uint16].npy
	}
	order := "<"
	if d.Size() == 1 {
		order = "|"
	}
	dims := ""
	for _, n := range shape {
		dims += fmt.Sprintf("%d, ", n)
	}
	if len(shape) > 1 {
		dims = strings.TrimSuffix(dims, ", ")
	}
	text := fmt.Sprintf("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }", order, kind, strings.TrimSuffix(dims, " "))
	const fixed, align = 10, 64
	text += strings.Repeat(" ", align-1-(fixed+len(text))%align) + "\n"
	head := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(head[8:], uint16(len(text)))
	return append(head, text...)
}

// newNpy makes an array of a part, of zeros.
func (s *sarWriter) newNpy(p int, name string, d DType, shape ...int64) (npyFile, error) {
	a := npyFile{path: filepath.Join(s.partDir(p), filepath.FromSlash(name)), n: 1, json: fileJSON{File: name, DType: d.String(), Shape: shape}}
	for _, n := range shape {
		a.n *= n
	}
	if err := os.MkdirAll(filepath.Dir(a.path), 0o775); err != nil {
		return a, err
	}
	f, err := os.OpenFile(a.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o664)
	if err != nil {
		return a, err
	}
	head := npyBytes(d, shape)
	a.off = int64(len(head))
	if _, err = f.Write(head); err == nil {
		err = f.Truncate(a.off + a.n*int64(d.Size()))
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return a, err
}

// newArray makes an array of a relation.
func (s *sarWriter) newArray(p, relation int, name string, d DType, n int64) (npyFile, error) {
	r := s.rels[relation]
	a, err := s.newNpy(p, r.dir+"/"+name+".npy", d, n)
	r.arrays[p][name] = a
	s.relation(p, relation).Arrays.set(name, a.json)
	return a, err
}

// write writes elements from the one numbered at on.
func (a npyFile) write(at int64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	f, err := os.OpenFile(a.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	size := int64(4)
	if a.json.DType == Int64.String() {
		size = 8
	}
	if _, err = f.WriteAt(b, a.off+size*at); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// read fills to with elements, int32, from the one numbered at on.
func (a npyFile) read(at int64, to []int32) error {
	if len(to) == 0 {
		return nil
	}
	f, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(view.Bytes(to), a.off+4*at)
	return err
}

// each calls visit with all elements, int32, a run at a time.
func (a npyFile) each(visit func([]int32)) error {
	buf := make([]int32, min(1<<18, a.n))
	for at := int64(0); at < a.n; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), a.n-at)]
		if err := a.read(at, buf); err != nil {
			return err
		}
		visit(buf)
	}
	return nil
}

// fileName makes a file's name out of a name that users gave, one that is not in used.
func fileName(name string, n int, used map[string]bool) string {
	safe := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, name)
	if len(safe) > 100 || used[strings.ToLower(safe)] {
		safe = fmt.Sprintf("%.100s-%d", safe, n)
	}
	used[strings.ToLower(safe)] = true
	return safe
}

// npyArrays is where the array of an .npy file lies; other files have none.
func npyArrays(f *file) ([]array, error) {
	if filepath.Ext(f.name) != ".npy" {
		return nil, nil
	}
	a, err := npyArray(f, "the array")
	if err != nil {
		return nil, err
	}
	return []array{*a}, nil
}
