package disk

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// FreeBytes is the room on the disk of a directory for somebody without
// privileges. A variable for tests.
var FreeBytes = func(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	if st.Bavail > math.MaxInt64/uint64(max(1, st.Bsize)) {
		return math.MaxInt64, nil
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// WantRoom fails, before anything is written, where a disk has less than needed
// bytes left. Where the system does not say, time will tell.
func WantRoom(dir string, needed int64, what, remedy string) error {
	free, err := FreeBytes(dir)
	if err != nil || free >= needed {
		return nil
	}
	return fmt.Errorf("%s: %s %s there, and %s are free: %s: %w", dir, what, gigabytes(needed), gigabytes(free), remedy,
		unix.ENOSPC)
}

func gigabytes(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
