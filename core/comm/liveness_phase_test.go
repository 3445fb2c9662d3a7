package comm

import (
	"testing"
	"time"
)

// What the coordinator tells of another communicator is as old as its beat and one of rank 0, so that a
// frame which came just before it is of a later operation.
func TestNewestSighting(t *testing.T) {
	at := func(comm uint32, seq uint64, at time.Duration) sighting {
		return sighting{Phase{Step{Comm: comm, Seq: seq}, true}, at}
	}
	const lag = 2 * time.Second
	for _, c := range []struct {
		frame, told sighting
		want        bool
	}{
		{at(1, 5, 3*time.Second), at(0, 1, 4*time.Second), true},  // told what was before the frame
		{at(1, 5, 3*time.Second), at(0, 9, 6*time.Second), false}, // nothing came for long
		{at(1, 5, 3*time.Second), at(1, 6, 3*time.Second), false}, // the same communicator counts
		{at(1, 5, 3*time.Second), at(1, 4, 60*time.Second), true},
	} {
		if got := c.frame.newer(c.told, lag); got != c.want {
			t.Errorf("frame %+v, told %+v: newer is %v", c.frame, c.told, got)
		}
	}
}
