// Package npy reads and writes arrays as numpy saves them: .npy files, and .npz, which are zips
// of them. Nothing is unpickled.
package npy

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"sar/core/store/disk"
)

// fields is what precedes the numbers of a .npy file.
type fields struct {
	dtype   disk.DType
	fortran bool
	shape   []int64
	start   int64 // of the data
}

const maxNpyHeader = 1 << 16

// parse reads the header of a .npy member from the first bytes of it; size
// is the size of the whole member. name names it in errors.
func parse(name string, head []byte, size int64) (fields, error) {
	var h fields
	bad := func(off int64, want, got string, args ...any) error {
		return &disk.FormatError{File: name, Offset: off, Want: want, Got: fmt.Sprintf(got, args...)}
	}
	if len(head) < 10 || string(head[:6]) != "\x93NUMPY" {
		return h, bad(0, "an array that numpy.save wrote", "%q", head[:min(len(head), 6)])
	}
	lenBytes := int64(2)
	switch major := head[6]; major {
	case 1:
	case 2, 3:
		lenBytes = 4
	default:
		return h, bad(6, "version 1, 2 or 3 of the .npy format", "version %d", major)
	}
	if int64(len(head)) < 8+lenBytes {
		return h, bad(8, "the length of the header", "the end after %d bytes", len(head))
	}
	n := int64(binary.LittleEndian.Uint16(head[8:]))
	if lenBytes == 4 {
		n = int64(binary.LittleEndian.Uint32(head[8:]))
	}
	if n > maxNpyHeader {
		return h, bad(8, fmt.Sprintf("a header of at most %d bytes", maxNpyHeader), "%d", n)
	}
	h.start = 8 + lenBytes + n
	if h.start > int64(len(head)) {
		return h, bad(8, fmt.Sprintf("a header of %d bytes", n), "the end after %d bytes", len(head))
	}
	d := literal{s: string(head[8+lenBytes : h.start])}
	descr, fortran, shape, err := d.header()
	if err != nil {
		return h, bad(8+lenBytes+int64(d.at), "a header with descr, fortran_order and shape", "%v", err)
	}
	if h.dtype, err = dtypeOf(descr); err != nil {
		return h, bad(8+lenBytes, "an array of little-endian numbers or booleans", "%v", err)
	}
	h.fortran, h.shape = fortran, shape
	elems, ok := disk.Elements(shape, h.dtype.Size(), size-h.start)
	if !ok || elems*int64(h.dtype.Size()) != size-h.start {
		return h, bad(h.start, fmt.Sprintf("the numbers of an array of shape %v of %s", shape, h.dtype), "%d bytes", size-h.start)
	}
	if len(shape) > disk.MaxDims {
		return h, bad(8+lenBytes, fmt.Sprintf("at most %d dimensions", disk.MaxDims), "%d", len(shape))
	}
	if fortran && sameInBothOrders(shape) {
		h.fortran = false
	}
	return h, nil
}

