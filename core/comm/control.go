package comm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// message is what travels on connections for control: a u32 length, little-endian,
// and JSON.
type message struct {
	Type    string
	Rank    int              `json:",omitzero"` // whose goodbye it is
	Failure failure          `json:",omitzero"`
	Memory  map[string]int64 `json:",omitempty"` // with signs of life and goodbyes
	Here    *position        `json:",omitempty"` // with signs of life to rank 0
	Phases  []Phase          `json:",omitempty"` // of all ranks, with those from rank 0
	Ask     *meetRequest     `json:",omitempty"`
	Answer  *meetReply       `json:",omitempty"`
	Asked   *ValueRequest    `json:",omitempty"`
	Told    *ValueReply      `json:",omitempty"`
}

const (
	msgPing = "ping" // a sign of life
	msgBye  = "bye"  // this rank shuts down in good order
	msgFail = "fail" // the group has failed
	msgMeet = "meet" // a meeting's question to rank 0, or its answer

	msgValue = "value" // a question to rank 0 about a value, or its answer
)

// maxControl holds an error, of whose bytes JSON makes six at worst, and what many ranks
// bring to a meeting.
const maxControl = 4 << 20

// tellTime bounds a write to one peer. A peer that reads has room at once.
const tellTime = 250 * time.Millisecond

// mostMeshed is the largest world in which each pair of ranks has a connection for
// control. In a larger one each rank has one to rank 0, which passes on goodbyes and
// failures: P-1 connections in all and not P·(P-1)/2, and as many signs of life.
const mostMeshed = 16

// passesOn says whether rank 0 tells the others what a rank says.
func (c Config) passesOn() bool { return c.World > mostMeshed && c.Rank == 0 }

// controls says whether this rank has a connection for control to another.
func (c Config) controls(peer int) bool {
	return c.World <= mostMeshed || c.Rank == 0 || peer == 0
}

// control is one such connection. Its end without a goodbye is the death of
// the peer's process.
type control struct {
	conn   net.Conn
	mu     sync.Mutex // one writer at a time
	unsent []byte
}

// encoded is m as it travels.
func (m message) encoded() ([]byte, error) {
	body, err := json.Marshal(m)
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...), err
}

// send writes what it can within tellTime. The rest goes before what is sent next, a sign of life if
// nothing else: a message cut off would have the peer read the next in the middle.
func (c *control) send(encoded []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unsent) > maxControl {
		return fmt.Errorf("%d bytes wait for a peer that does not read", len(c.unsent))
	}
	c.unsent = append(c.unsent, encoded...)
	if err := c.conn.SetWriteDeadline(time.Now().Add(tellTime)); err != nil {
		return err
	}
	n, err := c.conn.Write(c.unsent)
	c.unsent = c.unsent[n:]
	return err
}

func (c *control) receive() (message, error) {
	var m message
	var head [4]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return m, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxControl {
		return m, fmt.Errorf("control message of %d bytes, at most %d are allowed", n, maxControl)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return m, err
	}
	return m, json.Unmarshal(body, &m)
}

func (c *control) close() { _ = c.conn.Close() }

// attach starts listening to every peer with which there is a connection.
func (g *Group) attach(conns []net.Conn) {
	for r, conn := range conns {
		if conn != nil {
			g.peers[r].control = &control{conn: conn}
		}
	}
	for r, p := range g.peers {
		if p != nil && p.control != nil {
			g.wg.Go(func() { g.listen(r, p) })
		}
	}
}

// tell sends m to every peer with which there is a connection.
func (g *Group) tell(m message) { g.send(m, g.peers...) }

// send sends m to those of some peers with which there is a connection. One that cannot be
// reached is dead or about to be found dead, so errors do not matter here.
func (g *Group) send(m message, to ...*peer) {
	g.telling.Lock()
	defer g.telling.Unlock()
	g.sendLocked(m, to)
}

// sendLocked is send for who holds telling.
func (g *Group) sendLocked(m message, to []*peer) {
	encoded, err := m.encoded()
	if err != nil {
		return // never: a message holds text and numbers
	}
	for _, p := range to {
		if p != nil && p.control != nil {
			_ = p.control.send(encoded)
		}
	}
}

// listen takes what rank r says until its connection ends.
func (g *Group) listen(r int, p *peer) {
	for {
		m, err := p.control.receive()
		if err != nil {
			select {
			case <-g.done:
			case <-p.bye:
			default:
				if errors.Is(err, io.EOF) {
					g.lost(r, "its process has ended")
				} else {
					g.lost(r, "its control connection broke: %v", err)
				}
			}
			return
		}
		p.heard.Store(int64(now()))
		of := p // whom it is about
		if m.Type == msgBye && r == 0 && m.Rank > 0 && m.Rank < len(g.peers) && g.peers[m.Rank] != nil {
			of = g.peers[m.Rank]
		}
		if m.Memory != nil {
			of.memory.Store(&m.Memory)
		}
		switch m.Type {
		case msgPing:
			g.learn(r, m)
		case msgMeet:
			g.met(r, m)
		case msgValue:
			g.told(r, m)
		case msgBye:
			of.byeOnce.Do(func() { close(of.bye) })
			if g.hub != nil {
				g.hub.left()
			}
			if g.cfg.passesOn() {
				m.Rank = r
				g.send(m, slices.DeleteFunc(slices.Clone(g.peers), func(q *peer) bool { return q == p })...)
			}
		case msgFail:
			g.fail(m.Failure.unpack(g.cfg.Rank, r, p.Host), g.cfg.passesOn())
		}
	}
}
