package foreign

import (
	"cmp"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sar/core/mem"
	"sar/core/transport"
	"sar/core/transport/internal/ring"
)

// A link has a ring each way, as links in shared memory have, but each side has a copy of
// both. A frame that is committed is sent from where it lies in the sender's ring to the
// same place in the receiver's, since both place frames by one rule. What the receiver
// releases it tells the sender, with its own frames or in a message of its own: so no more
// is ever on its way than the receiver's ring has room for, whatever the library buffers.
//
// A frame is a message of 64 bytes, in which the receiver reads how large the second one is
// that brings the payload, if there is one:
//
//	 0  u64   how far the sender has released what it received
//	 8  u8    what follows: a frame, nothing, or nothing ever again
//	32  [32]  header of the frame
const slotBytes = transport.Align

const headerAt = slotBytes - transport.HeaderSize

const (
	slotFrame  = iota // of a frame
	slotRoom          // tells of room alone
	slotLast          // the sender has closed
	slotKindAt = 8
)

// Places in the page of each link.
const (
	arrivingAt   = 0
	roomAt       = 64
	lastAt       = 128
	proofOutAt   = 256
	proofInAt    = proofOutAt + blockBytes
	pageBytes    = 4096
	blockBytes   = 128
	lingerTime   = 5 * time.Second        // for a closed link to deliver what was committed
	overtakeTime = time.Second            // for that to arrive once the peer's connection has ended
	departTime   = 100 * time.Millisecond // that Close waits for it
	revokeTime   = 10 * time.Second       // ten times what a library that revokes may take
	mostSending  = MaxPosted - 4          // room and the last message are posted beside frames
)

var longAgo = time.Unix(1, 0)

type link struct {
	*ring.Staged
	opened  *Opened
	conn    net.Conn
	channel Channel
	refs    atomic.Int64 // users of the memory: the link, its reader, what is posted

	page                    mem.Array[byte]
	ringsMemory, pageMemory Memory

	spill []byte // part of the ring of what comes, for frames that come when this side has closed

	post sync.Mutex    // held to post, so that messages have one order
	dead chan struct{} // closed, under post, when the channel is disconnected

	mu       sync.Mutex // guards what follows
	sending  outgoings
	room     uint64     // position up to which the peer has released
	lessPost ring.Event // signalled when a message is done

	freed   atomic.Uint64 // position up to which this side has released
	told    atomic.Uint64 // what the peer knows of that
	telling atomic.Bool   // the message that tells it is on its way
	again   ring.Event    // signalled when it is not any more
	tell    Request
	last    Request

	header, payload, direct *awaited

	gone, lastSent     chan struct{} // the peer has; the last message has left
	goneOnce, lastOnce sync.Once
	failed             atomic.Bool
	pumped, released   chan struct{} // closed when it has left, and when the memory is free
}

// newLink makes a link that has no channel yet.
func newLink(o *Opened, about transport.Properties, conn net.Conn, peer, linkBytes int) (*link, error) {
	l := &link{
		opened: o, conn: conn, dead: make(chan struct{}), lessPost: ring.NewEvent(), again: ring.NewEvent(),
		gone: make(chan struct{}), lastSent: make(chan struct{}), pumped: make(chan struct{}), released: make(chan struct{}),
	}
	l.refs.Store(1)
	l.header, l.payload, l.direct = newAwaited(l), newAwaited(l), newAwaited(l)
	l.tell = Request{l, func(err error) {
		l.telling.Store(false)
		l.sendFailed(err)
		l.again.Signal()
	}}
	l.last = Request{l, func(error) { close(l.lastSent) }}
	var err error
	if l.Staged, err = ring.NewStaged(about, peer, linkBytes, nil, l.interrupt, l.free); err != nil {
		return nil, err
	}
	if err := l.register(); err != nil {
		return nil, err
	}
	l.Passed = l.gaveBack
	in := ring.Bytes(l.MaxPayload())
	l.spill = l.Memory.Data[in-l.MaxPayload() : in]
	o.refs.Add(1)
	return l, nil
}

// register makes the link's memory ready for the network. Where that fails it is freed.
func (l *link) register() (err error) {
	if l.page, err = mem.Make[byte](mem.Scratch, pageBytes); err == nil {
		l.ringsMemory, err = l.opened.worker.Register(l.Memory.Data)
	}
	if err == nil {
		if l.pageMemory, err = l.opened.worker.Register(l.page.Data); err != nil {
			l.opened.worker.Unregister(l.ringsMemory)
		}
	}
	if err != nil {
		l.Memory.Free()
		l.page.Free()
		return l.opened.explain(err)
	}
	return nil
}

func (l *link) unref() {
	if l.refs.Add(-1) > 0 {
		return
	}
	go func() { // whoever was last may hold locks of the library's
		defer close(l.released)
		l.opened.worker.Unregister(l.ringsMemory)
		l.opened.worker.Unregister(l.pageMemory)
		l.Memory.Free()
		l.page.Free()
		l.opened.unref()
	}()
}

