// Package ring is the single-producer single-consumer ring of frames under all
// links. Between processes it lies in a shared segment, within one it lies in a
// mapping of its own. Frames are contiguous: one that does not fit before the
// end of the ring begins at its start, behind a mark that says so. Neither side
// trusts the other's words: positions and headers are checked before use, and
// each side keeps its own position in private memory.
//
// A ring, every part aligned to 64 bytes:
//
//	  0  u64  tail: bytes written since the beginning, marks included
//	  8  u64  not 0 once the producer has taken an offer back
//	 64  u64  head: bytes given back since the beginning
//	128  u32  1 while the consumer sleeps
//	192  u32  1 while the producer sleeps
//	256       frames: 32 bytes unused, header of 32 bytes, payload padded to 64
//
// Costs of a frame of n bytes: 64 bytes of ring beside the payload, two atomic
// stores, and a wake-up of the other side only if that sleeps.
package ring

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"sar/core/mem"
	"sar/core/transport"
)

const (
	slot      = transport.Align
	headerAt  = slot - transport.HeaderSize
	control   = 256
	markMagic = 'S' | 'A'<<8 | 'R'<<16 | 'W'<<24 // "SARW": go on at the start of the ring
)

// FrameBytes is what a frame of n payload bytes takes in a ring.
func FrameBytes(n int) int { return slot + (n+slot-1)&^(slot-1) }

// Bytes is the memory of a ring for payloads of at most maxPayload bytes. It
// holds three of the largest frames: wherever one lies, a second one fits
// before or behind it, which two would not ensure as frames are contiguous.
func Bytes(maxPayload int) int { return control + 3*FrameBytes(maxPayload) }

// page is what memory is mapped in; a link uses whole pages of what it may.
const page = 4096

// MaxPayload returns the largest payload, in steps of 64, for which the two rings
// of a link fit into the whole pages of linkBytes.
func MaxPayload(linkBytes int) (int, error) {
	if linkBytes < page {
		return 0, fmt.Errorf("transport: %d bytes of window for a link are too few, at least %d are needed: raise the window",
			linkBytes, page)
	}
	linkBytes &^= page - 1
	frame := (linkBytes/2 - control) / 3 &^ (slot - 1)
	return min(frame-slot, transport.MaxFrame), nil
}

// Memory makes the memory of the two rings of a link, for payloads of at most
// maxPayload bytes.
func Memory(linkBytes int) (memory mem.Array[byte], maxPayload int, err error) {
	if maxPayload, err = MaxPayload(linkBytes); err == nil {
		memory, err = mem.Make[byte](mem.Window, 2*Bytes(maxPayload))
	}
	return memory, maxPayload, err
}

type ring struct {
	tail, head                     *atomic.Uint64
	withdrawn                      *atomic.Uint64
	consumerSleeps, producerSleeps *atomic.Uint32
	data                           []byte
	max                            int
	peer                           int
}

func newRing(b []byte, maxPayload, peer int) ring {
	size := Bytes(maxPayload)
	if len(b) < size || uintptr(unsafe.Pointer(&b[0]))%slot != 0 {
		panic(fmt.Sprintf("ring: %d bytes at %p cannot hold frames of %d bytes", len(b), &b[0], maxPayload))
	}
	return ring{
		tail:           (*atomic.Uint64)(unsafe.Pointer(&b[0])),
		withdrawn:      (*atomic.Uint64)(unsafe.Pointer(&b[8])),
		head:           (*atomic.Uint64)(unsafe.Pointer(&b[64])),
		consumerSleeps: (*atomic.Uint32)(unsafe.Pointer(&b[128])),
		producerSleeps: (*atomic.Uint32)(unsafe.Pointer(&b[192])),
		data:           b[control:size:size],
		max:            maxPayload,
		peer:           peer,
	}
}

func (r *ring) size() uint64 { return uint64(len(r.data)) }

func (r *ring) damaged(format string, args ...any) error {
	return &transport.FrameError{Peer: r.peer, Detail: fmt.Sprintf(format, args...)}
}

func wakeIf(sleeps *atomic.Uint32, wake func()) {
	if sleeps.Load() != 0 && sleeps.Swap(0) != 0 {
		wake()
	}
}

// Producer is the sending end.
type Producer struct {
	ring
	waiter
	wake     func()
	tail     uint64 // where the next frame begins
	head     uint64 // last head seen
	pad      uint64 // bytes to the end of the ring that the reserved frame skips
	need     uint64 // bytes of the reserved frame, 0 if none is
	reserved int
	taken    waiter // for the receiver to be done with an offer
}

