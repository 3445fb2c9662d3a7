// Package npy reads and writes arrays as numpy saves them: .npy files, and .npz, which are zips
// of them. Nothing is unpickled.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sar/core/internal/dtypes"
	"sar/core/internal/must"
	"sar/core/store/disk"
)

const maxNpyHeader = 1 << 16

// parse reads the header of an array that is all of f out of its first bytes. what names the array in errors.
func parse(f *disk.File, what string, head []byte) (_ *disk.Array, err error) {
	defer must.Return(&err)
	f.Want(len(head) >= 10 && string(head[:6]) == "\x93NUMPY", 0, "an array that numpy.save wrote", "%q",
		head[:min(len(head), 6)])
	f.Want(head[6] >= 1 && head[6] <= 3, 6, "version 1, 2 or 3 of the .npy format", "version %d", head[6])
	at, n := headerLength(head)
	f.Want(int64(len(head)) >= at, 8, "the length of the header", "the end after %d bytes", len(head))
	f.Want(n <= maxNpyHeader, 8, fmt.Sprintf("a header of at most %d bytes", maxNpyHeader), "%d", n)
	start := at + n
	f.Want(start <= int64(len(head)), 8, fmt.Sprintf("a header of %d bytes", n), "the end after %d bytes", len(head))
	descr, fortran, shape, err := readHeader(string(head[at:start]))
	f.Want(err == nil, at, "a header with descr, fortran_order and shape", "%v", err)
	dtype, err := dtypeOf(descr)
	f.Want(err == nil, at, "an array of little-endian numbers or booleans", "%v", err)
	elements, ok := disk.Elements(shape, dtype.Size(), f.Size-start)
	f.Want(ok && elements*int64(dtype.Size()) == f.Size-start, start,
		fmt.Sprintf("the numbers of an array of shape %v of %s", shape, dtype), "%d bytes", f.Size-start)
	f.Want(len(shape) <= disk.MaxDims, at, fmt.Sprintf("at most %d dimensions", disk.MaxDims), "%d", len(shape))
	return &disk.Array{File: f, Name: what, Offset: start, DType: dtype, Shape: shape, Len: elements,
		Fortran: fortran && !sameInBothOrders(shape)}, nil
}

// headerLength is where the dictionary of a header begins, and its length. What the first bytes of a file do not have
// of it counts as zeros.
func headerLength(head []byte) (at, n int64) {
	length := append(slices.Clone(head[min(8, len(head)):min(12, len(head))]), 0, 0, 0, 0)
	if len(head) > 6 && head[6] > 1 {
		return 12, int64(binary.LittleEndian.Uint32(length))
	}
	return 10, int64(binary.LittleEndian.Uint16(length))
}

// sameInBothOrders says whether Fortran and C order lay the numbers out alike:
// at most one dimension is longer than 1.
func sameInBothOrders(shape []int64) bool {
	long := 0
	for _, d := range shape {
		if d == 0 {
			return true
		}
		if d > 1 {
			long++
		}
	}
	return long <= 1
}

func dtypeOf(descr string) (dtypes.Type, error) {
	if len(descr) < 2 {
		return dtypes.Invalid, fmt.Errorf("type %q", descr)
	}
	order, kind := descr[0], descr[1:]
	switch kind[0] {
	case 'O':
		return dtypes.Invalid, fmt.Errorf("pickled Python objects (type %q), which are never loaded: save numbers", descr)
	case 'U', 'S':
		return dtypes.Invalid, fmt.Errorf("strings (type %q): leave them out or save numbers", descr)
	}
	d, known := dtypes.OfNumpy(kind)
	if !known || !strings.ContainsRune("<|=>", rune(order)) {
		return dtypes.Invalid, fmt.Errorf("type %q", descr)
	}
	if order == '>' && d.Size() > 1 {
		return dtypes.Invalid, fmt.Errorf("big-endian numbers (type %q): save array.astype(array.dtype.newbyteorder('<'))",
			descr)
	}
	return d, nil
}

// headerEntry is a key of the dictionary in Python's words that a header is, and its value.
var headerEntry = regexp.MustCompile(`^\s*['"](\w+)['"]\s*:\s*(True|False|'[^']*'|"[^"]*"|\([^()]*\)|\[.*\])\s*(?:,|$)`)

// readHeader reads the dictionary: the type of numbers, whether the first dimension runs
// fastest, and the shape.
func readHeader(text string) (descr string, fortran bool, shape []int64, err error) {
	rest, open := strings.CutPrefix(strings.TrimSpace(text), "{")
	rest, closed := strings.CutSuffix(rest, "}")
	found := map[string]string{}
	for open && closed && strings.TrimSpace(rest) != "" {
		m := headerEntry.FindStringSubmatch(rest)
		if m == nil {
			return "", false, nil, fmt.Errorf("%.60q", rest)
		}
		found[m[1]], rest = m[2], rest[len(m[0]):]
	}
	descr, order, dims := found["descr"], found["fortran_order"], found["shape"]
	switch {
	case len(found) != 3 || descr == "" || order == "" || dims == "":
		return "", false, nil, fmt.Errorf("%.60q", text)
	case descr[0] == '[':
		return "", false, nil, errors.New("a structured type: save each field as an array of its own")
	case dims[0] != '(' || order != "True" && order != "False":
		return "", false, nil, fmt.Errorf("fortran_order %s and shape %s", order, dims)
	}
	shape = []int64{}
	for d := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(dims[1:len(dims)-1]), ","), ",") {
		// Python 2 wrote long integers with an L.
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(d), "L"), 10, 64)
		if d == "" && len(dims) == 2 {
			break // of a scalar
		}
		if err != nil || n < 0 {
			return "", false, nil, fmt.Errorf("%q for a dimension", d)
		}
		shape = append(shape, n)
	}
	return strings.Trim(descr, `'"`), order == "True", shape, nil
}

// Open opens an .npy file: reads its header, which has to fit the file's size.
func Open(what, path string) (*disk.Array, error) {
	f, err := disk.OpenFile(what, path)
	if err != nil {
		return nil, err
	}
	a, err := fromFile(f, what)
	if err != nil {
		f.Close()
	}
	return a, err
}

func fromFile(f *disk.File, what string) (*disk.Array, error) {
	return readArray(f, what, func(head []byte) error { return f.ReadRaw(head, 0, "the header") })
}

// readArray finds the array that is all of f. read gives the first bytes of f.
func readArray(f *disk.File, what string, read func(head []byte) error) (*disk.Array, error) {
	head := make([]byte, min(f.Size, 512))
	err := read(head)
	if at, n := headerLength(head); err == nil && at+n > int64(len(head)) && n <= maxNpyHeader {
		head = make([]byte, min(f.Size, at+n)) // it is longer than the first guess
		err = read(head)
	}
	if err != nil {
		return nil, err
	}
	return parse(f, what, head)
}

// Arrays is where the array of an .npy file lies; other files have none.
func Arrays(f *disk.File) ([]disk.Array, error) {
	if filepath.Ext(f.Name) != ".npy" {
		return nil, nil
	}
	a, err := fromFile(f, "the array")
	if err != nil {
		return nil, err
	}
	return []disk.Array{*a}, nil
}
