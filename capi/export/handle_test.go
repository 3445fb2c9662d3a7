package export

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
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

// Objects of tests, under kinds of the engine's.
var (
	aPartition = kindOf[string](partitions)
	aGraph     = kindOf[string](graphs)
	aSession   = kindOf[*fakeSession](sessions)
)

// ended is the error that ended an export whose body is f.
func ended(f func(c *call)) (err error) {
	c := &call{}
	defer c.release()
	defer func() {
		if v := recover(); v != nil {
			err = v.(refusal).error
		}
	}()
	f(c)
	return nil
}

func TestHandlesAreTypedAndClose(t *testing.T) {
	h := register(aPartition, "one", nil)
	other := register(aPartition, "two", nil)
	if h == other || h == 0 {
		t.Fatalf("handles %#x and %#x", h, other)
	}
	c := &call{}
	if v := use(c, h, aPartition); v != "one" {
		t.Fatalf("got %q", v)
	}
	wantText(t, ended(func(c *call) { use(c, h, aGraph) }), "a graph is needed, and the handle is of a partition")
	c.release()
	if _, err := remove(h, aPartition); err != nil {
		t.Fatal(err)
	}
	for _, again := range []func(c *call){
		func(c *call) { use(c, h, aPartition) },
		func(c *call) { must(remove(h, aPartition)) },
	} {
		err := ended(again)
		wantText(t, err, "the partition is closed")
		if d := classify(err); d.status != 9 {
			t.Errorf("status %d of a closed handle", d.status)
		}
	}
	_, err := find(1<<40, kind(sessions))
	wantText(t, err, "is not a handle")
	_, err = find(0, kind(sessions))
	wantText(t, err, "session handle is 0")
}

func TestFreeingWaitsForCallsInProgress(t *testing.T) {
	h := register(aGraph, "graph", nil)
	c := &call{}
	use(c, h, aGraph)
	freed := make(chan error)
	go func() { freed <- free(h, aGraph, func(string) error { return nil }) }()
	select {
	case <-freed:
		t.Fatal("freed under a call that works on it")
	case <-time.After(20 * time.Millisecond):
	}
	wantText(t, ended(func(c *call) { use(c, h, aGraph) }), "the graph is closed")
	c.release()
	select {
	case err := <-freed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("never freed")
	}
}

type fakeSession struct{ aborts []string }

func (f *fakeSession) Abort(message string) { f.aborts = append(f.aborts, message) }

func TestPanicPoisonsTheSessionAndTellsPeers(t *testing.T) {
	f := &fakeSession{}
	s := register(aSession, f, nil)
	g := register(aGraph, "graph", table.live[uint64(s)])

	status := guard("test", func(c *call) {
		use(c, g, aGraph)
		panic("boom")
	})
	if status != 11 {
		t.Errorf("status %d of a panic", status)
	}
	if len(f.aborts) != 1 || !strings.Contains(f.aborts[0], "boom") {
		t.Errorf("peers were told %q", f.aborts)
	}
	for _, again := range []func(c *call){
		func(c *call) { use(c, s, aSession) },
		func(c *call) { use(c, g, aGraph) },
	} {
		err := ended(again)
		wantText(t, err, "can only be closed")
		wantText(t, err, "boom")
	}
	for h, k := range map[uint64]kind{uint64(g): kind(graphs), uint64(s): kind(sessions)} {
		e := table.live[h]
		if e.kind != k || !e.busy.TryLock() {
			t.Errorf("the %s is still held after the panic", k)
		}
	}
	if _, err := remove(s, aSession); err != nil {
		t.Errorf("a poisoned session must close: %v", err)
	}
}

func TestRefusalsPoisonNothing(t *testing.T) {
	f := &fakeSession{}
	s := register(aSession, f, nil)
	status := guard("test", func(c *call) {
		use(c, s, aSession)
		refuse("no")
	})
	if status != 1 || len(f.aborts) != 0 {
		t.Errorf("status %d, and peers were told %q", status, f.aborts)
	}
	if err := ended(func(c *call) { use(c, s, aSession) }); err != nil {
		t.Error(err)
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
		{&session.PeerLost{Rank: 3, Host: "h", Phase: "p"}, 4,
			func(d details) bool { return d.rank == 3 && d.host == "h" && d.phase == "p" }},
		{&session.PeerGone{Peer: 3}, 4, func(d details) bool { return d.rank == 3 }},
		{&session.RemoteError{Rank: 1, Message: "m"}, 5, func(d details) bool { return d.rank == 1 }},
		{&session.ScheduleError{Peer: 1}, 6, func(d details) bool { return d.rank == 1 }},
		{&session.BudgetError{Minimum: 99}, 7, func(d details) bool { return d.minimum == 99 }},
		{&session.DeadlineError{Peer: 1}, 8, nil},
		{&session.TimeoutError{Peer: 1}, 8, nil},
		{session.ErrClosed, 14, nil},
		{session.ErrGroupClosed, 14, nil},
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