// head reads the first bytes of an array of size bytes, enough for its header.
func head(size int64, read func(b []byte) error) ([]byte, error) {
	head := make([]byte, min(size, 512))
	if err := read(head); err != nil || len(head) < 12 {
		return head, err
	}
	// A header may be longer than the first guess.
	n := 10 + int64(binary.LittleEndian.Uint16(head[8:]))
	if head[6] > 1 {
		n = 12 + int64(binary.LittleEndian.Uint32(head[8:]))
	}
	if n > int64(len(head)) && n <= maxNpyHeader+12 {
		head = make([]byte, min(size, n))
		return head, read(head)
	}
	return head, nil
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

func dtypeOf(descr string) (disk.DType, error) {
	if len(descr) < 2 {
		return disk.Invalid, fmt.Errorf("type %q", descr)
	}
	order, kind := descr[0], descr[1:]
	switch kind[0] {
	case 'O':
		return disk.Invalid, fmt.Errorf("pickled Python objects (type %q), which are never loaded: save numbers", descr)
	case 'U', 'S':
		return disk.Invalid, fmt.Errorf("strings (type %q): leave them out or save numbers", descr)
	}
	d, known := disk.DTypeOfNumpy(kind)
	if !known || !strings.ContainsRune("<|=>", rune(order)) {
		return disk.Invalid, fmt.Errorf("type %q", descr)
	}
	if order == '>' && d.Size() > 1 {
		return disk.Invalid, fmt.Errorf("big-endian numbers (type %q): save array.astype(array.dtype.newbyteorder('<'))", descr)
	}
	return d, nil
}

// literal reads the one kind of Python literal that a .npy header is: a
// dictionary of strings, booleans and tuples of whole numbers.
type literal struct {
	s  string
	at int
}

func (l *literal) space() {
	for l.at < len(l.s) && strings.IndexByte(" \t\r\n", l.s[l.at]) >= 0 {
		l.at++
	}
}

func (l *literal) is(c byte) bool {
	l.space()
	if l.at < len(l.s) && l.s[l.at] == c {
		l.at++
		return true
	}
	return false
}

func (l *literal) need(c byte) error {
	if !l.is(c) {
		return fmt.Errorf("no %q where it should be", c)
	}
	return nil
}

func (l *literal) str() (string, error) {
	l.space()
	if l.at >= len(l.s) || (l.s[l.at] != '\'' && l.s[l.at] != '"') {
		return "", fmt.Errorf("no string where it should be")
	}
	quote := l.s[l.at]
	end := strings.IndexByte(l.s[l.at+1:], quote)
	if end < 0 {
		return "", fmt.Errorf("a string without an end")
	}
	s := l.s[l.at+1 : l.at+1+end]
	l.at += end + 2
	return s, nil
}

func (l *literal) word() string {
	l.space()
	start := l.at
	for l.at < len(l.s) && (l.s[l.at] >= 'a' && l.s[l.at] <= 'z' || l.s[l.at] >= 'A' && l.s[l.at] <= 'Z' || l.s[l.at] >= '0' && l.s[l.at] <= '9') {
		l.at++
	}
	return l.s[start:l.at]
}

func (l *literal) tuple() ([]int64, error) {
	if err := l.need('('); err != nil {
		return nil, err
	}
	shape := []int64{}
	for !l.is(')') {
		// Python 2 wrote long integers with an L.
		w := strings.TrimSuffix(l.word(), "L")
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q for a dimension", w)
		}
		shape = append(shape, n)
		if !l.is(',') {
			return shape, l.need(')')
		}
	}
	return shape, nil
}

func (l *literal) header() (descr string, fortran bool, shape []int64, err error) {
	if err = l.need('{'); err != nil {
		return
	}
	seen := map[string]bool{}
	for !l.is('}') {
		var key string
		if key, err = l.str(); err != nil {
			return
		}
		if err = l.need(':'); err != nil {
			return
		}
		switch key {
		case "descr":
			if l.space(); l.at < len(l.s) && l.s[l.at] == '[' {
				err = fmt.Errorf("a structured type: save each field as an array of its own")
			} else {
				descr, err = l.str()
			}
		case "fortran_order":
			switch w := l.word(); w {
			case "True":
				fortran = true
			case "False":
				fortran = false
			default:
				err = fmt.Errorf("fortran_order %q", w)
			}
		case "shape":
			shape, err = l.tuple()
		default:
			err = fmt.Errorf("key %q", key)
		}
		if err != nil {
			return
		}
		seen[key] = true
		if !l.is(',') {
			if err = l.need('}'); err != nil {
				return
			}
			break
		}
	}
	if !seen["descr"] || !seen["fortran_order"] || !seen["shape"] {
		err = fmt.Errorf("only some of them")
	}
	return
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

// fromFile reads the header of an .npy file.
func fromFile(f *disk.File, what string) (*disk.Array, error) {
	head, err := head(f.Size, func(b []byte) error { return f.ReadRaw(b, 0, "the header") })
	if err != nil {
		return nil, err
	}
	h, err := parse(f.Name, head, f.Size)
	if err != nil {
		return nil, err
	}
	n, _ := disk.Elements(h.shape, 1, f.Size)
	return &disk.Array{File: f, Name: what, Offset: h.start, DType: h.dtype, Shape: h.shape, Len: n, Fortran: h.fortran}, nil
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
