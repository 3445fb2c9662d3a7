package npy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sar/core/internal/dtypes"
	"sar/core/internal/must"
	"sar/core/store/disk"
)

// Directory is a directory of files that a description names, with checksums or without.
type Directory struct {
	Description string                    // its path, in the directory
	Sums        map[string]disk.Checksums // by name of the file; nil where there are none
	files       []*disk.File
}

// Bad is the error of a description.
func (d *Directory) Bad(want, got string, args ...any) error {
	return disk.Bad(d.Description, -1, want, got, args...)
}

// Want ends the steps of a reader (package must) where the description is not what it has to be.
func (d *Directory) Want(ok bool, want, got string, args ...any) {
	disk.Want(ok, d.Description, -1, want, got, args...)
}

// Inside is the path of a file that the description names.
func (d *Directory) Inside(what, name string) (string, error) {
	if name == "" || filepath.IsAbs(name) || strings.ContainsRune(name, 0) {
		return "", d.Bad(fmt.Sprintf("%q of %s, a path inside the directory", "file", what), "%q", name)
	}
	path := filepath.Join(filepath.Dir(d.Description), filepath.FromSlash(name))
	return path, disk.CheckInside(d.Description, name, path)
}

// Open opens an array, whose header has to be what the description says.
func (d *Directory) Open(what string, of Described) (a *disk.Array, err error) {
	defer must.Return(&err)
	a, err = Open(what, must.Get(d.Inside(what, of.File)))
	if err != nil {
		return nil, fmt.Errorf("%w (named by %s)", err, d.Description)
	}
	d.files = append(d.files, a.File)
	if of.DType == dtypes.BFloat16.String() && a.DType == dtypes.Uint16 { // which numpy does not have
		a.DType = dtypes.BFloat16
	}
	fits := (of.DType == "" || of.DType == a.DType.String()) && (of.Shape == nil || slices.Equal(of.Shape, a.Shape))
	a.File.Want(fits, -1,
		fmt.Sprintf("%s, %s of shape %v as %s has it", a.Name, of.DType, of.Shape, filepath.Base(d.Description)),
		"%s of shape %v", a.DType, a.Shape)
	if d.Sums == nil {
		return a, nil
	}
	return a, a.File.Attach(must.Get(disk.SumsIn(d.Sums, d.Description, of.File)))
}

// Size is the size of the files that were opened.
func (d *Directory) Size() (n int64) {
	for _, f := range d.files {
		n += f.Size
	}
	return n
}

// Close closes the files.
func (d *Directory) Close() (err error) {
	for _, f := range d.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Described is a file of a directory. What an .npy file says of itself has to agree.
type Described struct {
	File  string  `json:"file"`
	DType string  `json:"dtype,omitempty"`
	Shape []int64 `json:"shape,omitempty"`
}