// NewProducer makes the sending end of the ring in b, which is zeroed. wake
// signals Data of the consumer's state.
func NewProducer(b []byte, maxPayload, peer int, state *State, wake func()) *Producer {
	p := &Producer{ring: newRing(b, maxPayload, peer), wake: wake}
	p.waiter = waiter{state: state, event: state.Space, armed: p.producerSleeps, ready: p.room, op: "send", peer: peer}
	p.taken = p.waiter
	// A peer that took the offer and then went has taken it. Nobody spins: to
	// copy what is offered takes longer than to sleep and be woken.
	p.taken.ready, p.taken.drain, p.taken.patient = p.empty, true, true
	return p
}

// room says whether the frame being reserved fits.
func (p *Producer) room() (bool, error) {
	want := p.tail + p.pad + p.need
	if want-p.head <= p.size() {
		return true, nil
	}
	err := p.readHead()
	return err == nil && want-p.head <= p.size(), err
}

// readHead looks how far the consumer is.
func (p *Producer) readHead() error {
	h := p.ring.head.Load()
	if h-p.head > p.tail-p.head || h%slot != 0 {
		return p.damaged("ring head moved from %d to %d with tail %d", p.head, h, p.tail)
	}
	p.head = h
	return nil
}

// Reserve waits for room and returns the payload of the next frame. A frame
// that was reserved and not committed is forgotten.
func (p *Producer) Reserve(n int, deadline time.Time) ([]byte, error) {
	if n < 0 || n > p.max {
		return nil, fmt.Errorf("transport: frame of %d bytes to rank %d, at most %d are allowed", n, p.ring.peer, p.max)
	}
	p.pad, p.need, p.reserved = 0, uint64(FrameBytes(n)), n
	off := p.tail % p.size()
	if off+p.need > p.size() {
		p.pad = p.size() - off
	}
	if err := p.wait(deadline); err != nil {
		p.need = 0
		return nil, err
	}
	at := (p.tail+p.pad)%p.size() + slot
	return p.data[at : at+uint64(n) : at+uint64(n)], nil
}

// Commit sends the reserved frame and returns its payload size. It never blocks.
func (p *Producer) Commit(tag transport.Tag) (int, error) { return p.commit(tag, transport.PutHeader) }

// Empty says whether nothing that was committed is still in the ring.
func (p *Producer) Empty() bool {
	ok, err := p.empty()
	return ok && err == nil
}

// Flush waits until nothing that was committed is in the ring.
func (p *Producer) Flush(deadline time.Time) error { return p.taken.wait(deadline) }

// Reserved is the payload size of the reserved frame.
func (p *Producer) Reserved() int { return p.reserved }

// Whole is the reserved frame, header and payload in one run, for a sender that
// takes it past the ring. It stays reserved.
func (p *Producer) Whole(tag transport.Tag) ([]byte, error) {
	if p.need == 0 {
		return nil, p.unreserved()
	}
	at := (p.tail + p.pad) % p.size()
	transport.PutHeader(p.data[at+headerAt:], tag, p.reserved)
	return p.data[at+headerAt : at+slot+uint64(p.reserved)], nil
}

// Passed forgets the reserved frame, which has gone past the ring.
func (p *Producer) Passed() { p.need = 0 }

// Forward takes the reserved frame as sent, for a link whose receiver has a ring of its own
// in which frames are placed as they are here. It returns the frame from the 32 unused bytes
// before its header on, and the position behind it. Its memory is taken until GivenBack.
func (p *Producer) Forward(tag transport.Tag) (frame []byte, end uint64, err error) {
	if p.need == 0 {
		return nil, 0, p.unreserved()
	}
	at := (p.tail + p.pad) % p.size()
	transport.PutHeader(p.data[at+headerAt:], tag, p.reserved)
	p.tail += p.pad + p.need
	p.need = 0
	return p.data[at : at+slot+uint64(p.reserved)], p.tail, nil
}

// GivenBack notes that everything before head may be reserved again.
func (p *Producer) GivenBack(head uint64) {
	p.ring.head.Store(head)
	wakeIf(p.producerSleeps, p.state.Space.Signal)
}

func (p *Producer) unreserved() error {
	return fmt.Errorf("transport: Commit to rank %d without Reserve", p.ring.peer)
}

