// Package trace records what the engine does and when: operations, the waits in
// them, and the work between. It is off unless somebody looks; then an event
// costs two clock readings and a slot in an array made beforehand.
package trace

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Lane is where in a picture an event belongs: events of one lane nest or
// follow each other, those of two lanes may overlap.
type Lane uint8

const (
	Operations Lane = iota // one slice an operation
	Computing              // from own rows, while others travel
	Sending                // producing rows for a peer and waiting for room in its link
	Receiving              // waiting for a peer's rows and consuming them
	numLanes
)

var laneNames = [numLanes]string{"operations", "computing", "sending", "receiving"}

func (l Lane) String() string { return laneNames[l] }

// Event is something that took time.
type Event struct {
	Name  string
	Lane  Lane
	Group string // communicator: operations of two of them may overlap
	Peer  int32  // rank on the other side, -1 for none
	Round int32
	Bytes int64
	Start time.Time
	Took  time.Duration
}

type recorder struct {
	slots []slot
	next  atomic.Int64
}

// slot is one event, whole once it is ready.
type slot struct {
	Event
	ready atomic.Bool
}

var (
	current atomic.Pointer[recorder]
	control sync.Mutex
)

// MaxEvents is the most that a recording holds, about 100 MiB.
const MaxEvents = 1 << 20

// Start begins a recording of at most capacity events; later ones are counted
// and dropped. There is one recording at a time.
func Start(capacity int) error {
	if capacity < 1 || capacity > MaxEvents {
		return fmt.Errorf("a trace of %d events: 1 to %d are possible", capacity, MaxEvents)
	}
	control.Lock()
	defer control.Unlock()
	if current.Load() != nil {
		return fmt.Errorf("a trace is being recorded already: end it first")
	}
	current.Store(&recorder{slots: make([]slot, capacity)})
	return nil
}

// Stop ends the recording and returns its events, in the order in which they
// ended, and how many there was no room for.
func Stop() (events []Event, dropped int64, err error) {
	control.Lock()
	defer control.Unlock()
	r := current.Swap(nil)
	if r == nil {
		return nil, 0, fmt.Errorf("no trace is being recorded: start one first")
	}
	n := r.next.Load()
	held := min(n, int64(len(r.slots)))
	// Who found the recorder before it was taken away may still be writing.
	for i := range r.slots[:held] {
		if s := &r.slots[i]; s.ready.Load() {
			events = append(events, s.Event)
		}
	}
	return events, n - held, nil
}

// Span is the beginning of an event. The zero Span is of no recording.
type Span struct {
	r     *recorder
	start time.Time
}

// Begin starts an event where somebody records.
func Begin() Span {
	r := current.Load()
	if r == nil {
		return Span{}
	}
	return Span{r, time.Now()}
}

// On tells whether the event will be kept, for callers to whom a name costs
// something.
func (s Span) On() bool { return s.r != nil }

// End records the event.
func (s Span) End(name string, lane Lane, group string, peer, round int, bytes int64) {
	if s.r == nil {
		return
	}
	took := time.Since(s.start)
	i := s.r.next.Add(1) - 1
	if i < int64(len(s.r.slots)) {
		slot := &s.r.slots[i]
		slot.Event = Event{name, lane, group, int32(peer), int32(round), bytes, s.start, took}
		slot.ready.Store(true)
	}
}
