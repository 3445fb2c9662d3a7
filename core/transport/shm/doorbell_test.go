package shm

import (
	"testing"
	"time"

	"sar/core/transport/internal/ring"
)

// A doorbell wakes who it is for. Where it rang more often than is heard at once,
// so that the socket may have had no room for some of it, it wakes both.
func TestDoorbell(t *testing.T) {
	heard := func(e ring.Event, within time.Duration) bool {
		select {
		case <-e:
			return true
		case <-time.After(within):
			return false
		}
	}
	for _, c := range []struct {
		what  byte
		times int
		data  bool
		space bool
	}{{forData, 1, true, false}, {forSpace, 3, false, true}, {forData, hearing, true, true}} {
		ca, cb := sockets(t)
		ra, err := ca.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		rb, err := cb.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		wake := waker(ra, c.what)
		for range c.times {
			wake()
		}
		state := ring.NewState(0)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			pump(rb, state, 0)
		}()
		wait := func(due bool) time.Duration {
			if due {
				return 10 * time.Second
			}
			return 50 * time.Millisecond
		}
		if got := heard(state.Data, wait(c.data)); got != c.data {
			t.Errorf("%d times %d: data %v", c.times, c.what, got)
		}
		if got := heard(state.Space, wait(c.space)); got != c.space {
			t.Errorf("%d times %d: space %v", c.times, c.what, got)
		}
		_ = ca.Close()
		<-ended
		if state.GoneErr() == nil {
			t.Error("the end was not noticed")
		}
		_ = cb.Close()
	}
}
