//go:build !race

package mem

import "golang.org/x/sys/unix"

const lends = true

// mapPages returns n zeroed bytes of whole pages outside the Go heap.
func mapPages(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// unmapPages gives back what mapPages returned.
func unmapPages(b []byte) {
	_ = unix.Munmap(b) // of a mapping that we made and never split: cannot fail
}
