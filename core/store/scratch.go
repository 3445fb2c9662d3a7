package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// scratchDir is the directory dir/.<name>.partial, in which the parts of a graph are written
// before they get their places. A file in it is locked as long as the process lives: so what a
// process left that was killed differs from what another one is writing.
type scratchDir struct {
	path string
	lock *os.File
}

const lockFile = "lock"

// newScratch makes the directory. What a killed process left in it is removed.
func newScratch(dir, name string) (*scratchDir, error) {
	path := filepath.Join(dir, "."+name+".partial")
	for {
		if err := os.Mkdir(path, 0o775); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o664)
		if errors.Is(err, os.ErrNotExist) {
			continue // the process that wrote there has just removed it
		}
		if err != nil {
			return nil, err
		}
		// A file system without locks, which gives another error, cannot be asked.
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == unix.EWOULDBLOCK {
			lock.Close()
			return nil, fmt.Errorf("another process is writing parts of %s to %s: wait for it, or write to another "+
				"directory: %w", name, path, unix.EBUSY)
		}
		s := &scratchDir{path, lock}
		if !s.current() {
			lock.Close()
			continue
		}
		if err := s.empty(); err != nil {
			s.remove()
			return nil, err
		}
		return s, nil
	}
}

// current tells whether the locked file still is the one in the directory.
func (s *scratchDir) current() bool {
	held, err := s.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(filepath.Join(s.path, lockFile))
	return err == nil && os.SameFile(held, there)
}

// empty removes everything but the lock.
func (s *scratchDir) empty() error {
	entries, err := os.ReadDir(s.path)
	for _, e := range entries {
		if err == nil && e.Name() != lockFile {
			err = os.RemoveAll(filepath.Join(s.path, e.Name()))
		}
	}
	return err
}

// Remove removes the directory with all that is in it.
func (s *scratchDir) remove() {
	_ = os.RemoveAll(s.path)
	s.lock.Close()
}
