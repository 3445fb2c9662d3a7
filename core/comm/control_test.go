package comm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
)

// TestControlOfASlowReader has a peer take the head of a message and then nothing for longer than
// a write may take. What it reads later is the rest, and the next message.
func TestControlOfASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		from, to := &control{conn: here}, &control{conn: there}
		defer from.close()
		sent := make(chan error, 1)
		send := func(m message) {
			encoded, err := m.encoded()
			if err == nil {
				err = from.send(encoded)
			}
			sent <- err
		}
		go send(message{Type: msgBye, Rank: 3})
		var head [4]byte
		if _, err := io.ReadFull(there, head[:]); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a write to a peer that does not read: %v", err)
		}
		go send(message{Type: msgPing})
		body := make([]byte, binary.LittleEndian.Uint32(head[:]))
		var first message
		_, err := io.ReadFull(there, body)
		if err := errors.Join(err, json.Unmarshal(body, &first)); err != nil || first.Type != msgBye || first.Rank != 3 {
			t.Errorf("the rest of the first message: %q, %v", body, err)
		}
		if next, err := to.receive(); err != nil || next.Type != msgPing {
			t.Errorf("the next message: %+v, %v", next, err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}
