package foreign

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"sar/core/transport"
	"sar/core/transport/tcp"
	"sar/core/trust"
)

// Purpose is that of connections beside a library's, whichever it is.
const Purpose trust.Purpose = 5

// Opened is a library in use by one rank, until Close and the end of its links.
type Opened struct {
	provider Provider
	worker   Worker
	identity *trust.Identity
	refs     atomic.Int64
}

// Open prepares a library for the rank of an identity.
func Open(p Provider, id *trust.Identity) (*Opened, error) {
	o := &Opened{provider: p, identity: id}
	if id.Certificate() != [32]byte{} {
		return nil, fmt.Errorf("transport %s does not run under TLS: use tcp where SAR_TLS is set", p.Name())
	}
	var err error
	if o.worker, err = p.Open(id.Rank, id.World); err != nil {
		return nil, o.explain(err)
	}
	o.refs.Store(1)
	if n := len(o.worker.Address()); n > MaxAddress {
		o.Close()
		return nil, o.explain(fmt.Errorf("its address has %d bytes, at most %d are allowed", n, MaxAddress))
	}
	return o, nil
}

// explain says whose error it is.
func (o *Opened) explain(err error) error { return fmt.Errorf("%s: %w", o.provider.Name(), err) }

// Close ends the use of the library. Links live on.
func (o *Opened) Close() { o.unref() }

func (o *Opened) unref() {
	if o.refs.Add(-1) == 0 {
		o.worker.Close()
	}
}

func (o *Opened) properties(own, peer transport.Endpoint) transport.Properties {
	cost := o.provider.ByteCost()
	if cost <= 0 {
		cost = tcp.ByteCost(own, peer)
	}
	return transport.Properties{Kind: o.provider.Name(), ByteCost: cost}
}

// Name is what users ask for, and what endpoints tell.
func (o *Opened) Name() string { return o.provider.Name() }

// Transport makes links that the library carries.
func (o *Opened) Transport() *transport.Transport {
	return &transport.Transport{
		Name: o.Name(), Purpose: Purpose, Network: "tcp", Reach: o.reach,
		Offer:  func(linkBytes int) (transport.End, error) { return &end{o, linkBytes, true}, nil },
		Accept: func(_, linkBytes int) (transport.End, error) { return &end{o, linkBytes, false}, nil },
	}
}

func (o *Opened) reach(own, peer transport.Endpoint) error {
	if peer.Library == o.Name() {
		return nil
	}
	uses := "no library"
	if peer.Library != "" {
		uses = peer.Library
	}
	return fmt.Errorf("rank %d on %s uses %s: set SAR_TRANSPORT=%s on every worker, and register it there where it is "+
		"not SAR's own",
		peer.Rank, peer.Host, uses, o.Name())
}

// end is an end of a link to be.
type end struct {
	opened    *Opened
	linkBytes int
	dials     bool
}

func (*end) Descriptor() int { return -1 }
func (*end) Drop()           {}

// Link exchanges addresses over conn, connects, and has both sides prove themselves over what
// the library connected.
func (e *end) Link(conn net.Conn, own, peer transport.Endpoint) (transport.Link, error) {
	l, err := newLink(e.opened, e.opened.properties(own, peer), conn, peer.Rank, e.linkBytes)
	if err != nil {
		return nil, err
	}
	if err := l.connect(e.dials); err != nil {
		l.disconnect()
		l.unref()
		return nil, err
	}
	l.refs.Add(1)
	go l.read()
	if e.opened.provider.Revokes() {
		return direct{l}, nil
	}
	return l, nil
}

// tags are for the library's messages to links of this process.
var tags atomic.Uint32

// greeting is sent by both sides at once, little-endian, and then the sender's address.
type greeting struct {
	Magic uint32 // "SARX"
	Tag   uint32 // of messages to the sender
	Bytes uint32 // of the address
	Name  [20]byte
}

const greetingMagic = 'S' | 'A'<<8 | 'R'<<16 | 'X'<<24

func (l *link) connect(dials bool) error {
	own := tags.Add(1)
	tag, address, err := l.greet(own)
	if err != nil {
		return err
	}
	l.channel, err = l.opened.worker.Connect(Peer{Rank: l.Peer(), Address: address, SendTag: tag, ReceiveTag: own})
	if err != nil {
		return l.opened.explain(err)
	}
	go l.pump()
	if err := l.prove(dials, tag, own); err != nil {
		return fmt.Errorf("proving who is at the other end of %s: %w", l.opened.Name(), err)
	}
	clear(l.page.Data)
	return nil
}

// greet tells the peer how the library reaches this side, and hears how it reaches the peer.
func (l *link) greet(own uint32) (tag uint32, address []byte, err error) {
	address = l.opened.worker.Address()
	mine, theirs := greeting{Magic: greetingMagic, Tag: own, Bytes: uint32(len(address))}, greeting{}
	copy(mine.Name[:], l.opened.Name())
	b, _ := binary.Append(nil, binary.LittleEndian, mine)
	if _, err := l.conn.Write(append(b, address...)); err != nil { // fits what a connection buffers
		return 0, nil, err
	}
	if err := binary.Read(l.conn, binary.LittleEndian, &theirs); err != nil {
		return 0, nil, err
	}
	switch {
	case theirs.Magic != greetingMagic || theirs.Bytes > MaxAddress:
		return 0, nil, fmt.Errorf("rank %d did not greet as %s does: run one version of SAR on every worker", l.Peer(),
			l.opened.Name())
	case theirs.Name != mine.Name:
		return 0, nil, fmt.Errorf("rank %d uses another library than %s: use one transport setting on every worker", l.Peer(),
			l.opened.Name())
	}
	address = make([]byte, theirs.Bytes)
	_, err = io.ReadFull(l.conn, address)
	return theirs.Tag, address, err
}
