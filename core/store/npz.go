package store

import (
	"archive/zip"
	"fmt"
	"io"
	"strings"
)

// npz is an open .npz file: a zip of .npy members. Members that are stored are
// read in place. Deflated ones are inflated, when first read, into a temporary
// file without a name. Both are held against the CRC-32 that the zip has of them
// before any of their numbers is used.
type npz struct {
	f      *file
	arrays map[string]*array
	names  []string // in the order of the file
	temps  []*inflated
}

// smallMember is the size up to which a deflated member is inflated into memory.
const smallMember = 1 << 16

// maxInflate is the most that deflate can make of a byte.
const maxInflate = 1032

func openNpz(f *file) (*npz, error) {
	zr, err := zip.NewReader(f.r, f.size)
	if err != nil {
		return nil, f.bad(-1, "a .npz file, a zip of arrays as numpy.savez writes it", "%v", err)
	}
	z := &npz{f: f, arrays: map[string]*array{}}
	for _, m := range zr.File {
		if err := z.add(m); err != nil {
			return nil, err
		}
	}
	return z, nil
}

func (z *npz) add(m *zip.File) error {
	member := fmt.Sprintf("%s(%s)", z.f.name, m.Name)
	bad := func(want, got string, args ...any) error {
		return &FormatError{File: member, Offset: -1, Want: want, Got: fmt.Sprintf(got, args...)}
	}
	name, ok := strings.CutSuffix(m.Name, ".npy")
	if !ok || name == "" || len(name) > maxName {
		return bad("members named after arrays, name.npy", "%q", m.Name)
	}
	if z.arrays[name] != nil {
		return bad("each array once", "%q again", name)
	}
	packed, size := m.CompressedSize64, m.UncompressedSize64
	if m.Flags&1 != 0 {
		return bad("an array that is not encrypted", "an encrypted one")
	}
	if packed > uint64(z.f.size) || size > maxInflate*packed+64 || (m.Method == zip.Store && size != packed) {
		return bad("a size that fits the file", "%d bytes, packed into %d", size, packed)
	}
	if err := z.agrees(m, member); err != nil {
		return err
	}
	mf := &file{name: member, size: int64(size)}
	var whole *stored
	switch m.Method {
	case zip.Store:
		off, err := m.DataOffset()
		if err != nil || off < 0 || off > z.f.size-int64(size) {
			return bad("a member of the zip", "no room for it in the file (%v)", err)
		}
		whole = &stored{r: io.NewSectionReader(z.f.r, off, int64(size)), m: m, name: member}
		mf.r = whole.r
	case zip.Deflate:
		t := &inflated{m: m, name: member}
		z.temps = append(z.temps, t)
		mf.r = t
	default:
		return bad("a member that is stored or deflated (numpy.savez, numpy.savez_compressed)", "compression method %d", m.Method)
	}
	head, err := z.head(m, mf)
	if err != nil {
		return err
	}
	h, err := parseNpy(member, head, mf.size)
	if err != nil {
		return err
	}
	if whole != nil {
		mf.r = whole // from here on, nothing is read that was not checked
	}
	if size <= smallMember { // and what is small is checked now, also where it has no elements to be read
		if err := mf.readRaw(make([]byte, 1), 0, "the array"); err != nil {
			return err
		}
	}
	n, _ := elements(h.shape, 1, mf.size)
	z.arrays[name] = &array{f: mf, what: fmt.Sprintf("array %q", name), off: h.start, dtype: h.dtype, shape: h.shape, n: n, fortran: h.fortran}
	z.names = append(z.names, name)
	return nil
}

// head returns the first bytes of a member, enough for its header, without
// inflating all of it.
func (z *npz) head(m *zip.File, mf *file) ([]byte, error) {
	return npyHead(mf.size, func(b []byte) error {
		if m.Method == zip.Store {
			return mf.readRaw(b, 0, "the header")
		}
		r, err := m.Open()
		if err == nil {
			_, err = io.ReadFull(r, b)
			r.Close()
		}
		if err != nil {
			return &FormatError{File: mf.name, Offset: -1, Want: "the header of an array", Got: "a broken zip member: " + err.Error()}
		}
		return nil
	})
}

func (z *npz) Close() error {
	for _, t := range z.temps {
		t.Close()
	}
	return z.f.Close()
}
