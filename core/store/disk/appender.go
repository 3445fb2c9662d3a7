package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
)

// Appender writes a region of a file from its start to its end, in blocks.
type Appender struct {
	f    *os.File
	off  int64 // of the next block
	end  int64 // of the region
	buf  []byte
	size int // of a block
}

func NewAppender(f *os.File, off, bytes int64, block int) *Appender {
	return &Appender{f: f, off: off, end: off + bytes, size: int(max(8, min(int64(block), bytes)))}
}

func (a *Appender) Write(b []byte) error {
	for len(b) > 0 {
		if a.buf == nil {
			a.buf = make([]byte, 0, a.size)
		}
		n := min(len(b), cap(a.buf)-len(a.buf))
		a.buf = append(a.buf, b[:n]...)
		b = b[n:]
		if len(a.buf) == cap(a.buf) {
			if err := a.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *Appender) Int64(v int64) error {
	if cap(a.buf)-len(a.buf) > 8 {
		a.buf = binary.LittleEndian.AppendUint64(a.buf, uint64(v))
		return nil
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	return a.Write(b[:])
}

// Fill appends n times the byte v.
func (a *Appender) Fill(v byte, n int64) error {
	run := bytes.Repeat([]byte{v}, int(min(n, 4096)))
	for ; n > 0; n -= int64(len(run)) {
		run = run[:min(n, int64(len(run)))]
		if err := a.Write(run); err != nil {
			return err
		}
	}
	return nil
}

func (a *Appender) flush() error {
	if len(a.buf) == 0 {
		return nil
	}
	if a.off+int64(len(a.buf)) > a.end {
		return fmt.Errorf("store: %s: more data than were counted: did the graph change meanwhile?", a.f.Name())
	}
	if _, err := a.f.WriteAt(a.buf, a.off); err != nil {
		return err
	}
	a.off += int64(len(a.buf))
	a.buf = a.buf[:0]
	return nil
}

// finish writes what is left and checks that the region is full.
func (a *Appender) finish() error {
	if err := a.flush(); err != nil {
		return err
	}
	a.buf = nil
	if a.off != a.end {
		return fmt.Errorf("store: %s: %d bytes fewer than were counted: did the graph change meanwhile?", a.f.Name(), a.end-a.off)
	}
	return nil
}

func FinishAll(list []*Appender) error {
	for _, a := range list {
		if a == nil {
			continue
		}
		if err := a.finish(); err != nil {
			return err
		}
	}
	return nil
}

func CloseAll(files []*os.File) error {
	var err error
	for _, f := range files {
		if f != nil {
			if e := f.Close(); e != nil && err == nil {
				err = e
			}
		}
	}
	return err
}
