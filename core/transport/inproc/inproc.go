// Package inproc joins ranks that live in one process, for tests of what runs
// above transport. A link is two rings in a mapping that both ends use.
package inproc

import (
	"sync/atomic"

	"sar/core/transport"
	"sar/core/transport/internal/ring"
)

var properties = transport.Properties{Kind: "inproc", Shared: true, ByteCost: 0.1}

// NewPair joins ranks a and b and returns a's end and b's end. linkBytes is the memory
// of both directions together, and is counted as mem.Window until both ends are closed.
func NewPair(a, b, linkBytes int) (la, lb transport.Link, err error) {
	memory, max, err := ring.Memory(linkBytes)
	if err != nil {
		return nil, nil, err
	}
	half := ring.Bytes(max)
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
