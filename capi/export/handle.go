package export

/*
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"sync"

	"sar/core/session"
)

// kind is what a handle stands for. It is the top byte of the handle, so that
// a handle of the wrong kind is told from one that was closed.
type kind uint8

// kindOf is a kind whose objects are of type T.
type kindOf[T any] kind

const (
	sessions   kindOf[*session.Session]       = 1
	partitions kindOf[*session.Partition]     = 2
	datasets   kindOf[*session.Dataset]       = 3
	graphs     kindOf[*session.Graph]         = 4
	matrices   kindOf[*session.Matrix]        = 5
	samplers   kindOf[*sampler]               = 6
	batches    kindOf[*session.Batch]         = 7
	programs   kindOf[session.Program]        = 8
	maps       kindOf[*session.MappedFeature] = 9
)

var kindNames = []string{"", "session", "partition", "dataset", "graph", "matrix", "sampler", "batch", "program", "map"}

func (k kind) String() string { return kindNames[k] }

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

// table holds the live objects. Serials are never used twice.
var table = struct {
	sync.Mutex
	serial uint64
	live   map[uint64]*entry
}{live: map[uint64]*entry{}}

// register makes a handle for v. parent is the entry whose session v belongs to, or nil.
func register[T any](k kindOf[T], v T, parent *entry) C.sar_handle {
	e := &entry{kind: kind(k), value: v}
	switch {
	case kind(k) == kind(sessions):
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
		return nil, session.Invalid("the %s handle is 0", want)
	}
	serial := uint64(h) & (1<<serialBits - 1)
	got := kind(uint64(h) >> serialBits)
	table.Lock()
	defer table.Unlock()
	if got == 0 || int(got) >= len(kindNames) || serial == 0 || serial > table.serial {
		return nil, session.Invalid("%#x is not a handle of this process", uint64(h))
	}
	if got != want {
		return nil, session.Invalid("a %s is needed, and the handle is of a %s", want, got)
	}
	e := table.live[uint64(h)]
	if e == nil {
		return nil, &closedError{want}
	}
	return e, nil
}

// remove takes an object out of the table: later calls find it closed, and calls
// that already work on it go on.
func remove[T any](h C.sar_handle, k kindOf[T]) (*entry, error) {
	e, err := find(h, kind(k))
	if err != nil {
		return nil, err
	}
	table.Lock()
	defer table.Unlock()
	if table.live[uint64(h)] == nil {
		return nil, &closedError{kind(k)}
	}
	delete(table.live, uint64(h))
	return e, nil
}

// free removes an object, waits for the calls that work on it, and ends it.
func free[T any](h C.sar_handle, k kindOf[T], end func(T) error) error {
	e, err := remove(h, k)
	if err != nil {
		return err
	}
	e.busy.Lock()
	defer e.busy.Unlock()
	return end(e.value.(T))
}

// drop is free of what has nothing to say in the end.
func drop[T interface{ Free() }](h C.sar_handle, k kindOf[T]) error {
	return free(h, k, func(v T) error { v.Free(); return nil })
}

// use returns the object of a handle, which is not freed before the call ends.
func use[T any](c *call, h C.sar_handle, k kindOf[T]) T {
	e := must(find(h, kind(k)))
	if o := e.owner; o != nil {
		o.mu.Lock()
		err := o.poisoned
		o.mu.Unlock()
		if err != nil {
			need(fmt.Errorf("the session met a bug in an earlier call and can only be closed: %w", err))
		}
	}
	if !e.busy.TryRLock() { // someone is freeing it
		need(&closedError{kind(k)})
	}
	c.used = append(c.used, e)
	return e.value.(T)
}

// create makes an object of the session of the objects that the call uses, and gives its handle.
func create[T any](c *call, k kindOf[T], out *C.sar_handle, make func() (T, error)) {
	give(kind(k).String(), out, 0) // before anything is made
	v := must(make())
	var parent *entry
	if n := len(c.used); n > 0 {
		parent = c.used[n-1]
	}
	*out = register(k, v, parent)
}
