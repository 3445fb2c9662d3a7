package trust

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

func isUnix(conn net.Conn) bool {
	_, ok := conn.(*net.UnixConn)
	return ok
}

// sameUser refuses a Unix socket whose other end is another user's. The kernel
// notes who listened and who connected.
func sameUser(conn net.Conn) error {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	cred, err := PeerOf(c)
	if err != nil {
		return fmt.Errorf("asking who is at the other end of a Unix socket: %w", err)
	}
	if int64(cred.Uid) != int64(os.Geteuid()) {
		return fmt.Errorf("%w: its user id is %d and this one's %d", errOtherUser, cred.Uid, os.Geteuid())
	}
	return nil
}

// PeerOf is the process at the other end of a Unix socket.
func PeerOf(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, failed)
}
