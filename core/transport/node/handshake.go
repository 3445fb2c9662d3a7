package node

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"sar/core/trust"
)

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

// hello is what a proven connection begins with, 64 bytes, little-endian, from the dialer. The
// listener answers with one of its own as soon as it wants the connection. With the hello of a
// transport that passes one, and only there, travels a file descriptor.
type hello struct {
	Magic   uint32 // "SARN"
	Version uint8
	Purpose trust.Purpose // a transport's (1 tcp, 2 shm, 5 a library's), or 3, control stream
	Answer  answer        // none in the dialer's hello
	_       uint8
	Session [16]byte
	Rank    uint32 // of the sender
	World   uint32
	Mesh    uint32 // of control streams: how many times Control was called before
	_       uint32
	Bytes   uint64 // per link
	_       [16]byte
}

var helloSize = binary.Size(hello{})

func (h hello) encode() []byte {
	h.Magic, h.Version = helloMagic, helloVersion
	b, _ := binary.Append(nil, binary.LittleEndian, h) // of a fixed size: cannot fail
	return b
}

// decodeHello accepts any version, so that the other side can be told.
func decodeHello(b []byte) (h hello, err error) {
	if len(b) == helloSize {
		_, err = binary.Decode(b, binary.LittleEndian, &h)
	}
	if err != nil || h.Magic != helloMagic {
		return hello{}, fmt.Errorf("what answers is not a worker of SAR")
	}
	return h, nil
}

// claimed says whether h is of the rank, and for the purpose, that was proved.
func (h hello) claimed(c trust.Claim) error {
	if int64(h.Rank) != int64(c.Rank) || int64(h.World) != int64(c.World) || h.Mesh != c.Mesh || h.Purpose != c.Purpose {
		return fmt.Errorf("the hello is of rank %d of %d for purpose %d and the proof of rank %d of %d for purpose %d",
			h.Rank, h.World, h.Purpose, c.Rank, c.World, c.Purpose)
	}
	return nil
}

// receiveHello reads a hello and the descriptor that came with it, -1 if none did.
func receiveHello(conn net.Conn) (hello, int, error) {
	b := make([]byte, helloSize)
	n, fd := 0, -1
	if c, ok := conn.(*net.UnixConn); ok {
		oob := make([]byte, unix.CmsgSpace(4*4))
		got, oobn, _, _, err := c.ReadMsgUnix(b, oob)
		if err != nil {
			return hello{}, -1, err
		}
		n, fd = got, takeDescriptor(oob[:oobn])
	}
	var h hello
	_, err := io.ReadFull(conn, b[n:])
	if err == nil {
		h, err = decodeHello(b)
	}
	if err == nil && (h.Answer == answerNone && passesDescriptor(h.Purpose)) != (fd >= 0) {
		err = fmt.Errorf("hello for purpose %d with descriptor %d", h.Purpose, fd)
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
	if at := n.place(h.Purpose); at >= 0 {
		return n.transports[at].Name
	}
	return "a control stream"
}

// refusal says what a listener's answer means, given what this side had said.
func (n *Node) refusal(rank int, said, got hello) error {
	switch got.Answer {
	case answerNext:
		return fmt.Errorf("rank %d cannot or may not use %s: allow another transport, or mend it there", rank,
			n.transportOf(said))
	case answerOnly:
		return fmt.Errorf("rank %d is told to use another transport alone and this rank came over %s: use one transport "+
			"setting on every worker",
			rank, n.transportOf(said))
	case answerSize:
		return fmt.Errorf("rank %d has %d bytes of window per link and this rank %d: use one window size on every worker",
			rank, got.Bytes, said.Bytes)
	case answerSession:
		return fmt.Errorf("the worker at rank %d's address belongs to another run", rank)
	case answerVersion:
		return fmt.Errorf("rank %d speaks version %d of the protocol and this rank %d: run one version of SAR on "+
			"every worker", rank, got.Version, helloVersion)
	case answerMismatch:
		return fmt.Errorf("rank %d did not expect rank %d of %d: start every worker with one world size and a rank "+
			"of its own", rank, said.Rank, said.World)
	}
	return fmt.Errorf("rank %d answered %d", rank, got.Answer)
}
