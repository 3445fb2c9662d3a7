package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"sar/core/internal/parallel"
)

// InMemory is bytes that stand in for a file, which tests and fuzzing make.
func InMemory(name string, b []byte) *File {
	return &File{Name: name, Reader: bytes.NewReader(b), Size: int64(len(b))}
}

// File is an open file, or bytes in memory that tests and fuzzing stand in for one.
type File struct {
	Name   string
	Reader io.ReaderAt
	Size   int64
	OS     *os.File  // nil for bytes in memory
	Sums   Checksums // nil where the file has none
}

func (f *File) Close() error {
	if f == nil || f.OS == nil {
		return nil
	}
	return f.OS.Close()
}

func (f *File) Bad(off int64, want, got string, args ...any) error {
	return Bad(f.Name, off, want, got, args...)
}

// Want is Want of the file.
func (f *File) Want(ok bool, off int64, want, got string, args ...any) {
	Want(ok, f.Name, off, want, got, args...)
}

// ReadRaw fills p from off, whatever checksums say. A file that has shrunk since
// it was opened is a format error like one that was short from the start.
func (f *File) ReadRaw(p []byte, off int64, what string) error {
	n, err := f.Reader.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	var damage *FormatError
	if errors.As(err, &damage) {
		return damage // a member of a zip that is not what the zip says
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return f.Bad(off, fmt.Sprintf("%d bytes of %s", len(p), what), "the end of the file after %d", n)
	}
	return fmt.Errorf("%s: reading %s at byte %d: %w", f.Name, what, off, err)
}

// chunk is how many bytes one goroutine reads or sums at a time.
const chunk = 8 << 20

// readLarge fills dst with several positioned reads at a time.
func (f *File) readLarge(dst []byte, off int64, what string) error {
	return inChunks(int64(len(dst)), func(lo, hi int64) error { return f.ReadAt(dst[lo:hi], off+lo, what) })
}

// inChunks calls do for each chunk of n bytes, from a few goroutines, until one
// fails, and returns the first error.
func inChunks(n int64, do func(lo, hi int64) error) error {
	if n <= chunk {
		return do(0, n)
	}
	return parallel.Each(min(4, runtime.GOMAXPROCS(0)), int((n+chunk-1)/chunk), func(_, i int) error {
		lo := int64(i) * chunk
		return do(lo, min(lo+chunk, n))
	})
}
