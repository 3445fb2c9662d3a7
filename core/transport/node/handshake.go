package node

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"sar/core/trust"
)

// A proven connection begins with a hello of 64 bytes from the dialer, on which the
// listener answers with one of its own as soon as it wants the connection. With the
// hello of a transport that passes one, and only there, travels a file descriptor.
//
//	 0  u32   magic "SARN"
//	 4  u8    version
//	 5  u8    purpose: a transport's (1 tcp, 2 shm, 5 a library's), or 3, control stream
//	 6  u8    answer: 0 in the dialer's hello
//	 7  u8    zero
//	 8  [16]  session
//	24  u32   rank of the sender
//	28  u32   number of ranks
//	32  u32   mesh (of control streams: how many times Control was called before)
//	36  u32   zero
//	40  u64   bytes per link
//	48  [16]  zero
const helloSize = 64

const (
	helloMagic   = 'S' | 'A'<<8 | 'R'<<16 | 'N'<<24
	helloVersion = 2
)

type answer uint8

const (
	answerNone answer = iota
	answerAccepted
	answerNext     // this transport cannot be used: try the next
	answerOnly     // this rank is told to use a transport that comes before this one
	answerSize     // the answer carries the bytes per link that the listener has
	answerSession  // of another run
	answerVersion  // the answer carries the version that the listener has
	answerMismatch // ranks or world make no sense here
)

type hello struct {
	version uint8
	purpose trust.Purpose
	answer  answer
	session [16]byte
	rank    uint32
	world   uint32
	mesh    uint32
	bytes   uint64
}

func (h hello) encode() []byte {
	b := make([]byte, helloSize)
	le := binary.LittleEndian
	le.PutUint32(b[0:], helloMagic)
	b[4], b[5], b[6] = helloVersion, byte(h.purpose), byte(h.answer)
	copy(b[8:24], h.session[:])
	le.PutUint32(b[24:], h.rank)
	le.PutUint32(b[28:], h.world)
	le.PutUint32(b[32:], h.mesh)
	le.PutUint64(b[40:], h.bytes)
	return b
}

// decodeHello accepts any version, so that the other side can be told.
func decodeHello(b []byte) (hello, error) {
	le := binary.LittleEndian
	if len(b) != helloSize || le.Uint32(b) != helloMagic {
		return hello{}, fmt.Errorf("what answers is not a worker of SAR")
	}
	h := hello{
		version: b[4], purpose: trust.Purpose(b[5]), answer: answer(b[6]),
		rank: le.Uint32(b[24:]), world: le.Uint32(b[28:]), mesh: le.Uint32(b[32:]), bytes: le.Uint64(b[40:]),
	}
	copy(h.session[:], b[8:24])
	return h, nil
}

// claimed says whether h is of the rank, and for the purpose, that was proved.
func (h hello) claimed(c trust.Claim) error {
	if int64(h.rank) != int64(c.Rank) || int64(h.world) != int64(c.World) || h.mesh != c.Mesh || h.purpose != c.Purpose {
		return fmt.Errorf("the hello is of rank %d of %d for purpose %d and the proof of rank %d of %d for purpose %d",
			h.rank, h.world, h.purpose, c.Rank, c.World, c.Purpose)
	}
	return nil
}

// receiveHello reads a hello and the descriptor that came with it, -1 if none did.
func receiveHello(conn net.Conn) (hello, int, error) {
	b := make([]byte, helloSize)
	fd := -1
	if c, ok := conn.(*net.UnixConn); ok {
		oob := make([]byte, unix.CmsgSpace(4*4))
		n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
		if err != nil {
			return hello{}, -1, err
		}
		fd = takeDescriptor(oob[:oobn])
		if _, err := io.ReadFull(conn, b[n:]); err != nil {
			closeDescriptor(fd)
			return hello{}, -1, err
		}
	} else if _, err := io.ReadFull(conn, b); err != nil {
		return hello{}, -1, err
	}
	h, err := decodeHello(b)
	if err == nil && (h.answer == answerNone && passesDescriptor(h.purpose)) != (fd >= 0) {
		err = fmt.Errorf("hello for purpose %d with descriptor %d", h.purpose, fd)
	}
	if err != nil {
		closeDescriptor(fd)
		return hello{}, -1, err
	}
	return h, fd, nil
}

// takeDescriptor returns the one descriptor in a control message. If there are
// more, none is wanted.
func takeDescriptor(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	var fds []int
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	if len(fds) == 1 {
		return fds[0]
	}
	for _, fd := range fds {
		closeDescriptor(fd)
	}
	return -1
}

func closeDescriptor(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// sendHello writes a hello, with a descriptor if fd is not -1.
func sendHello(conn net.Conn, h hello, fd int) error {
	if fd < 0 {
		_, err := conn.Write(h.encode())
		return err
	}
	n, _, err := conn.(*net.UnixConn).WriteMsgUnix(h.encode(), unix.UnixRights(fd), nil)
	if err == nil && n != helloSize {
		err = io.ErrShortWrite
	}
	return err
}

// transportOf names what a hello is for.
func (n *Node) transportOf(h hello) string {
	if at := n.place(h.purpose); at >= 0 {
		return n.transports[at].Name
	}
	return "a control stream"
}

// refusal says what a listener's answer means, given what this side had said.
func (n *Node) refusal(rank int, said, got hello) error {
	switch got.answer {
	case answerNext:
		return fmt.Errorf("rank %d cannot or may not use %s: allow another transport, or mend it there", rank,
			n.transportOf(said))
	case answerOnly:
		return fmt.Errorf("rank %d is told to use another transport alone and this rank came over %s: use one transport "+
			"setting on every worker",
			rank, n.transportOf(said))
	case answerSize:
		return fmt.Errorf("rank %d has %d bytes of window per link and this rank %d: use one window size on every worker",
			rank, got.bytes, said.bytes)
	case answerSession:
		return fmt.Errorf("the worker at rank %d's address belongs to another run", rank)
	case answerVersion:
		return fmt.Errorf("rank %d speaks version %d of the protocol and this rank %d: run one version of SAR on "+
			"every worker", rank, got.version, helloVersion)
	case answerMismatch:
		return fmt.Errorf("rank %d did not expect rank %d of %d: start every worker with one world size and a rank "+
			"of its own", rank, said.rank, said.world)
	}
	return fmt.Errorf("rank %d answered %d", rank, got.answer)
}
