package store

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// npyHeader is what precedes the numbers of a .npy file.
type npyHeader struct {
	dtype   DType
	fortran bool
	shape   []int64
	start   int64 // of the data
}

const maxNpyHeader = 1 << 16

// parseNpy reads the header of a .npy member from the first bytes of it; size
// is the size of the whole member. name names it in errors.
func parseNpy(name string, head []byte, size int64) (npyHeader, error) {
	var h npyHeader
	bad := func(off int64, want, got string, args ...any) error {
		return &FormatError{File: name, Offset: off, Want: want, Got: fmt.Sprintf(got, args...)}
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
	if h.dtype, err = npyDType(descr); err != nil {
		return h, bad(8+lenBytes, "an array of little-endian numbers or booleans", "%v", err)
	}
	h.fortran, h.shape = fortran, shape
	elems, ok := elements(shape, h.dtype.Size(), size-h.start)
	if !ok || elems*int64(h.dtype.Size()) != size-h.start {
		return h, bad(h.start, fmt.Sprintf("the numbers of an array of shape %v of %s", shape, h.dtype), "%d bytes", size-h.start)
	}
	if len(shape) > maxDims {
		return h, bad(8+lenBytes, fmt.Sprintf("at most %d dimensions", maxDims), "%d", len(shape))
	}
	if fortran && sameInBothOrders(shape) {
		h.fortran = false
	}
	return h, nil
}

// npyHead reads the first bytes of an array of size bytes, enough for its header.
func npyHead(size int64, read func(b []byte) error) ([]byte, error) {
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

func npyDType(descr string) (DType, error) {
	if len(descr) < 2 {
		return Invalid, fmt.Errorf("type %q", descr)
	}
	order, kind := descr[0], descr[1:]
	switch kind[0] {
	case 'O':
		return Invalid, fmt.Errorf("pickled Python objects (type %q), which are never loaded: save numbers", descr)
	case 'U', 'S':
		return Invalid, fmt.Errorf("strings (type %q): leave them out or save numbers", descr)
	}
	for d := Bool; int(d) < len(dtypes); d++ {
		if dtypes[d].npy != kind {
			continue
		}
		if order == '>' && d.Size() > 1 {
			return Invalid, fmt.Errorf("big-endian numbers (type %q): save array.astype(array.dtype.newbyteorder('<'))", descr)
		}
		if order == '<' || order == '|' || order == '=' || order == '>' {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("type %q", descr)
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

// openNpy opens an .npy file: reads its header, which has to fit the file's size.
func openNpy(what, path string) (*array, error) {
	f, err := openFile(what, path)
	if err != nil {
		return nil, err
	}
	a, err := npyArray(f, what)
	if err != nil {
		f.Close()
	}
	return a, err
}

// npyArray reads the header of an .npy file.
func npyArray(f *file, what string) (*array, error) {
	head, err := npyHead(f.size, func(b []byte) error { return f.readRaw(b, 0, "the header") })
	if err != nil {
		return nil, err
	}
	h, err := parseNpy(f.name, head, f.size)
	if err != nil {
		return nil, err
	}
	n, _ := elements(h.shape, 1, f.size)
	return &array{f: f, what: what, off: h.start, dtype: h.dtype, shape: h.shape, n: n, fortran: h.fortran}, nil
}
