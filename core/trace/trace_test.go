package trace

import (
	"sync"
	"testing"
	"time"
)

func TestNothingIsKeptWhereNobodyLooks(t *testing.T) {
	Begin().End("x", Sending, "c", 1, 1, 1)
	if Begin().On() {
		t.Error("an event begins without a recording")
	}
	if _, _, err := Stop(); err == nil {
		t.Error("a recording that was not started ends without an error")
	}
}

func TestRecording(t *testing.T) {
	if err := Start(3); err != nil {
		t.Fatal(err)
	}
	if Start(3) == nil {
		t.Error("two recordings at once")
	}
	before := time.Now()
	var late Span
	for i := range 4 {
		late = Begin()
		time.Sleep(time.Millisecond)
		late.End("gather", Sending, "c", i, 2*i, int64(10*i))
	}
	events, dropped, err := Stop()
	if err != nil || len(events) != 3 || dropped != 1 {
		t.Fatalf("%d events, %d dropped, %v: want 3, 1", len(events), dropped, err)
	}
	for i, e := range events {
		if e.Name != "gather" || e.Lane != Sending || e.Group != "c" || int(e.Peer) != i || int(e.Round) != 2*i ||
			e.Bytes != int64(10*i) {
			t.Errorf("event %d is %+v", i, e)
		}
		if e.Took < time.Millisecond || e.Start.Before(before) {
			t.Errorf("event %d took %v from %v", i, e.Took, e.Start)
		}
	}
	late.End("after the recording", Sending, "c", 0, 0, 0) // must not panic, nor show in the next one
	if err := Start(1); err != nil {
		t.Fatal(err)
	}
	if events, _, _ := Stop(); len(events) != 0 {
		t.Errorf("a new recording begins with %+v", events)
	}
}

func TestManyAtOnce(t *testing.T) {
	if err := Start(1000); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 100 {
				Begin().End("e", Receiving, "c", 0, 0, 0)
			}
		}()
	}
	wg.Wait()
	events, dropped, _ := Stop()
	if len(events) != 800 || dropped != 0 {
		t.Errorf("%d events, %d dropped", len(events), dropped)
	}
}

func TestCapacity(t *testing.T) {
	for _, n := range []int{0, -1, MaxEvents + 1} {
		if Start(n) == nil {
			t.Errorf("a recording of %d events was started", n)
			_, _, _ = Stop()
		}
	}
}
