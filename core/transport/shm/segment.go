package shm

import (
	"fmt"
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"sar/core/mem"
	"sar/core/transport/internal/ring"
)

// seals keep the segment's size: a peer that could shrink it would make our
// reads fault.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Segment is the memory of one link: two rings, the creator's outgoing one
// first. It has no name anywhere; it lives as long as a process maps it.
type Segment struct {
	mapping []byte
	max     int
}

// layout returns the largest payload and the size of the segment of a link that
// may use linkBytes.
func layout(linkBytes int) (maxPayload, size int, err error) {
	maxPayload, err = ring.MaxPayload(linkBytes)
	if err != nil {
		return 0, 0, err
	}
	page := unix.Getpagesize()
	size = (2*ring.Bytes(maxPayload) + page - 1) / page * page
	return maxPayload, size, nil
}

// Create makes a segment and returns a descriptor for the peer, which the
// caller closes once it is sent.
func Create(linkBytes int) (s *Segment, fd int, err error) {
	max, size, err := layout(linkBytes)
	if err != nil {
		return nil, -1, err
	}
	fd, err = unix.MemfdCreate("sar-link", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, -1, fmt.Errorf("shm: memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err != nil {
		err = fmt.Errorf("shm: sizing a segment to %d bytes: %w", size, err)
	} else if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		err = fmt.Errorf("shm: sealing a segment: %w", err)
	} else {
		s, err = mapSegment(fd, max, size)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, -1, err
	}
	return s, fd, nil
}

// Open maps the segment that a peer created for the same linkBytes. The caller
// keeps the descriptor and closes it.
func Open(fd, linkBytes int) (*Segment, error) {
	max, size, err := layout(linkBytes)
	if err != nil {
		return nil, err
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("shm: what the peer sent is not a memory segment: %w", err)
	}
	if got&seals != seals {
		return nil, fmt.Errorf("shm: the peer's segment is not sealed (seals %#x)", got)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: looking at the peer's segment: %w", err)
	}
	if st.Size != int64(size) {
		return nil, fmt.Errorf("shm: the peer's segment has %d bytes, %d expected: every worker must use one window size",
			st.Size, size)
	}
	return mapSegment(fd, max, size)
}

func mapSegment(fd, max, size int) (*Segment, error) {
	m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shm: mapping a segment of %d bytes: %w", size, err)
	}
	mem.Count(mem.Window, int64(size))
	return &Segment{mapping: m, max: max}, nil
}

// rings returns the memory of the creator's outgoing and incoming ring.
func (s *Segment) rings() (first, second []byte) {
	half := ring.Bytes(s.max)
	return s.mapping[:half:half], s.mapping[half : 2*half : 2*half]
}

// Close unmaps the segment.
func (s *Segment) Close() {
	if s.mapping == nil {
		return
	}
	mem.Count(mem.Window, -int64(len(s.mapping)))
	_ = unix.Munmap(s.mapping) // of a mapping that we made: cannot fail
	s.mapping = nil
}

// doorbell rings by a raw system call: it never blocks, so the scheduler need
// not hear of it, and where the socket has no room the peer has more to hear than
// it takes at once, which wakes it whatever it waits for.
func doorbell(fd uintptr, b *byte) {
	_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(b)), 1,
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
}

// hear waits until the peer rings, and returns how often it did, at most len(b)
// times, and what for. Its system calls are raw too. One that the scheduler hears
// of wakes the runtime's monitor where all was asleep, which then looks around
// every 20 µs for a millisecond: two of five switches between threads were its.
func hear(raw syscall.RawConn, b []byte) (n int, err error) {
	ended := raw.Read(func(fd uintptr) bool {
		r, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT,
			0, 0)
		switch {
		case e == unix.EAGAIN || e == unix.EINTR:
			return false
		case e != 0:
			err = e
		case r == 0:
			err = io.EOF
		default:
			n = int(r)
		}
		return true
	})
	if ended != nil {
		err = ended
	}
	return n, err
}
