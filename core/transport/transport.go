// Package transport moves frames between two ranks. A Link joins this rank to
// one peer in both directions; a mesh is one link to every peer. Each
// communicator has a mesh of its own, so that work on one never waits behind
// work on another.
//
// A link is built for aggregation without copies: the sender fills memory that
// the link hands out (Reserve, Commit), which in shared memory is the ring
// itself, and the receiver works on the frame where it lies (Next, Release).
package transport

import (
	"errors"
	"fmt"
	"time"
)

// Tag says which step of the common schedule a frame belongs to. Links carry
// it unread; comm compares it with what the receiver expects.
type Tag struct {
	Comm    uint16 // communicator
	Seq     uint64 // number of the operation in its communicator, below 1<<48
	Kind    uint8  // what the operation is (comm.Kind)
	Dir     uint8  // forward, backward or neither (comm.Dir)
	Content uint32 // what the operation sends, and for which layer (comm.BeginSending)
	Flags   uint16 // what the operation must agree on across ranks
	Round   uint16
	Chunk   uint32
}

// Frame is what Next returns. Payload is valid until Release.
type Frame struct {
	Tag     Tag
	Payload []byte
}

// LinkStats counts what one link has carried. Payload is rows and numbers, bytes include
// the headers of frames.
type LinkStats struct {
	SentPayload uint64 `json:"sent_payload"`
	SentBytes   uint64 `json:"sent_bytes"`
	SentFrames  uint64 `json:"sent_frames"`
	RecvPayload uint64 `json:"recv_payload"`
	RecvBytes   uint64 `json:"recv_bytes"`
	RecvFrames  uint64 `json:"recv_frames"`
}

// Link is a duplex, ordered, reliable channel of frames to one peer. One
// goroutine may send while another receives; neither side may be used by two.
//
// A zero deadline means none. Every blocked call returns promptly after Fail
// or Close, with the error given to Fail or ErrClosed. A peer that goes away
// makes Next return *PeerGone once the frames that arrived are consumed.
type Link interface {
	Peer() int
	Properties() Properties
	// MaxPayload is the largest payload of one frame in bytes. Two frames of
	// that size fit into the link at once, so a sender may fill one while the
	// receiver works on the other.
	MaxPayload() int
	// Reserve returns the payload of the next outgoing frame, n bytes
	// (0 ≤ n ≤ MaxPayload), aligned to 64 bytes, contents undefined. It waits for room.
	Reserve(n int, deadline time.Time) ([]byte, error)
	// Commit sends the reserved frame.
	Commit(tag Tag, deadline time.Time) error
	// Next returns the next incoming frame, its payload aligned to 64 bytes.
	Next(deadline time.Time) (Frame, error)
	// Release gives the memory of the frame that Next returned back.
	Release()
	// Fail makes every call, blocked or to come, return err.
	Fail(err error)
	Stats() LinkStats
	// Close frees the link. The peer reads what was committed, then PeerGone.
	Close() error
}

// Direct is what links may be besides: they move payloads straight between the
// callers' memory, whatever the size of the link, up to MaxFrame. A frame sent
// with SendFrom must be received with ReceiveInto, and SendFrom may wait for
// that. Both ends of a link are Direct, or neither is.
type Direct interface {
	Link
	// SendFrom sends payload as one frame and returns when it may be changed.
	SendFrom(tag Tag, payload []byte, deadline time.Time) error
	// ReceiveInto fills dst with the payload of the next frame, which must have
	// its size. Whatever it returns, nobody writes to dst afterwards.
	ReceiveInto(dst []byte, deadline time.Time) (Tag, error)
}

// Endpoint is how a rank can be reached; the rendezvous hands everyone's to all.
type Endpoint struct {
	Rank int
	Host string // host name, for messages
	PID  int
	// HostID is equal for two ranks exactly if they can share memory: same
	// kernel boot, same network namespace.
	HostID string
	TCP    string // host:port of the rank's listener
	Unix   string // abstract Unix socket of the rank, "" where there is none
	// Library is the network library that the rank has opened for its links, "" where none.
	Library string
	// Certificate is the SHA-256 of the rank's certificate, zero without TLS.
	Certificate [32]byte
}

// TimeoutError is returned when a deadline passes.
type TimeoutError struct {
	Op   string // "send", "receive", "connect"
	Peer int
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s with rank %d: deadline passed", e.Op, e.Peer)
}

// Timeout lets callers treat it like a net.Error.
func (e *TimeoutError) Timeout() bool { return true }

// PeerGone is returned when the other end of a link has closed or vanished.
type PeerGone struct {
	Peer int
	Err  error // what the operating system said, may be nil
}

func (e *PeerGone) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("rank %d closed the connection", e.Peer)
	}
	return fmt.Sprintf("connection to rank %d: %v", e.Peer, e.Err)
}

func (e *PeerGone) Unwrap() error { return e.Err }

// FrameError says that bytes on a link are not a frame of this protocol.
type FrameError struct {
	Peer   int
	Detail string
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("damaged frame from rank %d: %s", e.Peer, e.Detail)
}

// ErrClosed is returned by every call on a link that this side has closed.
var ErrClosed = errors.New("transport: link is closed")
