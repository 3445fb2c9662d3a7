package ring

import (
	"sync/atomic"
	"testing"
	"time"

	"sar/core/transport"
)

// A producer that waits lazily is woken when half of the ring is free and not
// before, one that waits for its frame as soon as that fits, and neither waits where
// everything was given back.
func TestLazyProducer(t *testing.T) {
	const max, frames = 4096, 24
	small := max/8 - slot // a ring holds 24 frames and the rest of a wider slot
	for lazily, want := range map[bool]int{false: 1, true: frames / 2} {
		b := memory(t, max)
		state := NewState(0)
		var woken atomic.Int32
		p := NewProducer(b, max, 1, state, func() {})
		c := NewConsumer(b, max, 1, NewState(0), func() { woken.Add(1); state.Space.Signal() })
		reserve := p.Reserve
		if lazily {
			reserve = p.ReserveLazily
		}
		filled := 0
		for ; ; filled++ {
			if _, err := p.Reserve(small, time.Unix(1, 0)); err != nil {
				break
			}
			if _, err := p.Commit(transport.Tag{}); err != nil {
				t.Fatal(err)
			}
		}
		if filled < frames {
			t.Fatalf("%d frames fit", filled)
		}
		done := make(chan error)
		go func() {
			_, err := reserve(small, time.Now().Add(20*time.Second))
			done <- err
		}()
		for p.producerSleeps.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		given := 0
		for woken.Load() == 0 && given < filled {
			if _, err := c.Next(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			c.Release()
			given++
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if given < want || given > want+2 { // a frame more where the end of the ring is skipped
			t.Errorf("lazily %v: woken after %d of %d frames", lazily, given, filled)
		}
		for ; given < filled; given++ {
			if _, err := c.Next(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			c.Release()
		}
		if _, err := p.ReserveLazily(max, time.Now().Add(time.Second)); err != nil {
			t.Errorf("all is free: %v", err)
		}
	}
}

// A time that has passed is not waited for, however long a waiter would spin.
func TestNoWaiting(t *testing.T) {
	state := NewState(time.Hour)
	c := NewConsumer(memory(t, 64), 64, 1, state, func() {})
	begin := time.Now()
	if _, err := c.Next(time.Unix(1, 0)); err == nil || time.Since(begin) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}

// Spinning in vain becomes rarer, and spinning that helps brings it back.
func TestBackoff(t *testing.T) {
	var b backoff
	spun := 0
	for range 1000 {
		if b.due() {
			spun++
			b.miss()
		}
	}
	if spun > 30 {
		t.Errorf("%d of 1000 waits spun in vain", spun)
	}
	b.skip = 0
	b.hit()
	for range 100 {
		if !b.due() {
			t.Fatal("a waiter whose spinning helps does not spin")
		}
		b.hit()
	}
}
