package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"sar/core/store/disk"
)

// agrees holds the directory of the zip against what stands before a member: a
// damaged name would make a feature another one, and a CRC-32 is of contents alone.
func (z *Zip) agrees(m *zip.File, member string) error {
	bad := func(got string) error {
		return &disk.FormatError{File: member, Offset: -1, Want: "the same name and method of the member in the directory of the zip and before the member", Got: got}
	}
	body, err := m.DataOffset()
	if err != nil {
		return bad(err.Error())
	}
	// A member has a header of 30 bytes, its name, and an extra field whose length the directory does not tell.
	const fixed, longest = 30, 1<<16 - 1
	for _, extra := range []int64{64, longest} {
		end := body
		before := make([]byte, min(end, fixed+int64(len(m.Name))+extra))
		if err := z.File.ReadRaw(before, end-int64(len(before)), "the header of a member"); err != nil {
			return err
		}
		for at := len(before) - fixed - len(m.Name); at >= 0; at-- {
			h := before[at:]
			if binary.LittleEndian.Uint32(h) == 0x04034b50 && int(binary.LittleEndian.Uint16(h[26:])) == len(m.Name) &&
				fixed+len(m.Name)+int(binary.LittleEndian.Uint16(h[28:])) == len(h) {
				if name := string(h[fixed : fixed+len(m.Name)]); name != m.Name {
					return bad(fmt.Sprintf("%q and %q", m.Name, name))
				}
				if method := binary.LittleEndian.Uint16(h[8:]); method != m.Method {
					return bad(fmt.Sprintf("methods %d and %d", m.Method, method))
				}
				return nil
			}
		}
	}
	return bad(fmt.Sprintf("%q and another", m.Name))
}

func sumError(name string, m *zip.File, sum uint32) error {
	return &disk.FormatError{
		File: name, Offset: 0, End: int64(m.UncompressedSize64),
		Want: fmt.Sprintf("an array with the CRC-32 %08x that the zip has of it", m.CRC32), Got: fmt.Sprintf("%08x", sum),
		Remedy: "the file is damaged: copy it or save it again",
	}
}

// stored is a member that was not compressed. Its sum is compared before the
// first byte is given out, which reads it once more.
type stored struct {
	r    *io.SectionReader
	m    *zip.File
	name string
	once sync.Once
	err  error
}

func (s *stored) ReadAt(p []byte, off int64) (int, error) {
	s.once.Do(func() {
		sum := crc32.NewIEEE()
		if _, s.err = io.Copy(sum, io.NewSectionReader(s.r, 0, s.r.Size())); s.err == nil && sum.Sum32() != s.m.CRC32 {
			s.err = sumError(s.name, s.m, sum.Sum32())
		}
	})
	if s.err != nil {
		return 0, s.err
	}
	return s.r.ReadAt(p, off)
}

// inflated is a deflated member as a file that can be read anywhere.
type inflated struct {
	m    *zip.File
	name string
	once sync.Once
	mu   sync.Mutex // guards f against Close
	f    *os.File   // nil where it is small
	r    io.ReaderAt
	err  error
}

func (t *inflated) ReadAt(p []byte, off int64) (int, error) {
	t.once.Do(t.inflate)
	if t.err != nil {
		return 0, t.err
	}
	return t.r.ReadAt(p, off)
}

func (t *inflated) inflate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.m.Open()
	if err != nil {
		t.err = err
		return
	}
	defer r.Close()
	size := int64(t.m.UncompressedSize64)
	sum := crc32.NewIEEE()
	// One byte more than the member claims to have, so that the end is reached,
	// where package zip compares the sum; it leaves out sums of 0.
	limited := io.TeeReader(io.LimitReader(r, size+1), sum)
	if size <= smallMember {
		b, err := io.ReadAll(limited)
		if t.err = t.whole(int64(len(b)), sum.Sum32(), err); t.err == nil {
			t.r = bytes.NewReader(b)
		}
		return
	}
	if t.err = disk.WantRoom(os.TempDir(), size, t.name+", inflated, needs", "name another directory in TMPDIR, or save the array uncompressed (numpy.savez)"); t.err != nil {
		return
	}
	f, err := os.CreateTemp("", "sar-npz-")
	if err != nil {
		t.err = fmt.Errorf("a place for the inflated array (TMPDIR names another): %w", err)
		return
	}
	os.Remove(f.Name())
	n, err := io.Copy(f, limited)
	if isOSError(err) {
		t.err = fmt.Errorf("inflating %s into a temporary file (TMPDIR names another place): %w", t.name, err)
	} else {
		t.err = t.whole(n, sum.Sum32(), err)
	}
	if t.err != nil {
		f.Close()
		return
	}
	t.f, t.r = f, f
}

// whole judges what was inflated: n bytes with a sum, and then err.
func (t *inflated) whole(n int64, sum uint32, err error) error {
	size := int64(t.m.UncompressedSize64)
	switch {
	case errors.Is(err, zip.ErrChecksum) || (err == nil && n == size && sum != t.m.CRC32):
		return sumError(t.name, t.m, sum)
	case err != nil:
		return &disk.FormatError{File: t.name, Offset: -1, Want: fmt.Sprintf("a deflated array of %d bytes", size), Got: err.Error()}
	case n != size:
		return &disk.FormatError{File: t.name, Offset: -1, Want: fmt.Sprintf("a deflated array of %d bytes", size), Got: fmt.Sprintf("%d bytes or more", n)}
	}
	return nil
}

func isOSError(err error) bool {
	var pe *os.PathError
	return errors.As(err, &pe)
}

func (t *inflated) Close() {
	t.once.Do(func() { t.err = os.ErrClosed })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f != nil {
		t.f.Close()
	}
}
