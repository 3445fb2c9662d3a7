package comm

import (
	"encoding/binary"
	"fmt"
)

// A stream is a run of bytes from one rank to another within one round of an
// operation: frames of at most MaxPayload bytes, the first of which begins with
// a head that says what the sender thinks it sends. The receiver compares it
// with what it expects before it uses a byte. An empty stream is one frame.

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
	for chunk := 0; ; chunk++ {
		skip := 0
		if chunk == 0 {
			skip = headSize
		}
		n := min(len(data), op.payload-skip)
		b, err := op.Reserve(peer, skip+n)
		if err != nil {
			return err
		}
		if chunk == 0 {
			head{size: uint64(len(data))}.put(b)
		}
		copy(b[skip:], data[:n])
		if err := op.Commit(peer, 0, round, chunk); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// recvStream fills into with the stream that comes from peer, which must have
// its size. each, where given, is told how much of into is filled.
func (op *Op) recvStream(peer, round int, into []byte, each func(filled int) error) error {
	return op.recvSized(peer, round, func(size uint64) ([]byte, error) {
		if size != uint64(len(into)) {
			return nil, op.Mismatch(peer, fmt.Sprintf("rank %d sends %d bytes to rank %d, which expects %d", peer, size, op.c.Rank(), len(into)))
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
		if err == nil && (len(data) > len(into)-filled || len(data) == 0 && filled < len(into)) {
			err = op.Mismatch(peer, fmt.Sprintf("rank %d sent %d bytes in frame %d, where %d are left", peer, len(data), chunk, len(into)-filled))
		}
		if err == nil {
			filled += copy(into[filled:], data)
		}
		op.Release(peer)
		if err == nil && each != nil {
			err = each(filled)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
