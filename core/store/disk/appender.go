package disk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Appender writes a region of a file from its start to its end, in blocks, and nothing behind
// the end. Finish tells of the first error.
type Appender struct {
	w    *bufio.Writer
	name string // of the file
	left int64  // bytes of the region; below 0: more came

	held  []byte  // the region, where its rows come in another order
	place []int32 // of the rows that are still to come
}

// NewAppender writes to the bytes of f from off on, in blocks of at most so many.
func NewAppender(f *os.File, off, bytes int64, block int) *Appender {
	w := bufio.NewWriterSize(io.NewOffsetWriter(f, off), int(min(int64(block), bytes)))
	return &Appender{w: w, name: f.Name(), left: bytes}
}

// Place makes each Write one of the row place[k] of the region, for k ascending. held is as large as the region, which
// Finish writes.
func (a *Appender) Place(held []byte, place []int32) { a.held, a.place = held, place }

// Write appends b.
func (a *Appender) Write(b []byte) {
	if a.left -= int64(len(b)); a.left < 0 {
		return
	}
	if a.held != nil {
		copy(a.held[int(a.place[0])*len(b):], b)
		a.place = a.place[1:]
		return
	}
	_, _ = a.w.Write(b) // an error stays, and Finish tells of it
}

// Int64 appends a number.
func (a *Appender) Int64(v int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	a.Write(b[:])
}

// Finish writes what is left and checks that the region is full.
func (a *Appender) Finish() error {
	_, err := a.w.Write(a.held)
	err = errors.Join(err, a.w.Flush())
	if err == nil && a.left != 0 {
		err = fmt.Errorf("store: %s: %d bytes fewer (below 0: more) than were counted: did the graph change meanwhile?",
			a.name, a.left)
	}
	return err
}

// FinishAll finishes all of a list.
func FinishAll(list []*Appender) error {
	var err error
	for _, a := range list {
		err = errors.Join(err, a.Finish())
	}
	return err
}
