package tcp_test

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"sar/core/transport"
	"sar/core/transport/conformance"
	"sar/core/transport/tcp"
)

func soon() time.Time { return time.Now().Add(10 * time.Second) }

func TestDirect(t *testing.T) { conformance.RunDirect(t, conformance.Pairs(newPair)) }

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
			if how == "deadline" && !errors.As(err, &late) || how == "fail" && err != broken ||
				how == "close" && err != transport.ErrClosed {
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
