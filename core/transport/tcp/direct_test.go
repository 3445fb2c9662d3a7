package tcp_test

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"sar/core/transport"
	"sar/core/transport/tcp"
)

func directPair(t *testing.T) (a, b transport.Direct) {
	t.Helper()
	la, lb := newPair(t, 0, 1, 1<<16)
	t.Cleanup(func() { _ = la.Close(); _ = lb.Close() })
	return la.(transport.Direct), lb.(transport.Direct)
}

func soon() time.Time { return time.Now().Add(10 * time.Second) }

// Direct frames keep their place among the others, are larger than the link,
// and carry their tags.
func TestDirectFrames(t *testing.T) {
	a, b := directPair(t)
	sizes := []int{1 << 20, 0, 1, 3 << 20}
	payload := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, sizes[i]) }
	sent := make(chan error, 1)
	go func() {
		for i := range sizes {
			buf, err := a.Reserve(1, soon())
			if err == nil {
				buf[0] = byte(i)
				err = a.Commit(transport.Tag{Seq: uint64(2 * i)}, soon())
			}
			if err == nil {
				err = a.SendFrom(transport.Tag{Seq: uint64(2*i + 1)}, payload(i), soon())
			}
			if err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range sizes {
		f, err := b.Next(soon())
		if err != nil || f.Tag.Seq != uint64(2*i) || f.Payload[0] != byte(i) {
			t.Fatalf("frame %d: %+v, %v", i, f.Tag, err)
		}
		b.Release()
		dst := make([]byte, sizes[i])
		tag, err := b.ReceiveInto(dst, soon())
		if err != nil || tag.Seq != uint64(2*i+1) || !bytes.Equal(dst, payload(i)) {
			t.Fatalf("direct frame %d: %+v, %v", i, tag, err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if s, r := a.Stats(), b.Stats(); s.SentBytes != r.RecvBytes || s.SentFrames != 8 {
		t.Errorf("sent %+v, received %+v", s, r)
	}
}

// Where the two sides disagree nothing is written and nobody waits.
func TestDirectMismatch(t *testing.T) {
	a, b := directPair(t)
	if err := a.SendFrom(transport.Tag{}, make([]byte, 100), soon()); err != nil {
		t.Fatal(err)
	}
	dst := bytes.Repeat([]byte{7}, 99)
	var bad *transport.FrameError
	if _, err := b.ReceiveInto(dst, soon()); !errors.As(err, &bad) || bytes.Count(dst, []byte{7}) != 99 {
		t.Errorf("100 bytes into 99: %v", err)
	}
}

// A deadline or Fail in the middle of a payload ends the receiver, and the
// memory it named is not written to any more.
func TestDirectInterrupted(t *testing.T) {
	for _, how := range []string{"deadline", "fail", "close"} {
		t.Run(how, func(t *testing.T) {
			conn, raw := loopback(t)
			defer func() { _ = raw.Close() }()
			l := linkOver(t, conn)
			header := make([]byte, transport.HeaderSize)
			transport.PutDirectHeader(header, transport.Tag{}, 1000)
			if _, err := raw.Write(append(header, make([]byte, 400)...)); err != nil {
				t.Fatal(err)
			}
			broken := errors.New("broken")
			deadline := soon()
			switch how {
			case "deadline":
				deadline = time.Now().Add(100 * time.Millisecond)
			case "fail":
				time.AfterFunc(100*time.Millisecond, func() { l.Fail(broken) })
			case "close":
				time.AfterFunc(100*time.Millisecond, func() { _ = l.Close() })
			}
			dst := bytes.Repeat([]byte{9}, 1000)
			start := time.Now()
			_, err := l.ReceiveInto(dst, deadline)
			if err == nil || time.Since(start) > 5*time.Second {
				t.Fatalf("%v after %v", err, time.Since(start))
			}
			var late *transport.TimeoutError
			if how == "deadline" && !errors.As(err, &late) || how == "fail" && err != broken || how == "close" && err != transport.ErrClosed {
				t.Errorf("ended with %v", err)
			}
			_, _ = raw.Write(make([]byte, 600)) // may fail: the link is finished
			time.Sleep(20 * time.Millisecond)
			if n := bytes.Count(dst, []byte{9}); n < 600 {
				t.Errorf("%d bytes were written after the end", 600-n)
			}
		})
	}
}

func linkOver(t *testing.T, conn net.Conn) transport.Direct {
	t.Helper()
	l, err := tcp.NewLink(conn, 1, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(transport.Direct)
}
