package tcp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"sar/core/transport"
	"sar/core/transport/conformance"
	"sar/core/transport/tcp"
)

// loopback joins two TCP connections.
func loopback(t testing.TB) (a, b net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if a, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func newPair(t testing.TB, a, b, linkBytes int) (la, lb transport.Link) {
	t.Helper()
	ca, cb := loopback(t)
	la, err := tcp.NewLink(ca, b, linkBytes)
	if err != nil {
		t.Fatal(err)
	}
	if lb, err = tcp.NewLink(cb, a, linkBytes); err != nil {
		t.Fatal(err)
	}
	return la, lb
}

func TestConformance(t *testing.T) { conformance.Run(t, "tcp", conformance.Pairs(newPair)) }

// TestDamage writes what is not a frame to a link.
func TestDamage(t *testing.T) {
	good := make([]byte, transport.HeaderSize)
	transport.PutHeader(good, transport.Tag{Seq: 5}, 3)
	good = append(good, "abc"...)
	large := make([]byte, transport.HeaderSize)
	transport.PutHeader(large, transport.Tag{}, 1<<20)
	for _, c := range []struct {
		name string
		tail []byte
		want any
	}{
		{"not a frame", []byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n"), new(*transport.FrameError)},
		{"too large", large, new(*transport.FrameError)},
		{"cut in the header", good[:10], new(*transport.PeerGone)},
		{"cut in the payload", good[:transport.HeaderSize+1], new(*transport.PeerGone)},
		{"whole", nil, new(*transport.PeerGone)},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, conn := loopback(t)
			l, err := tcp.NewLink(conn, 4, 1<<16)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			if _, err := raw.Write(append(append([]byte(nil), good...), c.tail...)); err != nil {
				t.Fatal(err)
			}
			_ = raw.Close()
			f, err := l.Next(time.Now().Add(time.Second))
			if err != nil || f.Tag.Seq != 5 || string(f.Payload) != "abc" {
				t.Fatalf("the good frame came as %+v %q, %v", f.Tag, f.Payload, err)
			}
			l.Release()
			if _, err := l.Next(time.Now().Add(time.Second)); !errors.As(err, c.want) {
				t.Errorf("got %v, want %T", err, c.want)
			}
		})
	}
}

// TestWireBytes reads what a link writes: the frames and nothing else.
func TestWireBytes(t *testing.T) {
	raw, conn := loopback(t)
	l, err := tcp.NewLink(conn, 1, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for i, payload := range []string{"", "hello", "frame"} {
		p, err := l.Reserve(len(payload), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		copy(p, payload)
		tag := transport.Tag{Seq: uint64(i)}
		if err := l.Commit(tag, time.Time{}); err != nil {
			t.Fatal(err)
		}
		header := make([]byte, transport.HeaderSize)
		transport.PutHeader(header, tag, len(payload))
		want = append(append(want, header...), payload...)
	}
	if l.Stats().SentBytes != uint64(len(want)) {
		t.Errorf("%d bytes counted, %d sent", l.Stats().SentBytes, len(want))
	}
	_ = l.Close()
	got, err := io.ReadAll(raw)
	_ = raw.Close()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("wire carried %d bytes, want %d; %v", len(got), len(want), err)
	}
}

// TestCommitDoesNotWait commits small frames, which the committer itself gives to the
// kernel, until Reserve has no room for another one: nobody reads meanwhile. Then
// all of them arrive whole.
func TestCommitDoesNotWait(t *testing.T) {
	a, b := newPair(t, 0, 1, 16<<10)
	defer func() { _, _ = a.Close(), b.Close() }()
	n := a.MaxPayload()
	content := func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8), byte(i >> 16)}, n/3) }
	frames := make(chan int, 1)
	go func() {
		i := 0
		for deadline := time.Now().Add(500 * time.Millisecond); ; i++ {
			p, err := a.Reserve(len(content(i)), deadline)
			var full *transport.TimeoutError
			if errors.As(err, &full) {
				break
			}
			if err == nil {
				copy(p, content(i))
				err = a.Commit(transport.Tag{Seq: uint64(i)}, time.Time{})
			}
			if err != nil {
				t.Error(err)
				break
			}
			deadline = time.Now().Add(500 * time.Millisecond)
		}
		frames <- i
	}()
	var sent int
	select {
	case sent = <-frames:
	case <-time.After(20 * time.Second):
		t.Fatal("Commit waits for the peer to read")
	}
	for i := range sent {
		f, err := b.Next(time.Now().Add(5 * time.Second))
		if err != nil {
			t.Fatalf("frame %d of %d: %v", i, sent, err)
		}
		if f.Tag.Seq != uint64(i) || !bytes.Equal(f.Payload, content(i)) {
			t.Fatalf("frame %d of %d came as number %d, or is damaged", i, sent, f.Tag.Seq)
		}
		b.Release()
	}
	if s := a.Stats(); s.SentFrames != uint64(sent) {
		t.Errorf("%d frames counted, %d sent", s.SentFrames, sent)
	}
}