// posting runs f, which posts messages, unless the channel is disconnected.
func (l *link) posting(f func()) error {
	l.post.Lock()
	defer l.post.Unlock()
	select {
	case <-l.dead:
		return l.endErr()
	default:
		f()
		return nil
	}
}

func (l *link) endErr() error {
	return cmp.Or(l.OutEnds.Err(), l.OutEnds.GoneErr(), transport.ErrClosed)
}

// sendNow and receiveNow are for within posting.
func (l *link) sendNow(b []byte, m Memory, r *Request) {
	l.refs.Add(1)
	l.channel.Send(b, m, r)
}

func (l *link) receiveNow(b []byte, m Memory, r *Request) {
	l.refs.Add(1)
	l.channel.Receive(b, m, r)
}

// disconnect has the library end everything that is posted.
func (l *link) disconnect() {
	_ = l.posting(func() {
		close(l.dead)
		if l.channel != nil {
			l.channel.Disconnect()
		}
	})
}

// Commit sends the reserved frame. It waits where very many small ones are on their way.
func (l *link) Commit(tag transport.Tag, deadline time.Time) error {
	return l.Sending(func() error {
		if err := l.OutEnds.GoneErr(); err != nil {
			return err
		}
		if err := l.postable(deadline); err != nil {
			return err
		}
		n := l.Out.Reserved()
		frame, end, err := l.Out.Forward(tag)
		if err == nil {
			err = l.sendFrame(frame, end, func() {})
		}
		if err == nil {
			l.Sent(n)
		}
		return err
	})
}

// sendFrame posts a frame that lies in the ring, or the header of a direct one, and what then
// posts: messages of others, who release frames meanwhile, must not come in between.
func (l *link) sendFrame(frame []byte, end uint64, then func()) error {
	messages := 1
	if len(frame) > slotBytes {
		messages = 2
	}
	return l.posting(func() {
		l.mu.Lock()
		f := l.sending.take(l, end, messages)
		l.mu.Unlock()
		l.describe(frame, slotFrame)
		l.sendNow(frame[:slotBytes], l.ringsMemory, &f.parts[0])
		if messages == 2 {
			l.sendNow(frame[slotBytes:], l.ringsMemory, &f.parts[1])
		}
		then()
	})
}

// describe fills the part of a slot that is not the frame's header.
func (l *link) describe(slot []byte, kind byte) {
	clear(slot[:headerAt])
	freed := l.freed.Load()
	binary.LittleEndian.PutUint64(slot, freed)
	slot[slotKindAt] = kind
	l.told.Store(freed)
}

// left ends the sending of a frame, as the library reports it: its memory may be used again, unless it failed.
func (l *link) left(f *outgoing, err error) {
	l.sendFailed(err)
	l.mu.Lock()
	if err == nil { // else the memory stays taken
		l.sending.passed(f)
		l.giveBack()
	}
	l.mu.Unlock()
	l.lessPost.Signal()
}

// giveBack has memory of the ring used again that the peer has released and that the
// library no longer reads. mu is held.
func (l *link) giveBack() { l.Out.GivenBack(min(l.room, l.sending.through)) }

// postable waits until another frame may be posted.
func (l *link) postable(deadline time.Time) error {
	enough := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.sending.posted+2 <= mostSending
	}
	if enough() {
		return nil
	}
	expired, stop := ring.Expiry(deadline)
	defer stop()
	for !enough() {
		if _, err := wait(l, l.lessPost, expired); err != nil {
			return err
		}
		if err := l.OutEnds.GoneErr(); err != nil {
			return err
		}
	}
	return nil
}

// Release gives the frame back, and tells the peer that there is room.
func (l *link) Release() {
	l.Staged.Release()
	l.gaveBack()
}

func (l *link) gaveBack() {
	l.freed.Store(l.In.Head())
	l.tellRoom()
}

// tellRoom tells the peer how far frames are released. One such message is on its way at a
// time; the reader sends the next one.
func (l *link) tellRoom() {
	if l.told.Load() == l.freed.Load() || !l.telling.CompareAndSwap(false, true) {
		return
	}
	if l.posting(func() { l.sendSlot(roomAt, slotRoom, &l.tell) }) != nil {
		l.telling.Store(false)
	}
}

// sendSlot posts a slot of the page that is not of a frame.
func (l *link) sendSlot(at int, kind byte, r *Request) {
	slot := l.page.Data[at : at+slotBytes]
	clear(slot)
	l.describe(slot, kind)
	l.sendNow(slot, l.pageMemory, r)
}

// sendFailed notes that the peer cannot be sent to. What it sent is still read; the reader
// finds out by itself that no more comes.
func (l *link) sendFailed(err error) {
	if err != nil {
		l.OutEnds.Gone(&transport.PeerGone{Peer: l.Peer(), Err: l.opened.explain(err)})
	}
}

func (l *link) peerEnded(err error) {
	l.PeerEnded(err)
	l.goneOnce.Do(func() { close(l.gone) })
}
