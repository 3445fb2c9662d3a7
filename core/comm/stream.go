package comm

import (
	"encoding/binary"
	"fmt"
	"time"

	"sar/core/transport"
)

// A stream is a run of bytes from one rank to another within one round of an
// operation: frames of at most MaxPayload bytes, the first of which begins with
// a head that says what the sender thinks it sends. The receiver compares it
// with what it expects before it uses a byte. An empty stream is one frame.

// Over links that move bytes straight between the callers' memory, a stream of
// directBytes and more is a frame with the head alone and then direct frames.
// Such a link may have the sender wait for the receiver, so the two meet in the
// order of rounds, as small windows demand of frames in a ring.
const (
	directBytes = 64 << 10
	directChunk = 4 << 20
)

func (op *Op) direct(peer int, size uint64) (transport.Direct, bool) {
	d, ok := op.links[peer].(transport.Direct)
	return d, ok && size >= directBytes
}

// headSize keeps what follows it aligned for any dtype.
const headSize = 16

// minPayload is the smallest frame that collectives can work with.
const minPayload = 2 * headSize

type head struct {
	size uint64 // bytes of the stream
	what uint32 // dtype and reduction, or 0
}

func (h head) put(b []byte) {
	binary.LittleEndian.PutUint64(b, h.size)
	binary.LittleEndian.PutUint32(b[8:], h.what)
	binary.LittleEndian.PutUint32(b[12:], 0)
}

func parseHead(b []byte) (head, bool) {
	if len(b) < headSize {
		return head{}, false
	}
	return head{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])}, true
}

// sendStream sends data to peer in one stream.
func (op *Op) sendStream(peer, round int, data []byte) error {
	return op.outStream(peer, round, data).upTo(len(data))
}

// outStream is a stream on its way to peer, whose front may leave before the
// rest of data is there.
type outStream struct {
	op          *Op
	peer, round int
	data        []byte
	sent, chunk int
	link        transport.Direct
	direct      bool
}

func (op *Op) outStream(peer, round int, data []byte) *outStream {
	s := &outStream{op: op, peer: peer, round: round, data: data}
	s.link, s.direct = op.direct(peer, uint64(len(data)))
	return s
}

// upTo sends what has not left yet of data[:filled].
func (s *outStream) upTo(filled int) error {
	for s.chunk == 0 || s.sent < filled {
		n, err := 0, error(nil)
		switch {
		case s.chunk == 0:
			n, err = s.first(filled)
		case s.direct:
			n = min(filled-s.sent, directChunk)
			if n < directChunk && s.sent+n < len(s.data) {
				return nil // the receiver knows where direct frames are cut
			}
			err = s.op.Wrap(s.link.SendFrom(s.op.Tag(0, s.round, s.chunk), s.data[s.sent:s.sent+n], s.op.deadline), s.peer)
		default:
			n = min(filled-s.sent, s.op.payload)
			err = s.op.Send(s.peer, s.round, s.chunk, s.data[s.sent:s.sent+n])
		}
		if err != nil {
			return err
		}
		s.sent, s.chunk = s.sent+n, s.chunk+1
	}
	return nil
}

// first sends the head, and what fits behind it where frames are copied anyway.
func (s *outStream) first(filled int) (int, error) {
	n := min(filled, s.op.payload-headSize)
	if s.direct {
		n = 0
	}
	b, err := s.op.Reserve(s.peer, headSize+n)
	if err != nil {
		return 0, err
	}
	head{size: uint64(len(s.data))}.put(b)
	copy(b[headSize:], s.data[:n])
	return n, s.op.Commit(s.peer, 0, s.round, 0)
}

// announce sends the head of a stream of size bytes that others will send to peer.
func (op *Op) announce(peer, round, size int) error {
	var b [headSize]byte
	head{size: uint64(size)}.put(b[:])
	return op.Send(peer, round, 0, b[:])
}

// announced takes what peer announces, which must be size bytes.
func (op *Op) announced(peer, round, size int) error {
	f, err := op.Next(peer, round, 0)
	if err != nil {
		return err
	}
	defer op.Release(peer)
	if h, ok := parseHead(f.Payload); !ok || h.size != uint64(size) {
		return op.sizes(peer, h.size, size)
	}
	return nil
}

// sizes ends the group: peer sends theirs bytes, of which this rank expects mine.
func (op *Op) sizes(peer int, theirs uint64, mine int) error {
	return op.Mismatch(peer, fmt.Sprintf("rank %d sends %d bytes to rank %d, which expects %d", peer, theirs, op.c.Rank(),
		mine))
}

// sendDirect sends the direct frames of a run of bytes: a stream without its head.
func (op *Op) sendDirect(link transport.Direct, round int, data []byte) error {
	s := outStream{op: op, peer: link.Peer(), round: round, data: data, chunk: 1, link: link, direct: true}
	return s.upTo(len(data))
}

// recvDirect receives the direct frames of a run of bytes.
func (op *Op) recvDirect(link transport.Direct, round int, into []byte, each func(filled int) error) error {
	peer := link.Peer()
	for chunk, filled := 1, 0; filled < len(into); chunk++ {
		n := min(len(into)-filled, directChunk)
		t := time.Now()
		tag, err := link.ReceiveInto(into[filled:filled+n], op.deadline)
		op.Waited(peer, time.Since(t))
		if err != nil {
			return op.Wrap(err, peer)
		}
		if err := op.Expect(transport.Frame{Tag: tag}, peer, round, chunk); err != nil {
			return err
		}
		if filled += n; each != nil {
			if err := each(filled); err != nil {
				return err
			}
		}
	}
	return nil
}

// recvStream fills into with the stream that comes from peer, which must have
// its size. each, where given, is told how much of into is filled.
func (op *Op) recvStream(peer, round int, into []byte, each func(filled int) error) error {
	return op.recvSized(peer, round, func(size uint64) ([]byte, error) {
		if size != uint64(len(into)) {
			return nil, op.sizes(peer, size, len(into))
		}
		return into, nil
	}, each)
}

// recvSized receives a stream into the buffer that alloc returns for its size.
func (op *Op) recvSized(peer, round int, alloc func(size uint64) ([]byte, error), each func(filled int) error) error {
	var into []byte
	filled := 0
	for chunk := 0; chunk == 0 || filled < len(into); chunk++ {
		f, err := op.Next(peer, round, chunk)
		if err != nil {
			return err
		}
		data := f.Payload
		if chunk == 0 {
			h, ok := parseHead(data)
			if !ok {
				err = op.Mismatch(peer, fmt.Sprintf("rank %d sent a first frame of %d bytes", peer, len(data)))
			} else if into, err = alloc(h.size); err == nil {
				data = data[headSize:]
			}
		}
		if err == nil && (len(data) > len(into)-filled || len(data) == 0 && chunk > 0) {
			err = op.Mismatch(peer, fmt.Sprintf("rank %d sent %d bytes in frame %d, where %d are left", peer, len(data), chunk,
				len(into)-filled))
		}
		if err == nil {
			filled += copy(into[filled:], data)
		}
		op.Release(peer)
		if link, ok := op.direct(peer, uint64(len(into))); ok && err == nil {
			return op.recvDirect(link, round, into, each)
		}
		if err == nil && each != nil {
			err = each(filled)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
