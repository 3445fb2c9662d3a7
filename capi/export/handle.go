package export

/*
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"sync"
)

// kind is what a handle stands for. It is the top byte of the handle, so that
// a handle of the wrong kind is told from one that was closed.
type kind uint8

const (
	kindSession kind = iota + 1
	kindPartition
	kindDataset
	kindGraph
	kindMatrix
	kindSampler
	kindBatch
	kindProgram
	kindMap
	numKinds
)

var kindNames = [numKinds]string{"", "session", "partition", "dataset", "graph", "matrix", "sampler", "batch", "program", "map"}

func (k kind) String() string {
	if k > 0 && k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("object of unknown kind %d", uint8(k))
}

const serialBits = 56

// entry is one live object.
type entry struct {
	kind  kind
	value any
	owner *entry // the session that a graph belongs to; a session owns itself; else nil

	busy sync.RWMutex // held for reading while a call works on the object

	mu       sync.Mutex
	poisoned error
}

// abort is told of a bug, where the object has peers that would wait.
type abort interface{ Abort(message string) }

// table holds the live objects. Serials are never used twice.
var table = struct {
	sync.Mutex
	serial uint64
	live   map[uint64]*entry
}{live: map[uint64]*entry{}}

// register makes a handle for v. parent is the entry whose session v belongs to, or nil.
func register(k kind, v any, parent *entry) C.sar_handle {
	e := &entry{kind: k, value: v}
	switch {
	case k == kindSession:
		e.owner = e
	case parent != nil:
		e.owner = parent.owner
	}
	table.Lock()
	defer table.Unlock()
	table.serial++
	h := uint64(k)<<serialBits | table.serial
	table.live[h] = e
	return C.sar_handle(h)
}

// find returns the entry of a handle.
func find(h C.sar_handle, want kind) (*entry, error) {
	if h == 0 {
		return nil, invalid("the %s handle is 0", want)
	}
	serial := uint64(h) & (1<<serialBits - 1)
	got := kind(uint64(h) >> serialBits)
	table.Lock()
	defer table.Unlock()
	if got == 0 || got >= numKinds || serial == 0 || serial > table.serial {
		return nil, invalid("%#x is not a handle of this process", uint64(h))
	}
	if got != want {
		return nil, invalid("a %s is needed, and the handle is of a %s", want, got)
	}
	e := table.live[uint64(h)]
	if e == nil {
		return nil, &closedError{want}
	}
	return e, nil
}

// remove takes the object out of the table: later calls find it closed. Calls
// that already work on it go on; the caller of remove waits for them through
// e.busy, or makes them fail.
func remove(h C.sar_handle, want kind) (*entry, error) {
	e, err := find(h, want)
	if err != nil {
		return nil, err
	}
	table.Lock()
	defer table.Unlock()
	if table.live[uint64(h)] == nil {
		return nil, &closedError{want}
	}
	delete(table.live, uint64(h))
	return e, nil
}

// call is one export in progress: the objects that it uses.
type call struct{ used []*entry }

// use returns the object of a handle, which is not freed before the call ends.
func use[T any](c *call, h C.sar_handle, want kind) (T, error) {
	var zero T
	e, err := find(h, want)
	if err != nil {
		return zero, err
	}
	if o := e.owner; o != nil {
		o.mu.Lock()
		err := o.poisoned
		o.mu.Unlock()
		if err != nil {
			return zero, fmt.Errorf("the session met a bug in an earlier call and can only be closed: %w", err)
		}
	}
	if !e.busy.TryRLock() {
		return zero, &closedError{want} // someone is freeing it
	}
	c.used = append(c.used, e)
	return e.value.(T), nil
}

// last is the entry that use found most recently.
func (c *call) last() *entry { return c.used[len(c.used)-1] }

func (c *call) release() {
	for _, e := range c.used {
		e.busy.RUnlock()
	}
}

// poison marks the sessions of the objects in use and tells their peers.
func (c *call) poison(err error) {
	for _, e := range c.used {
		o := e.owner
		if o == nil {
			continue
		}
		o.mu.Lock()
		first := o.poisoned == nil
		if first {
			o.poisoned = err
		}
		o.mu.Unlock()
		if a, ok := o.value.(abort); ok && first {
			a.Abort(err.Error())
		}
	}
}
