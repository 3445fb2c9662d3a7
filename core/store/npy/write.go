package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sar/core/internal/dtypes"
	"sar/core/internal/must"
	"sar/core/internal/view"
)

// Output is an array of a part that is being written.
type Output struct {
	Path      string
	Offset    int64 // of the first element
	Len       int64 // elements
	Described Described
}

// header is the header of an .npy file.
func header(d dtypes.Type, shape []int64) []byte {
	kind := d.Numpy()
	if d == dtypes.BFloat16 { // which numpy does not have
		kind = dtypes.Uint16.Numpy()
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
	text := fmt.Sprintf("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }", order, kind,
		strings.TrimSuffix(dims, " "))
	const fixed, align = 10, 64
	text += strings.Repeat(" ", align-1-(fixed+len(text))%align) + "\n"
	head := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(head[8:], uint16(len(text)))
	return append(head, text...)
}

// Create makes an array of zeros in a file that dir does not have yet.
func Create(dir, name string, d dtypes.Type, shape []int64) (a Output, err error) {
	a = Output{Path: filepath.Join(dir, filepath.FromSlash(name)), Len: 1,
		Described: Described{File: name, DType: d.String(), Shape: shape}}
	for _, n := range shape {
		a.Len *= n
	}
	defer must.Return(&err)
	must.Do(os.MkdirAll(filepath.Dir(a.Path), 0o775))
	f := must.Get(os.OpenFile(a.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o664))
	head := header(d, shape)
	a.Offset = int64(len(head))
	if _, err = f.Write(head); err == nil {
		err = f.Truncate(a.Offset + a.Len*int64(d.Size()))
	}
	return a, errors.Join(err, f.Close())
}

// Write writes elements from the one numbered at on.
func (a Output) Write(at int64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	f, err := os.OpenFile(a.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	size := int64(4)
	if a.Described.DType == dtypes.Int64.String() {
		size = 8
	}
	_, err = f.WriteAt(b, a.Offset+size*at)
	return errors.Join(err, f.Close())
}

// Read fills to with elements, int32, from the one numbered at on.
func (a Output) Read(at int64, to []int32) error {
	if len(to) == 0 {
		return nil
	}
	f, err := os.Open(a.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(view.Bytes(to), a.Offset+4*at)
	return err
}

// Each calls visit with all elements, int32, a run at a time.
func (a Output) Each(visit func([]int32)) error {
	buf := make([]int32, min(1<<18, a.Len))
	for at := int64(0); at < a.Len; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), a.Len-at)]
		if err := a.Read(at, buf); err != nil {
			return err
		}
		visit(buf)
	}
	return nil
}
