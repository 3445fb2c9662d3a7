package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"sar/core/mem"
)

// mapAlign is how a mapped feature begins in memory: as an array of its own would. Products of
// torch may differ in their last bits between rows that begin so and rows that do not.
const mapAlign = 64

// MappedFeature is a feature in the address space of the process.
type MappedFeature struct {
	mem.Array[byte]
	file *file
	end  int64 // where the feature ends in the file
	what string
}

// MapFeature maps a feature of one number or more, as NodeFeatures or EdgeFeatures names it, in
// place of reading it. Where the partition has checksums, the whole feature is held against them
// now. The feature stays mapped when the partition is closed; free it.
//
// A file of DGL's format may have a feature at any byte. One that does not begin at a multiple of
// 64 is copied to a file without a name in the same directory, which goes with the mapping.
func (p *Partition) MapFeature(edge bool, name string) (*MappedFeature, error) {
	a, err := p.feature(edge, name)
	if err != nil {
		return nil, err
	}
	if a.off%mapAlign != 0 {
		return a.mapCopy()
	}
	m, err := a.f.mapped(a.off, a.bytes(), a.what)
	if err != nil {
		return nil, err
	}
	// a descriptor of its own, to look at the size of the file later
	fd, err := unix.FcntlInt(a.f.os.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		m.Free()
		return nil, fmt.Errorf("%s: mapping %s: %w", a.f.name, a.what, err)
	}
	own := &file{name: a.f.name, os: os.NewFile(uintptr(fd), a.f.name), size: a.f.size}
	return &MappedFeature{m, own, a.off + a.bytes(), a.what}, nil
}

// mapCopy maps a copy of the array in a file without a name.
func (a *array) mapCopy() (*MappedFeature, error) {
	dir := filepath.Dir(a.f.name)
	refuse := func(err error) error {
		return fmt.Errorf("%s has %s at byte %d, which is no multiple of %d, so that it cannot be mapped as it lies, and no copy can be made in %s: %w; "+
			"read it into memory (sar.Config.features = \"memory\"), or write the partition in SAR's format", a.f.name, a.what, a.off, mapAlign, dir, err)
	}
	fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, refuse(err)
	}
	copied := &file{name: a.f.name + " (copy)", os: os.NewFile(uintptr(fd), a.f.name+" (copy)"), size: a.bytes()}
	err = unix.Fallocate(fd, 0, 0, a.bytes()) // so that a full disk shows now
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = unix.Ftruncate(fd, a.bytes())
	}
	if err != nil {
		copied.Close()
		return nil, refuse(err)
	}
	buffer := make([]byte, min(a.bytes(), chunk))
	for at := int64(0); at < a.bytes(); at += chunk {
		b := buffer[:min(chunk, a.bytes()-at)]
		if err = a.f.readAt(b, a.off+at, a.what); err == nil {
			_, err = copied.os.WriteAt(b, at)
		}
		if err != nil {
			copied.Close()
			return nil, err
		}
		// What is written counts as memory of the process until it is on the disk.
		_ = unix.SyncFileRange(fd, at, int64(len(b)), unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	}
	m, err := mem.Map[byte](mem.Mapped, copied.os, 0, int(a.bytes()))
	if err != nil {
		copied.Close()
		return nil, fmt.Errorf("%s: mapping %s: %w", copied.name, a.what, err)
	}
	return &MappedFeature{m, copied, a.bytes(), a.what}, nil
}

// WillRead says that n bytes from off on are read next, so that the system brings them in
// meanwhile. It is the place to notice that the file was made shorter after it was opened: to
// touch what is missing would kill the process.
func (m *MappedFeature) WillRead(off, n int64) error {
	st, err := m.file.os.Stat()
	if err != nil {
		return err
	}
	if st.Size() < m.end {
		return m.file.bad(st.Size(), fmt.Sprintf("%s as it was when the file was opened, up to byte %d", m.what, m.end), "the end of the file")
	}
	m.Prefetch(off, n)
	return nil
}

// Close unmaps the feature. Nobody may use its memory any longer.
func (m *MappedFeature) Close() error {
	m.Free()
	return m.file.Close()
}