func (p *Producer) commit(tag transport.Tag, putHeader func([]byte, transport.Tag, int)) (int, error) {
	if err := p.state.Err(); err != nil {
		return 0, err
	}
	if p.need == 0 {
		return 0, p.unreserved()
	}
	if err := p.state.GoneErr(); err != nil {
		return 0, err
	}
	if p.pad > 0 {
		binary.LittleEndian.PutUint32(p.data[p.tail%p.size()+headerAt:], markMagic)
		p.tail += p.pad
	}
	putHeader(p.data[p.tail%p.size()+headerAt:], tag, p.reserved)
	p.tail += p.need
	p.need = 0
	p.ring.tail.Store(p.tail)
	wakeIf(p.consumerSleeps, p.wake)
	return p.reserved, nil
}

// Consumer is the receiving end.
type Consumer struct {
	ring
	waiter
	wake func()
	head uint64 // where the next frame begins
	tail uint64 // last tail seen
	held uint64 // bytes of the frame that Next returned, 0 if it is released

	whole []byte // that frame, header and payload

	read    Reader // how an offer is taken, nil where none may come
	offered bool   // the frame that Next returned is an offer
	offer   offer
}

// NewConsumer makes the receiving end of the ring in b. wake signals Space of
// the producer's state.
func NewConsumer(b []byte, maxPayload, peer int, state *State, wake func()) *Consumer {
	c := &Consumer{ring: newRing(b, maxPayload, peer), wake: wake}
	c.waiter = waiter{state: state, event: state.Data, armed: c.consumerSleeps, ready: c.frames,
		drain: true, op: "receive", peer: peer}
	return c
}

// frames says whether there is a frame.
func (c *Consumer) frames() (bool, error) {
	if c.tail != c.head {
		return true, nil
	}
	t := c.ring.tail.Load()
	if t-c.head > c.size() || t%slot != 0 {
		return false, c.damaged("ring tail is %d with head %d in a ring of %d bytes", t, c.head, c.size())
	}
	c.tail = t
	return t != c.head, nil
}

// Next waits for a frame. The frame before must have been released.
func (c *Consumer) Next(deadline time.Time) (transport.Frame, error) {
	if c.held != 0 {
		return transport.Frame{}, fmt.Errorf("transport: Next from rank %d before Release", c.ring.peer)
	}
	if err := c.wait(deadline); err != nil {
		return transport.Frame{}, err
	}
	f, err := c.parse()
	if err != nil {
		c.state.Fail(err)
	}
	return f, err
}

func (c *Consumer) parse() (transport.Frame, error) {
	// A copy: the peer could change what lies in the segment between check and use.
	var header [transport.HeaderSize]byte
	at := c.head % c.size()
	copy(header[:], c.data[at+headerAt:])
	var pad uint64
	if binary.LittleEndian.Uint32(header[:]) == markMagic {
		pad = c.size() - at
		if at == 0 || pad >= c.tail-c.head {
			return transport.Frame{}, c.damaged("wrap mark at %d with %d bytes in the ring", at, c.tail-c.head)
		}
		at = 0
		copy(header[:], c.data[headerAt:])
	}
	tag, n, direct, err := transport.ParseHeader(header[:], c.ring.peer, c.max)
	if err != nil {
		return transport.Frame{}, err
	}
	if c.offered = direct; direct && (c.read == nil || n != offerBytes) {
		return transport.Frame{}, c.damaged("offer of %d bytes", n)
	}
	need := uint64(FrameBytes(n))
	if pad+need > c.tail-c.head || at+need > c.size() {
		return transport.Frame{}, c.damaged("frame of %d bytes at %d of %d with %d bytes committed", need, at, c.size(),
			c.tail-c.head)
	}
	c.held, c.whole = pad+need, c.data[at+headerAt:at+slot+uint64(n)]
	if c.offered {
		c.offer = parseOffer(c.data[at+slot:])
		return transport.Frame{Tag: tag}, nil
	}
	return transport.Frame{Tag: tag, Payload: c.data[at+slot : at+slot+uint64(n) : at+slot+uint64(n)]}, nil
}

// Head is how far frames were released, Whole the frame that Next returned, header and payload in one run.
func (c *Consumer) Head() uint64  { return c.head }
func (c *Consumer) Whole() []byte { return c.whole }

// Release gives the frame's memory back to the producer. Debug builds overwrite
// it, so that who still reads it notices.
func (c *Consumer) Release() {
	if c.held == 0 {
		return
	}
	mem.Scribble(c.whole)
	c.head += c.held
	c.held = 0
	c.ring.head.Store(c.head)
	wakeIf(c.producerSleeps, c.wake)
}
