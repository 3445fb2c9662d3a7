package shm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"sar/core/trust"
)

// Two processes of one user can as a rule read each other's memory by a system
// call, so that a large payload is copied once, from where it is to where it
// goes. A ring has it copied twice, but then both sides can compute meanwhile
// on parts of it, which is what rows do. Whether it works is tried when a link
// is made: kernels that restrict it (Yama), containers with process ids of their
// own and seccomp filters all say no in their way, and then the ring carries
// everything.

// EnvCMA names the environment variable that, set to 0, keeps a worker from
// reading its peers' memory and them from reading its.
const EnvCMA = "SAR_CMA"

const nonceBytes = 16

// nonce lies in this process at an address that peers are told. They read it
// after everything they read here: only if they find it there too were they
// reading this process and not another one that has its number now.
var (
	nonce     [nonceBytes]byte
	makeNonce sync.Once
)

// A greeting is nonceAt, u64 little-endian (0: do not read here), and the nonce.
const greetingBytes = 8 + nonceBytes

// Remote is the memory of a peer's process.
type Remote struct {
	pid     int
	nonceAt uintptr
	nonce   [nonceBytes]byte
}

// Meet finds out over conn whether each side can read the other's memory, and
// returns nil if one cannot. Both sides call it at the same time, before
// anything else travels.
func Meet(conn *net.UnixConn) (*Remote, error) {
	makeNonce.Do(func() { rand.Read(nonce[:]) })
	var mine, theirs [greetingBytes]byte
	allowed := os.Getenv(EnvCMA) != "0"
	if allowed {
		binary.LittleEndian.PutUint64(mine[:], uint64(uintptr(unsafe.Pointer(&nonce))))
	}
	copy(mine[8:], nonce[:])
	if err := trade(conn, mine[:], theirs[:]); err != nil {
		return nil, err
	}
	r := &Remote{pid: peerPID(conn), nonceAt: uintptr(binary.LittleEndian.Uint64(theirs[:]))}
	copy(r.nonce[:], theirs[8:])
	var works, theirsWorks [1]byte
	if allowed && r.nonceAt != 0 && r.pid > 0 && r.Read(nil, 0) == nil {
		works[0] = 1
	}
	if err := trade(conn, works[:], theirsWorks[:]); err != nil {
		return nil, err
	}
	if works[0] != 1 || theirsWorks[0] != 1 {
		return nil, nil
	}
	return r, nil
}

// trade sends a few bytes, which fit the socket's buffer, and receives as many.
func trade(conn net.Conn, mine, theirs []byte) error {
	if _, err := conn.Write(mine); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, theirs)
	return err
}

// peerPID is the number that the process at the other end has in this
// process's namespace, 0 where it has none.
func peerPID(conn *net.UnixConn) int {
	cred, err := trust.PeerOf(conn)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// Read copies len(dst) bytes from an address of the peer's. The call looks the
// process up once, so payload and nonce are of the same one.
func (r *Remote) Read(dst []byte, from uint64) error {
	var seen [nonceBytes]byte
	local := []unix.Iovec{{Base: unsafe.SliceData(dst), Len: uint64(len(dst))}, {Base: &seen[0], Len: nonceBytes}}
	remote := []unix.RemoteIovec{{Base: uintptr(from), Len: len(dst)}, {Base: r.nonceAt, Len: nonceBytes}}
	n, err := unix.ProcessVMReadv(r.pid, local, remote, 0)
	switch {
	case err != nil:
		return fmt.Errorf("reading its memory: %w", err)
	case n != len(dst)+nonceBytes:
		return fmt.Errorf("reading its memory: %d of %d bytes are there", n, len(dst)+nonceBytes)
	case seen != r.nonce:
		return fmt.Errorf("process %d is another one now", r.pid)
	}
	return nil
}
