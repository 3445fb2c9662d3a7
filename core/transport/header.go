package transport

import (
	"encoding/binary"
	"fmt"
)

// HeaderSize is the size of a frame's header. A frame of n payload bytes costs
// HeaderSize+n bytes on a wire; that is what LinkStats counts for every kind of
// link. In a ring or in staging memory a frame takes 64 bytes more than its
// payload rounded up to 64, with the header in the last HeaderSize of those 64,
// so header and payload are one run of bytes and the payload is aligned.
//
// The header, little-endian:
//
//	 0  u32  magic "SARF"
//	 4  u8   version
//	 5  u8   Tag.Kind
//	 6  u8   Tag.Dir
//	 7  u8   1 for a direct frame of a stream link or an offer in a ring, else zero
//	 8  u32  payload bytes, at most what the two sides agreed on
//	12  u16  Tag.Comm
//	14  u16  Tag.Flags
//	16  u32  Tag.Content
//	20  u32  Tag.Chunk
//	24  u16  Tag.Round
//	26  u48  Tag.Seq
const HeaderSize = 32

// Align is the alignment of payloads.
const Align = 64

// MaxFrame bounds a payload whatever the size of a link.
const MaxFrame = 1 << 30

const (
	frameMagic   = 'S' | 'A'<<8 | 'R'<<16 | 'F'<<24
	frameVersion = 2
)

// PutHeader writes the header of a frame of n payload bytes into b[:HeaderSize].
func PutHeader(b []byte, tag Tag, n int) {
	_ = b[HeaderSize-1]
	le := binary.LittleEndian
	le.PutUint32(b[0:], frameMagic)
	b[4], b[5], b[6], b[7] = frameVersion, tag.Kind, tag.Dir, 0
	le.PutUint32(b[8:], uint32(n))
	le.PutUint16(b[12:], tag.Comm)
	le.PutUint16(b[14:], tag.Flags)
	le.PutUint32(b[16:], tag.Content)
	le.PutUint32(b[20:], tag.Chunk)
	le.PutUint64(b[24:], tag.Seq<<16|uint64(tag.Round))
}

// PutDirectHeader writes the header of a direct frame: its payload goes to
// memory that the receiver names, so the size of the link does not bound it.
func PutDirectHeader(b []byte, tag Tag, n int) {
	PutHeader(b, tag, n)
	b[7] = 1
}

// ParseHeader reads a header that came from peer and returns the tag, the size of
// the payload and whether the frame is a direct one. Anything else than a frame of
// this version with at most maxPayload bytes, or a direct one, is a *FrameError.
func ParseHeader(b []byte, peer, maxPayload int) (tag Tag, n int, direct bool, err error) {
	bad := func(format string, args ...any) (Tag, int, bool, error) {
		return Tag{}, 0, false, &FrameError{Peer: peer, Detail: fmt.Sprintf(format, args...)}
	}
	if len(b) < HeaderSize {
		return bad("header of %d bytes, %d expected", len(b), HeaderSize)
	}
	le := binary.LittleEndian
	if m := le.Uint32(b); m != frameMagic {
		return bad("magic %#08x, %#08x expected", m, frameMagic)
	}
	if b[4] != frameVersion {
		return bad("version %d, this side speaks %d: run one version of SAR on every worker", b[4], frameVersion)
	}
	switch b[7] {
	case 0:
	case 1:
		direct, maxPayload = true, MaxFrame
	default:
		return bad("reserved byte is %#x", b[7])
	}
	size := le.Uint32(b[8:])
	if int64(size) > int64(min(maxPayload, MaxFrame)) {
		return bad("payload of %d bytes, at most %d are allowed", size, maxPayload)
	}
	last := le.Uint64(b[24:])
	return Tag{
		Comm: le.Uint16(b[12:]), Seq: last >> 16, Kind: b[5], Dir: b[6], Flags: le.Uint16(b[14:]),
		Content: le.Uint32(b[16:]), Round: uint16(last), Chunk: le.Uint32(b[20:]),
	}, int(size), direct, nil
}
