package comm

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"sar/core/internal/freeport"
	"sar/core/transport"
)

// holding is two ranks, the first of which is in an operation and has a frame of
// the second one.
func holding(t *testing.T, caller uint64) (groups []*Group, op *Op, frame transport.Frame, want []byte) {
	t.Helper()
	groups, err := Local(Config{World: 2, Caller: func() uint64 { return caller }})
	if err != nil {
		t.Fatal(err)
	}
	comms, errs := make([]*Communicator, 2), make([]error, 2)
	var wg sync.WaitGroup
	for r, g := range groups {
		wg.Go(func() { comms[r], errs[r] = g.NewCommunicator("close", 1<<20) })
	}
	wg.Wait()
	noErrors(t, errs)
	want = pattern(1, 100_000)
	sent, err := comms[1].Begin(KindBroadcast, None)
	if err == nil {
		err = sent.End(sent.Send(0, 0, 0, want))
	}
	if err != nil {
		t.Fatal(err)
	}
	if op, err = comms[0].Begin(KindBroadcast, None); err == nil {
		frame, err = op.Next(1, 0, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return groups, op, frame, want
}

// readable compares what may have been unmapped.
func readable(frame transport.Frame, want []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the frame's memory is gone: %v", v)
		}
	}()
	if !bytes.Equal(frame.Payload, want) {
		return fmt.Errorf("the frame is another one")
	}
	return nil
}

// A worker may be closed while another of its threads computes.
func TestCloseWaitsForAnOperation(t *testing.T) {
	groups, op, frame, want := holding(t, 0)
	closed := make(chan error, 2)
	for _, g := range groups {
		go func() { closed <- g.Close() }()
	}
	time.Sleep(100 * time.Millisecond)
	if err := readable(frame, want); err != nil {
		t.Fatal(err)
	}
	op.Release(1)
	if err := op.End(nil); err != nil {
		t.Fatal(err)
	}
	for range groups {
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("Close does not return")
		}
	}
}

// What an operation calls may close the worker, as a script that ends in a message
// function does: nobody waits for himself.
func TestCloseInAnOperation(t *testing.T) {
	groups, op, frame, want := holding(t, 7)
	begin := time.Now()
	for _, g := range groups {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if d := time.Since(begin); d > idleTime/2 {
		t.Errorf("Close took %v", d)
	}
	if err := readable(frame, want); err != nil {
		t.Fatal(err)
	}
	_ = op.End(nil)
}

// TestBackEarly has a rank leave, and come to the next meeting at the same port before rank 0 has left.
func TestBackEarly(t *testing.T) {
	cfgs := configs(freeport.Find(), 2, nil)
	gone := make(chan struct{})
	again := make(chan error)
	noErrors(t, joinAll(t, cfgs, func(g *Group) error {
		if g.Rank() == 0 {
			<-gone
			time.Sleep(300 * time.Millisecond)
			return nil
		}
		err := g.Close()
		go func() { again <- errors.Join(joinAll(t, cfgs[1:], nil)...) }()
		close(gone)
		return err
	}))
	noErrors(t, joinAll(t, cfgs[:1], nil))
	if err := <-again; err != nil {
		t.Error(err)
	}
}
