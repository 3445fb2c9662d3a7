// Package disk reads files that may be damaged: arrays of numbers at a place in a file, held
// against checksums block by block where the file has some, streamed or mapped. It has the
// files of checksums themselves, descriptions in JSON that carry their own checksum, and
// appenders that write a region of a file.
//
// Every size is checked against the file before memory is taken for it, and what is wrong is a
// *FormatError with its place.
package disk

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"sar/core/internal/must"
)

// FormatError says that a file is damaged, or is not what its place demands.
type FormatError struct {
	File   string
	Offset int64  // byte of the file, -1 where there is none
	End    int64  // end of the range that begins at Offset; 0 where it is one place
	Want   string // what was expected
	Got    string // what was found
	Remedy string // what to do; "" for what the kind of file suggests
}

func (e *FormatError) Error() string {
	at := ""
	switch {
	case e.Offset >= 0 && e.End > e.Offset:
		at = fmt.Sprintf(" at bytes %d to %d", e.Offset, e.End-1)
	case e.Offset >= 0:
		at = fmt.Sprintf(" at byte %d", e.Offset)
	}
	return fmt.Sprintf("%s%s: expected %s, found %s%s", e.File, at, e.Want, e.Got, e.mend())
}

// Bad is the error of what is wrong at a byte of a file, -1 where it is none.
func Bad(file string, off int64, want, got string, args ...any) error {
	return &FormatError{File: file, Offset: off, Want: want, Got: fmt.Sprintf(got, args...)}
}

// Want ends the steps of a reader (package must) where a file is not what it has to be. All its arguments are made.
func Want(ok bool, file string, off int64, want, got string, args ...any) {
	if !ok {
		must.Do(Bad(file, off, want, got, args...))
	}
}

// mend is what to do about a partition's file. Programs write these, so what is
// wrong with one is damage; a .npz file is of the user's making, and what was
// expected of it says enough.
func (e *FormatError) mend() string {
	if e.Remedy != "" {
		return "; " + e.Remedy
	}
	if filepath.Base(e.File) == "graph.json" {
		return "; the graph directory is damaged or incomplete: copy it again, or make it again"
	}
	switch filepath.Ext(e.File) {
	case ".dgl", ".json", ".crc":
		return "; the file is damaged or incomplete: copy it again, or partition the graph again"
	}
	return ""
}

// missing names the file that is not there and what asked for it.
func missing(what, path string, err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		err = pe.Err
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}
