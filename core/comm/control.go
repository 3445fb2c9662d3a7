package comm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// message is what travels on the connection that each pair of ranks keeps for
// control: a u32 length, little-endian, and JSON.
type message struct {
	Type    string
	Failure failure
	Memory  map[string]int64 `json:",omitempty"` // with signs of life and goodbyes
}

const (
	msgPing = "ping" // a sign of life
	msgBye  = "bye"  // this rank shuts down in good order
	msgFail = "fail" // the group has failed
)

const maxControl = 8 * maxText // JSON makes six bytes of one at worst

// tellTime bounds a write to one peer. A peer that reads has room at once.
const tellTime = 250 * time.Millisecond

// control is one such connection. Its end without a goodbye is the death of
// the peer's process.
type control struct {
	conn net.Conn
	mu   sync.Mutex // one writer at a time
}

// encoded is m as it travels.
func (m message) encoded() ([]byte, error) {
	body, err := json.Marshal(m)
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...), err
}

func (c *control) send(encoded []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(tellTime)); err != nil {
		return err
	}
	_, err := c.conn.Write(encoded)
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

// attach starts listening to every peer. conns is nil at this rank's place.
func (g *Group) attach(conns []net.Conn) {
	for r, conn := range conns {
		if g.peers[r] == nil {
			continue
		}
		g.peers[r].control = &control{conn: conn}
	}
	for r, p := range g.peers {
		if p != nil {
			g.wg.Go(func() { g.listen(r, p) })
		}
	}
}

// tell sends m to every peer.
func (g *Group) tell(m message) { g.send(m, func(*peer) bool { return true }) }

// send sends m to some peers. One that cannot be reached is dead or about to be found
// dead, so errors do not matter here.
func (g *Group) send(m message, to func(*peer) bool) {
	encoded, err := m.encoded()
	if err != nil {
		return // never: a message holds text and numbers
	}
	for _, p := range g.peers {
		if p != nil && p.control != nil && to(p) {
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
		if m.Memory != nil {
			p.memory.Store(&m.Memory)
		}
		switch m.Type {
		case msgBye:
			p.byeOnce.Do(func() { close(p.bye) })
		case msgFail:
			g.fail(m.Failure.unpack(g.cfg.Rank, r, p.Host), false)
		}
	}
}
