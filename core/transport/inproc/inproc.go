// Package inproc joins ranks that live in one process, for tests of what runs
// above transport. A link is two rings in a mapping that both ends use.
package inproc

import (
	"fmt"
	"sync/atomic"

	"sar/core/mem"
	"sar/core/transport"
	"sar/core/transport/internal/ring"
)

// NewMesh joins size ranks: links[rank][peer], nil for the rank itself.
// linkBytes is the memory of each pair, both directions together, and is
// counted as mem.Window until both ends are closed. It panics where the
// memory cannot be had, as a test has no use for the error.
func NewMesh(size, linkBytes int) [][]transport.Link {
	links := make([][]transport.Link, size)
	for r := range links {
		links[r] = make([]transport.Link, size)
	}
	for a := range size {
		for b := a + 1; b < size; b++ {
			la, lb, err := NewPair(a, b, linkBytes)
			if err != nil {
				panic(fmt.Sprintf("inproc: %v", err))
			}
			links[a][b], links[b][a] = la, lb
		}
	}
	return links
}

var properties = transport.Properties{Kind: "inproc", Shared: true, ByteCost: 0.1}

// NewPair joins ranks a and b and returns a's end and b's end.
func NewPair(a, b, linkBytes int) (la, lb transport.Link, err error) {
	max, err := ring.MaxPayload(linkBytes, 2, 0)
	if err != nil {
		return nil, nil, err
	}
	half := ring.Bytes(max)
	memory, err := mem.Make[byte](mem.Window, 2*half)
	if err != nil {
		return nil, nil, err
	}
	ab, ba := memory.Data[:half], memory.Data[half:]
	sa, sb := ring.NewState(0), ring.NewState(0)
	open := new(atomic.Int32)
	open.Store(2)
	leave := func(rank int, other *ring.State) func() {
		return func() {
			other.Gone(&transport.PeerGone{Peer: rank})
			if open.Add(-1) == 0 {
				memory.Free()
			}
		}
	}
	la = ring.NewLink(properties, b, ring.NewProducer(ab, max, b, sa, sb.Data.Signal),
		ring.NewConsumer(ba, max, b, sa, sb.Space.Signal), leave(a, sb))
	lb = ring.NewLink(properties, a, ring.NewProducer(ba, max, a, sb, sa.Data.Signal),
		ring.NewConsumer(ab, max, a, sb, sa.Space.Signal), leave(b, sa))
	return la, lb, nil
}
