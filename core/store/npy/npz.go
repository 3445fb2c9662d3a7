package npy

import (
	"archive/zip"
	"fmt"
	"io"
	"strings"

	"sar/core/internal/must"
	"sar/core/store/disk"
)

// Zip is an open .npz file: a zip of .npy members. Members that are stored are
// read in place. Deflated ones are inflated, when first read, into a temporary
// file without a name. Both are held against the CRC-32 that the zip has of them
// before any of their numbers is used.
type Zip struct {
	File    *disk.File
	Arrays  map[string]*disk.Array
	Names   []string // in the order of the file
	members []*member
}

// smallMember is the size up to which a deflated member is inflated into memory.
const smallMember = 1 << 16

// maxInflate is the most that deflate can make of a byte.
const maxInflate = 1032

// OpenZip reads the headers of all members.
func OpenZip(f *disk.File) (_ *Zip, err error) {
	defer must.Return(&err)
	zr, err := zip.NewReader(f.Reader, f.Size)
	f.Want(err == nil, -1, "a .npz file, a zip of arrays as numpy.savez writes it", "%v", err)
	z := &Zip{File: f, Arrays: map[string]*disk.Array{}}
	for _, m := range zr.File {
		z.add(m)
	}
	return z, nil
}

func (z *Zip) add(m *zip.File) {
	at := fmt.Sprintf("%s(%s)", z.File.Name, m.Name)
	want := func(ok bool, want, got string, args ...any) { disk.Want(ok, at, -1, want, got, args...) }
	name, ok := strings.CutSuffix(m.Name, ".npy")
	want(ok && name != "" && len(name) <= disk.MaxName, "members named after arrays, name.npy", "%q", m.Name)
	want(z.Arrays[name] == nil, "each array once", "%q again", name)
	packed, size := m.CompressedSize64, m.UncompressedSize64
	want(m.Flags&1 == 0, "an array that is not encrypted", "an encrypted one")
	want(packed <= uint64(z.File.Size) && size <= maxInflate*packed+64 && (m.Method != zip.Store || size == packed),
		"a size that fits the file", "%d bytes, packed into %d", size, packed)
	must.Do(z.agrees(m, at))
	of := &member{m: m, name: at}
	z.members = append(z.members, of)
	switch m.Method {
	case zip.Store:
		off, err := m.DataOffset()
		want(err == nil && off >= 0 && off <= z.File.Size-int64(size), "a member of the zip",
			"no room for it in the file (%v)", err)
		of.raw = io.NewSectionReader(z.File.Reader, off, int64(size))
	case zip.Deflate:
	default:
		want(false, "a member that is stored or deflated (numpy.savez, numpy.savez_compressed)", "compression method %d",
			m.Method)
	}
	file := &disk.File{Name: at, Size: int64(size), Reader: of}
	// its header, which may not be what its sum says
	a := must.Get(readArray(file, fmt.Sprintf("array %q", name), func(head []byte) error {
		r, err := m.Open()
		if err == nil {
			_, err = io.ReadFull(r, head)
			r.Close()
		}
		want(err == nil, "the header of an array", "a broken zip member: %v", err)
		return nil
	}))
	if size <= smallMember { // what is small is checked now, also where it has no elements to be read
		must.Do(file.ReadRaw(make([]byte, 1), 0, "the array"))
	}
	z.Arrays[name] = a
	z.Names = append(z.Names, name)
}

// Close closes the file.
func (z *Zip) Close() error {
	for _, m := range z.members {
		m.Close()
	}
	return z.File.Close()
}
