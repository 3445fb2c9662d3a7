package disk

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OpenFile opens a regular file for reading. Anything else is refused before it
// is opened: opening a pipe waits for a writer, and opening a device may do
// something to it. Without O_NONBLOCK a pipe that takes the file's place
// between the two looks would still wait.
func OpenFile(what, path string) (*File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, missing(what, path, err)
	}
	if err := wantRegular(what, path, st); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, missing(what, path, err)
	}
	if st, err = f.Stat(); err != nil {
		err = missing(what, path, err)
	} else {
		err = wantRegular(what, path, st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &File{Name: path, Reader: f, Size: st.Size(), OS: f}, nil
}

func wantRegular(what, path string, st fs.FileInfo) error {
	kind := ""
	switch m := st.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		kind = "a directory"
	case m&fs.ModeNamedPipe != 0:
		kind = "a named pipe (FIFO)"
	case m&fs.ModeSocket != 0:
		kind = "a socket"
	case m&fs.ModeCharDevice != 0:
		kind = "a character device"
	case m&fs.ModeDevice != 0:
		kind = "a block device"
	default:
		kind = "a file of kind " + m.Type().String()
	}
	return &FormatError{File: path, Offset: -1, Want: "a regular file, " + what, Got: kind,
		Remedy: "nothing else is opened"}
}

// maxJSON is the most bytes that a description may have.
const maxJSON = 1 << 30

// ReadJSON returns the whole of a JSON file.
func ReadJSON(what, path string) ([]byte, error) {
	f, err := OpenFile(what, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size > maxJSON {
		return nil, f.Bad(-1, fmt.Sprintf("%s, a JSON file of at most %d bytes", what, maxJSON), "%d bytes", f.Size)
	}
	data := make([]byte, f.Size)
	return data, f.ReadRaw(data, 0, what)
}

// CheckInside refuses a path that the description in jsonPath gives and that
// leads out of its directory, be it absolute, by "..", or through a symbolic
// link. A partition may come from anywhere, and must not make its reader open
// what else there is on the machine.
func CheckInside(jsonPath, key, path string) error {
	dir := filepath.Dir(jsonPath)
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		// There is no such file. What its name says is all there is to judge.
		if below(filepath.Clean(dir), filepath.Clean(path)) {
			return nil
		}
		real = path
	}
	homes := []string{dir} // where the description lies, by its name and by what the name leads to
	if target, err := filepath.EvalSymlinks(jsonPath); err == nil {
		homes = append(homes, filepath.Dir(target))
	}
	for _, home := range homes {
		if home, err := filepath.EvalSymlinks(home); err == nil && below(home, real) {
			return nil
		}
	}
	return &FormatError{
		File: jsonPath, Offset: -1, Want: fmt.Sprintf("%q inside the directory of this file", key), Got: real,
		Remedy: "files outside it are read where sar.Config.allow_outside_paths is True (in the command, " +
			"--allow-outside-paths)",
	}
}

// below says whether path is under dir, going by names alone.
func below(dir, path string) bool {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	if path, err = filepath.Abs(path); err != nil {
		return false
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
