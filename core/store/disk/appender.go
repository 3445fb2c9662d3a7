package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Appender writes a region of a file from its start to its end, in blocks. Finish tells of
// the first error; after one, nothing is written.
type Appender struct {
	f    *os.File
	off  int64 // of the next block
	end  int64 // of the region
	buf  []byte
	size int // of a block
	err  error
}

// NewAppender writes to the bytes of f from off on, in blocks of at most so many.
func NewAppender(f *os.File, off, bytes int64, block int) *Appender {
	return &Appender{f: f, off: off, end: off + bytes, size: int(max(8, min(int64(block), bytes)))}
}

// Write appends b.
func (a *Appender) Write(b []byte) {
	for len(b) > 0 && a.err == nil {
		if a.buf == nil {
			a.buf = make([]byte, 0, a.size)
		}
		n := min(len(b), cap(a.buf)-len(a.buf))
		a.buf = append(a.buf, b[:n]...)
		b = b[n:]
		if len(a.buf) == cap(a.buf) {
			a.flush()
		}
	}
}

// Int64 appends a number.
func (a *Appender) Int64(v int64) {
	if cap(a.buf)-len(a.buf) > 8 {
		a.buf = binary.LittleEndian.AppendUint64(a.buf, uint64(v))
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	a.Write(b[:])
}

func (a *Appender) flush() {
	if len(a.buf) == 0 || a.err != nil {
		return
	}
	if a.off+int64(len(a.buf)) > a.end {
		a.err = fmt.Errorf("store: %s: more data than were counted: did the graph change meanwhile?", a.f.Name())
		return
	}
	_, a.err = a.f.WriteAt(a.buf, a.off)
	a.off += int64(len(a.buf))
	a.buf = a.buf[:0]
}

// Finish writes what is left and checks that the region is full.
func (a *Appender) Finish() error {
	a.flush()
	a.buf = nil
	if a.err == nil && a.off != a.end {
		a.err = fmt.Errorf("store: %s: %d bytes fewer than were counted: did the graph change meanwhile?", a.f.Name(),
			a.end-a.off)
	}
	return a.err
}

// FinishAll finishes all of a list.
func FinishAll(list []*Appender) error {
	var err error
	for _, a := range list {
		err = errors.Join(err, a.Finish())
	}
	return err
}
