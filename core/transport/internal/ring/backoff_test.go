package ring

import (
	"testing"
	"time"
)

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
