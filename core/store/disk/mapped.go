package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"sar/core/mem"
)

// MapAlign is how a mapped feature begins in memory: as an array of its own would. Products of
// torch may differ in their last bits between rows that begin so and rows that do not.
const MapAlign = 64

// MappedFeature is a feature in the address space of the process.
type MappedFeature struct {
	mem.Array[byte]
	file       *File
	direct     *os.File // past the page cache; nil where the file system cannot
	start, end int64    // of the feature in the file
	what       string
}

// Map maps an array of one number or more.
func (a *Array) Map() (*MappedFeature, error) {
	if a.Offset%MapAlign != 0 {
		return a.mapCopy()
	}
	m, err := a.File.Map(a.Offset, a.Bytes(), a.Name)
	if err != nil {
		return nil, err
	}
	// a descriptor of its own, to look at the size of the file later
	fd, err := unix.FcntlInt(a.File.OS.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		m.Free()
		return nil, fmt.Errorf("%s: mapping %s: %w", a.File.Name, a.Name, err)
	}
	own := &File{Name: a.File.Name, OS: os.NewFile(uintptr(fd), a.File.Name), Size: a.File.Size}
	return newMappedFeature(m, own, a.Offset, a.Name), nil
}

// mapCopy maps a copy of the array in a file without a name.
func (a *Array) mapCopy() (*MappedFeature, error) {
	dir := filepath.Dir(a.File.Name)
	refuse := func(err error) error {
		return fmt.Errorf("%s has %s at byte %d, which is no multiple of %d, so that it cannot be mapped as it lies, and "+
			"no copy can be made in %s: %w; "+
			"read it into memory (sar.Config.features = \"memory\"), or write the partition in SAR's format", a.File.Name,
			a.Name, a.Offset, MapAlign, dir, err)
	}
	fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, refuse(err)
	}
	copied := &File{Name: a.File.Name + " (copy)", OS: os.NewFile(uintptr(fd), a.File.Name+" (copy)"), Size: a.Bytes()}
	err = unix.Fallocate(fd, 0, 0, a.Bytes()) // so that a full disk shows now
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = unix.Ftruncate(fd, a.Bytes())
	}
	if err != nil {
		copied.Close()
		return nil, refuse(err)
	}
	buffer := make([]byte, min(a.Bytes(), chunk))
	for at := int64(0); at < a.Bytes(); at += chunk {
		b := buffer[:min(chunk, a.Bytes()-at)]
		if err = a.File.ReadAt(b, a.Offset+at, a.Name); err == nil {
			_, err = copied.OS.WriteAt(b, at)
		}
		if err != nil {
			copied.Close()
			return nil, err
		}
		// What is written counts as memory of the process until it is on the disk.
		_ = unix.SyncFileRange(fd, at, int64(len(b)),
			unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	}
	m, err := mem.Map[byte](mem.Mapped, copied.OS, 0, int(a.Bytes()))
	if err != nil {
		copied.Close()
		return nil, fmt.Errorf("%s: mapping %s: %w", copied.Name, a.Name, err)
	}
	return newMappedFeature(m, copied, 0, a.Name), nil
}

// newMappedFeature is what m maps of file f, from byte start on.
func newMappedFeature(m mem.Array[byte], f *File, start int64, what string) *MappedFeature {
	made := &MappedFeature{Array: m, file: f, start: start, end: start + int64(len(m.Data)), what: what}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.OS.Fd()), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err == nil {
		made.direct = os.NewFile(uintptr(fd), f.Name)
	}
	return made
}

// directAlign is of what reads past the page cache are multiples, in the file and in memory.
const directAlign = 4096

// Read reads n bytes of Data from first on from the disk into a window of 8 KiB more, and returns
// where they begin in it. They begin at the same place in a line of the processor's cache as in
// Data. It returns -1, and reads nothing, where Data is as good: if the page cache has them, or if
// some were written to, so that the file does not have them.
//
// What is read goes past the page cache, where the file system can do that. Features larger than
// memory would only pass through the cache, which takes more of a processor's time than the
// products that they are read for, and pushes out rows that it holds.
//
// Read is the place to notice that the file was made shorter after it was opened: to touch what is
// missing would kill the process.
func (m *MappedFeature) Read(first, n int64, window []byte) (at int64, err error) {
	st, err := m.file.OS.Stat()
	if err != nil {
		return 0, err
	}
	if st.Size() < m.end {
		return 0, m.cutOff(st.Size())
	}
	if m.cached(first, n) || mem.Written(m.Data[first:first+n]) {
		return -1, nil
	}
	lead := (m.start + first) % directAlign
	size := (lead + n + directAlign - 1) &^ (directAlign - 1)
	pad := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(window)))) & (directAlign - 1)
	if pad+size > int64(len(window)) {
		return 0, fmt.Errorf("store: a window of %d bytes for %d bytes of %s", len(window), n, m.what)
	}
	got, err := m.readAt(window[pad:pad+size], m.start+first-lead)
	switch {
	case int64(got) >= lead+n: // more than that may be past the end of the file
		return pad + lead, nil
	case err == nil || errors.Is(err, io.EOF):
		return 0, m.cutOff(m.start + first - lead + int64(got))
	default:
		return 0, fmt.Errorf("%s: reading %s: %w", m.file.Name, m.what, err)
	}
}

// readAt reads past the page cache if that can be done.
func (m *MappedFeature) readAt(b []byte, off int64) (int, error) {
	if m.direct != nil {
		got, err := m.direct.ReadAt(b, off)
		if !errors.Is(err, unix.EINVAL) {
			return got, err
		}
	}
	return m.file.OS.ReadAt(b, off)
}

// cutOff is the error of a file that ends at byte size.
func (m *MappedFeature) cutOff(size int64) error {
	return m.file.Bad(size, fmt.Sprintf("%s as it was when the file was opened, up to byte %d", m.what, m.end),
		"the end of the file")
}

// cached says whether the page cache has n bytes from first on. It looks at one in 64 KiB: pages
// are read and dropped by many at a time, and a page that is missing is read when it is touched.
func (m *MappedFeature) cached(first, n int64) bool {
	b := [][]byte{make([]byte, 1)}
	for at := first; at < first+n; at += 64 << 10 {
		if got, err := unix.Preadv2(int(m.file.OS.Fd()), b, m.start+at, unix.RWF_NOWAIT); got != 1 || err != nil {
			return false
		}
	}
	return true
}

// Close unmaps the feature. Nobody may use its memory any longer.
func (m *MappedFeature) Close() error {
	m.Free()
	if m.direct != nil {
		_ = m.direct.Close() // nothing was written
	}
	return m.file.Close()
}

// View maps a part of the file, for reads in no order. Bytes in memory are copied: they
// only stand in for files.
func (f *File) View(off, n int64, what string) (b mem.Array[byte], err error) {
	if f.OS != nil {
		return f.Map(off, n, what)
	}
	if b, err = mem.Make[byte](mem.Mapped, int(n)); err == nil {
		err = f.ReadAt(b.Data, off, what)
	}
	return b, err
}

// Map maps a part of the file. What is mapped is not read by blocks, so the whole range
// is held against its checksums now.
func (f *File) Map(off, n int64, what string) (mem.Array[byte], error) {
	if f.Sums != nil && n > 0 {
		if err := f.Check(Checksums{*f.Sums.of(off)}); err != nil {
			return mem.Array[byte]{}, err
		}
	}
	m, err := mem.Map[byte](mem.Mapped, f.OS, off, int(n))
	if err != nil {
		err = fmt.Errorf("%s: mapping %s: %w", f.Name, what, err)
	}
	return m, err
}
