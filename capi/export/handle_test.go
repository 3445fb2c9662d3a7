package export

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"sar/core/session"
)

func wantText(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one that says %q", err, text)
	}
}

func TestHandlesAreTypedAndClose(t *testing.T) {
	h := register(kindPartition, "one", nil)
	other := register(kindPartition, "two", nil)
	if h == other || h == 0 {
		t.Fatalf("handles %#x and %#x", h, other)
	}
	c := &call{}
	if v, err := use[string](c, h, kindPartition); err != nil || v != "one" {
		t.Fatalf("got %q, %v", v, err)
	}
	_, err := use[string](c, h, kindGraph)
	wantText(t, err, "a graph is needed, and the handle is of a partition")
	c.release()
	if _, err := remove(h, kindPartition); err != nil {
		t.Fatal(err)
	}
	for _, again := range []func() error{
		func() error { _, err := use[string](&call{}, h, kindPartition); return err },
		func() error { _, err := remove(h, kindPartition); return err },
	} {
		err := again()
		wantText(t, err, "the partition is closed")
		if d := classify(err); d.status != 9 {
			t.Errorf("status %d of a closed handle", d.status)
		}
	}
	_, err = find(1<<40, kindSession)
	wantText(t, err, "is not a handle")
	_, err = find(0, kindSession)
	wantText(t, err, "session handle is 0")
}

func TestFreeingWaitsForCallsInProgress(t *testing.T) {
	h := register(kindGraph, "graph", nil)
	c := &call{}
	if _, err := use[string](c, h, kindGraph); err != nil {
		t.Fatal(err)
	}
	e, err := remove(h, kindGraph)
	if err != nil {
		t.Fatal(err)
	}
	freed := make(chan struct{})
	go func() { e.busy.Lock(); close(freed) }()
	select {
	case <-freed:
		t.Fatal("freed under a call that works on it")
	case <-time.After(20 * time.Millisecond):
	}
	c.release()
	select {
	case <-freed:
	case <-time.After(10 * time.Second):
		t.Fatal("never freed")
	}
}

type fakeSession struct {
	mu     sync.Mutex
	aborts []string
}

func (f *fakeSession) Abort(message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.aborts = append(f.aborts, message)
}

func TestPanicPoisonsTheSessionAndTellsPeers(t *testing.T) {
	f := &fakeSession{}
	s := register(kindSession, f, nil)
	c := &call{}
	if _, err := use[*fakeSession](c, s, kindSession); err != nil {
		t.Fatal(err)
	}
	g := register(kindGraph, "graph", c.last())
	c.release()

	status := guard("test", func(c *call) error {
		if _, err := use[string](c, g, kindGraph); err != nil {
			return err
		}
		panic("boom")
	})
	if status != 11 {
		t.Errorf("status %d of a panic", status)
	}
	if len(f.aborts) != 1 || !strings.Contains(f.aborts[0], "boom") {
		t.Errorf("peers were told %q", f.aborts)
	}
	for _, h := range []func(c *call) error{
		func(c *call) error { _, err := use[*fakeSession](c, s, kindSession); return err },
		func(c *call) error { _, err := use[string](c, g, kindGraph); return err },
	} {
		c := &call{}
		err := h(c)
		wantText(t, err, "can only be closed")
		wantText(t, err, "boom")
		c.release()
	}
	for h, k := range map[uint64]kind{uint64(g): kindGraph, uint64(s): kindSession} {
		e := table.live[h]
		if e.kind != k || !e.busy.TryLock() {
			t.Errorf("the %s is still held after the panic", k)
		}
	}
	if _, err := remove(s, kindSession); err != nil {
		t.Errorf("a poisoned session must close: %v", err)
	}
}

func TestErrorsHaveTheirStatus(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("outer: %w", err) }
	for _, c := range []struct {
		err    error
		status int
		check  func(d details) bool
	}{
		{session.Invalid("x"), 1, nil},
		{session.WrongType("x"), 2, nil},
		{&session.SizeError{Peer: 2}, 1, nil},
		{&session.FormatError{File: "f", Offset: 7}, 3, func(d details) bool { return d.file == "f" && d.offset == 7 }},
		{&session.PeerLost{Rank: 3, Host: "h", Phase: "p"}, 4, func(d details) bool { return d.rank == 3 && d.host == "h" && d.phase == "p" }},
		{&session.PeerGone{Peer: 3}, 4, func(d details) bool { return d.rank == 3 }},
		{&session.RemoteError{Rank: 1, Message: "m"}, 5, func(d details) bool { return d.rank == 1 }},
		{&session.ScheduleError{Peer: 1}, 6, func(d details) bool { return d.rank == 1 }},
		{&session.BudgetError{Minimum: 99}, 7, func(d details) bool { return d.minimum == 99 }},
		{&session.DeadlineError{Peer: 1}, 8, nil},
		{&session.TimeoutError{Peer: 1}, 8, nil},
		{session.ErrClosed, 9, nil},
		{session.ErrGroupClosed, 9, nil},
		{&fs.PathError{Op: "open", Path: "p", Err: fs.ErrNotExist}, 10, func(d details) bool { return d.file == "p" }},
		{errors.New("anything else"), 11, nil},
		{&session.RendezvousError{Message: "m"}, 12, nil},
	} {
		d := classify(wrapped(c.err))
		if int(d.status) != c.status || d.message != "outer: "+c.err.Error() || c.check != nil && !c.check(d) {
			t.Errorf("%T: %+v", c.err, d)
		}
	}
}
