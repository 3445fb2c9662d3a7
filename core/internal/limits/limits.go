// Package limits names the limit of the operating system behind an error, and
// how to raise it.
package limits

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Exhausted tells whether err says that the process or the system has run out
// of descriptors or of memory for sockets.
func Exhausted(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) ||
		errors.Is(err, unix.ENOMEM)
}

// Explain adds the limit and the remedy to such an error. Other errors, and nil,
// stay as they are.
func Explain(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w: this process may have %s descriptors open and has %s: raise the limit with ulimit -n "+
			"(LimitNOFILE in a systemd unit)",
			err, descriptorLimit(), openDescriptors())
	case errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: all processes together have as many files open as the system allows: raise it with sysctl "+
			"fs.file-max", err)
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: the kernel has no memory for the socket: raise sysctl net.core.wmem_max, net.core.rmem_max "+
			"and net.ipv4.tcp_mem, or the memory of the container", err)
	}
	return err
}

// Descriptors is how many descriptors this process may have open; false where that cannot
// be known.
func Descriptors() (uint64, bool) {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	return l.Cur, err == nil
}

func descriptorLimit() string {
	if n, known := Descriptors(); known {
		return fmt.Sprint(n)
	}
	return "an unknown number of"
}

// openDescriptors counts without a descriptor where there is none left to read
// the directory with.
func openDescriptors() string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return "used them up"
	}
	return fmt.Sprint(len(entries))
}
