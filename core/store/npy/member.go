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
	bad := func(got string, args ...any) error {
		return disk.Bad(member, -1,
			"the same name and method of the member in the directory of the zip and before the member", got, args...)
	}
	body, err := m.DataOffset()
	if err != nil {
		return bad("%v", err)
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
					return bad("%q and %q", m.Name, name)
				}
				if method := binary.LittleEndian.Uint16(h[8:]); method != m.Method {
					return bad("methods %d and %d", m.Method, method)
				}
				return nil
			}
		}
	}
	return bad("%q and another", m.Name)
}

// member is an array in a zip as a file that can be read anywhere. Before the first byte is given
// out, all of it is read and its sum compared; what is deflated goes to memory, or to a temporary
// file without a name.
type member struct {
	m    *zip.File
	name string
	raw  io.ReaderAt // the array in the zip itself; nil where it is deflated

	once sync.Once
	mu   sync.Mutex // guards temp against Close
	temp *os.File
	r    io.ReaderAt
	err  error
}

func (t *member) ReadAt(p []byte, off int64) (int, error) {
	t.once.Do(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.err = t.load()
	})
	if t.err != nil {
		return 0, t.err
	}
	return t.r.ReadAt(p, off)
}

func (t *member) load() error {
	size := int64(t.m.UncompressedSize64)
	if t.raw != nil {
		t.r = t.raw
		return t.copy(io.Discard)
	}
	if size <= smallMember {
		var b bytes.Buffer
		err := t.copy(&b)
		t.r = bytes.NewReader(b.Bytes())
		return err
	}
	if err := disk.WantRoom(os.TempDir(), size, t.name+", inflated, needs",
		"name another directory in TMPDIR, or save the array uncompressed (numpy.savez)"); err != nil {
		return err
	}
	f, err := os.CreateTemp("", "sar-npz-")
	if err != nil {
		return fmt.Errorf("a place for the inflated array (TMPDIR names another): %w", err)
	}
	os.Remove(f.Name())
	t.temp, t.r = f, f // Close closes it
	return t.copy(f)
}

// copy reads the member to its end, where its sum is compared.
func (t *member) copy(to io.Writer) error {
	size := int64(t.m.UncompressedSize64)
	damage := func(off, end int64, want, got, remedy string) error {
		return &disk.FormatError{File: t.name, Offset: off, End: end, Want: want, Got: got, Remedy: remedy}
	}
	r, err := t.m.Open()
	if err != nil {
		return damage(-1, 0, fmt.Sprintf("an array of %d bytes", size), err.Error(), "")
	}
	defer r.Close()
	sum := crc32.NewIEEE()
	// One byte more than the member claims to have, so that the end is reached,
	// where package zip compares the sum; it leaves out sums of 0.
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(r, size+1))
	var system *os.PathError
	switch {
	case errors.As(err, &system) && t.temp != nil:
		return fmt.Errorf("inflating %s into a temporary file (TMPDIR names another place): %w", t.name, err)
	case errors.Is(err, zip.ErrChecksum), err == nil && n == size && sum.Sum32() != t.m.CRC32:
		return damage(0, size, fmt.Sprintf("an array with the CRC-32 %08x that the zip has of it", t.m.CRC32),
			fmt.Sprintf("%08x", sum.Sum32()),
			"the file is damaged: copy it or save it again")
	case err != nil:
		return damage(-1, 0, fmt.Sprintf("an array of %d bytes", size), err.Error(), "")
	case n != size:
		return damage(-1, 0, fmt.Sprintf("an array of %d bytes", size), fmt.Sprintf("%d bytes or more", n), "")
	}
	return nil
}

func (t *member) Close() {
	t.once.Do(func() { t.err = os.ErrClosed })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.temp != nil {
		t.temp.Close()
	}
}
