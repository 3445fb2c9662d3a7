package ring

import (
	"encoding/binary"
	"runtime"
	"time"
	"unsafe"

	"sar/core/transport"
)

// A payload that the sender holds in memory of its own, and that the receiver
// can read there, does not pass through the ring. What passes is an offer: where
// the payload lies, and its size. The receiver copies it to where it belongs and
// only then gives the offer's frame back, which is what the sender waits for. A
// sender that cannot wait any longer marks the ring before it returns, and a
// receiver looks for that mark after it has copied: bytes that may have changed
// meanwhile are never taken for the payload.

// Reader copies len(dst) bytes from an address in the peer's memory. It copies
// all of them or returns an error.
type Reader func(dst []byte, from uint64) error

// offer is the payload of an offer's frame: address and size, little-endian.
type offer struct{ from, size uint64 }

const offerBytes = 16

func parseOffer(b []byte) offer {
	return offer{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// readPiece is what is copied between two looks at whether the link still stands.
const readPiece = 8 << 20

// Offer sends a frame that says where payload lies and returns when the
// receiver has it.
func (p *Producer) Offer(tag transport.Tag, payload []byte, deadline time.Time) error {
	b, err := p.Reserve(offerBytes, deadline)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(b, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(payload)))))
	binary.LittleEndian.PutUint64(b[8:], uint64(len(payload)))
	if _, err := p.commit(tag, transport.PutDirectHeader); err != nil {
		return err
	}
	if err := p.taken.wait(deadline); err != nil {
		p.withdrawn.Store(1)
		return err
	}
	runtime.KeepAlive(payload) // the peer's reading is no use that the collector sees
	return nil
}

// empty says whether the consumer has given back everything.
func (p *Producer) empty() (bool, error) {
	err := p.readHead()
	return err == nil && p.head == p.tail, err
}

// Take fills dst with what the next frame offers, which must be its size.
// Where that fails the link has failed.
func (c *Consumer) Take(dst []byte, deadline time.Time) (transport.Tag, error) {
	f, err := c.Next(deadline)
	if err != nil {
		return f.Tag, err
	}
	if !c.offered || c.offer.size != uint64(len(dst)) {
		err = &transport.FrameError{Peer: c.ring.peer, Detail: "another frame than the direct one that is due"}
	} else {
		err = c.copyOffer(dst)
	}
	if err != nil {
		c.state.Fail(err) // the frame is kept: given back it would say that all went well
		return f.Tag, err
	}
	c.Release()
	return f.Tag, nil
}

func (c *Consumer) copyOffer(dst []byte) error {
	for at := 0; at < len(dst); at += readPiece {
		if err := c.state.Err(); err != nil {
			return err
		}
		if err := c.read(dst[at:min(len(dst), at+readPiece)], c.offer.from+uint64(at)); err != nil {
			return c.lost(err)
		}
	}
	if c.withdrawn.Load() != 0 {
		return c.lost(nil)
	}
	return nil
}

// lost is what ends a receiver whose peer's memory is gone, or was taken back.
func (c *Consumer) lost(err error) error {
	if gone := c.state.GoneErr(); gone != nil {
		return gone
	}
	return &transport.PeerGone{Peer: c.ring.peer, Err: err}
}

// Direct is a Link whose ends can read each other's memory.
type Direct struct{ *Link }

// WithReader makes l a direct link; before it is used.
func (l *Link) WithReader(read Reader) *Direct {
	l.in.read = read
	return &Direct{l}
}

// SendFrom offers payload and returns when the receiver has it.
func (l *Direct) SendFrom(tag transport.Tag, payload []byte, deadline time.Time) error {
	return l.SendingDirect(payload, func() error {
		err := l.out.Offer(tag, payload, deadline)
		if err != nil {
			l.Fail(err) // part of it may have been read
		}
		return err
	})
}

// ReceiveInto copies what the next frame offers into dst.
func (l *Direct) ReceiveInto(dst []byte, deadline time.Time) (tag transport.Tag, err error) {
	err = l.Receiving(func() error {
		if tag, err = l.in.Take(dst, deadline); err == nil {
			l.Received(len(dst))
		}
		return err
	})
	return tag, err
}
