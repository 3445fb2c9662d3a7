package comm

import (
	"fmt"
	"slices"

	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/internal/view"
)

// collective runs f as one operation of the communicator.
func (c *Communicator) collective(kind Kind, f func(op *Op) error) error {
	op, err := c.BeginSending(kind, None, "")
	if err != nil {
		return err
	}
	if c.World() <= 2 { // hardly more than one wait, as a rule a short one
		return op.End(f(op))
	}
	return op.End(op.Run(func() error { return f(op) }))
}

// up is the rank that is r places after this one, around the circle, and down the one before it.
func (c *Communicator) up(r int) int   { return (c.Rank() + r) % c.World() }
func (c *Communicator) down(r int) int { return (c.Rank() - r + c.World()) % c.World() }

// ToPeers calls f for the peers in the order of rounds: r and the rank r places up, for r = 1, 2, ….
// FromPeers does for r and the rank r places down.
func (c *Communicator) ToPeers(f func(r, q int) error) error   { return c.eachPeer(c.up, f) }
func (c *Communicator) FromPeers(f func(r, q int) error) error { return c.eachPeer(c.down, f) }

func (c *Communicator) eachPeer(peer func(r int) int, f func(r, q int) error) error {
	for r := 1; r < c.World(); r++ {
		if err := f(r, peer(r)); err != nil {
			return err
		}
	}
	return nil
}

// Barrier returns once every rank has called it. Up to barrierFan ranks: log2(P) steps, and
// as many empty frames from each rank. More: along a tree, two frames for each rank but 0.
func (c *Communicator) Barrier() error {
	return c.collective(KindBarrier, func(op *Op) error {
		if c.World() > barrierFan {
			return op.treeBarrier()
		}
		for round, d := 0, 1; d < c.World(); round, d = round+1, 2*d {
			if err := op.Send(c.up(d), round, 0, nil); err != nil {
				return err
			}
			if err := op.signal(c.down(d), round); err != nil {
				return err
			}
		}
		return nil
	})
}

// barrierFan is how many ranks report to one in the tree of a barrier: with 16, two steps up
// and two down for 17 to 273 ranks.
const barrierFan = 16

// treeBarrier waits for the ranks below, reports to the one above, waits for its release and
// passes that on.
func (op *Op) treeBarrier() error {
	me, p := op.c.Rank(), op.c.World()
	first := min(me*barrierFan+1, p)
	last := min(first+barrierFan, p)
	for q := first; q < last; q++ {
		if err := op.signal(q, 0); err != nil {
			return err
		}
	}
	if above := (me - 1) / barrierFan; me > 0 {
		if err := op.Send(above, 0, 0, nil); err != nil {
			return err
		}
		if err := op.signal(above, 1); err != nil {
			return err
		}
	}
	for q := first; q < last; q++ {
		if err := op.Send(q, 1, 0, nil); err != nil {
			return err
		}
	}
	return nil
}

// signal waits for the frame of a round that says no more than that peer is there.
func (op *Op) signal(peer, round int) error {
	_, err := op.Next(peer, round, 0)
	if err == nil {
		op.Release(peer)
	}
	return err
}

// Up to flatBytes the root of a broadcast and every rank of an all-reduce send
// the whole to everyone: one step. Beyond, bandwidth counts for more.
const flatBytes = 32 << 10

// Broadcast overwrites buf with the root's. Small ones (flatBytes): 1 step, the
// root sends P-1 times the bytes. Large ones go along a chain root, root+1, …
// in frames, each passed on as soon as it is there: the root and everyone but
// the last send the bytes once, in about bytes/MaxPayload + P-2 steps. Either way
// the root tells everyone its size first, so that a rank with a buffer of another
// one ends the operation at once.
func (c *Communicator) Broadcast(buf []byte, root int) error {
	if root < 0 || root >= c.World() {
		return argument.Errorf("broadcast from rank %d: ranks are 0 to %d", root, c.World()-1)
	}
	return c.collective(KindBroadcast, func(op *Op) error {
		p := c.World()
		place := (c.Rank() - root + p) % p // in the chain
		if len(buf) <= min(flatBytes, op.payload-headSize) {
			if place > 0 {
				return op.recvStream(root, root, buf, nil)
			}
			return c.ToPeers(func(_, q int) error { return op.sendStream(q, root, buf) })
		}
		switch place {
		case 0:
			if p == 1 {
				return nil
			}
			for r := 2; r < p; r++ {
				if err := op.announce(c.up(r), root, len(buf)); err != nil {
					return err
				}
			}
			return op.sendStream(c.up(1), root, buf)
		case 1: // the root's stream says it
		default:
			if err := op.announced(root, root, len(buf)); err != nil {
				return err
			}
		}
		if place == p-1 {
			return op.recvStream(c.down(1), root, buf, nil)
		}
		pass := op.outStream(c.up(1), root, buf) // the front goes on while the rest still comes in
		return op.recvStream(c.down(1), root, buf, pass.upTo)
	})
}

// AllToAll sends send[q] to rank q and fills recv[q] with what comes from it.
// Sizes may differ from pair to pair; len(recv[q]) here must be len(send[p])
// on q. Steps: P-1 rounds, in round r to p+r and from p-r. Bytes: what is sent.
func (c *Communicator) AllToAll(send, recv [][]byte) error {
	p, me := c.World(), c.Rank()
	if len(send) != p || len(recv) != p {
		return argument.Errorf("all-to-all of %d and %d buffers among %d ranks: there must be one for each rank", len(send),
			len(recv), p)
	}
	if len(send[me]) != len(recv[me]) {
		return argument.Errorf("all-to-all: rank %d sends %d bytes to itself and expects %d", me, len(send[me]),
			len(recv[me]))
	}
	return c.collective(KindAllToAll, func(op *Op) error {
		copy(recv[me], send[me])
		return op.Run(func() error {
			return c.ToPeers(func(r, q int) error { return op.sendStream(q, r, send[q]) })
		}, func() error {
			return c.FromPeers(func(r, q int) error { return op.recvStream(q, r, recv[q], nil) })
		})
	})
}

// ExchangePair sends to one rank while it receives from another; -1 is nobody,
// this rank itself is allowed for both. Every rank calls it, and whom a rank
// sends to must receive from it. Steps: 1. Bytes: what is sent.
func (c *Communicator) ExchangePair(sendTo int, send []byte, recvFrom int, recv []byte) error {
	me := c.Rank()
	for _, q := range []int{sendTo, recvFrom} {
		if q < -1 || q >= c.World() {
			return argument.Errorf("pair exchange with rank %d: ranks are 0 to %d, and -1 is nobody", q, c.World()-1)
		}
	}
	if (sendTo == me) != (recvFrom == me) {
		return argument.Errorf("pair exchange: rank %d is its own partner in one direction only", me)
	}
	if sendTo == me && len(send) != len(recv) {
		return argument.Errorf("pair exchange: rank %d sends %d bytes to itself and expects %d", me, len(send), len(recv))
	}
	return c.collective(KindPair, func(op *Op) error {
		if sendTo == me {
			copy(recv, send)
			return nil
		}
		run := op.Run
		if recvFrom >= 0 && c.Link(recvFrom).Shared { // one run is copied, without a wait as a rule
			run = op.RunOnCaller
		}
		return run(func() error {
			if sendTo < 0 {
				return nil
			}
			return op.sendStream(sendTo, 0, send)
		}, func() error {
			if recvFrom < 0 {
				return nil
			}
			return op.recvStream(recvFrom, 0, recv, nil)
		})
	})
}

// maxGather bounds what one rank may hand to AllGather.
const maxGather = 1 << 30

// AllGather returns everyone's data, by rank; sizes may differ. Steps: P-1
// rounds. Bytes: P-1 times len(data).
func (c *Communicator) AllGather(data []byte) ([][]byte, error) {
	if len(data) > maxGather {
		return nil, argument.Errorf("all-gather of %d bytes: at most %d", len(data), maxGather)
	}
	all := make([][]byte, c.World())
	all[c.Rank()] = append([]byte{}, data...)
	err := c.collective(KindAllGather, func(op *Op) error {
		return op.Run(func() error {
			return c.ToPeers(func(r, q int) error { return op.sendStream(q, r, data) })
		}, func() error {
			return c.FromPeers(func(r, q int) error {
				return op.recvSized(q, r, func(size uint64) ([]byte, error) {
					if size > maxGather {
						return nil, op.Mismatch(q, fmt.Sprintf("rank %d announces %d bytes, at most %d are allowed", q, size, maxGather))
					}
					all[q] = make([]byte, size)
					return all[q], nil
				}, nil)
			})
		})
	})
	return all, err
}

// AllGatherInts returns everyone's values, by rank; lengths may differ.
func (c *Communicator) AllGatherInts(values ...int64) ([][]int64, error) {
	all, err := c.AllGather(view.Bytes(values))
	if err != nil {
		return nil, err
	}
	out := make([][]int64, len(all))
	for r, b := range all {
		out[r] = make([]int64, len(b)/8)
		copy(view.Bytes(out[r]), b)
	}
	return out, nil
}

// AllToAllInts sends send[q] to rank q and returns what comes from each. All are of one length.
func (c *Communicator) AllToAllInts(send [][]int64) ([][]int64, error) {
	out, in, recv := make([][]byte, len(send)), make([][]byte, len(send)), make([][]int64, len(send))
	for q, values := range send {
		recv[q] = make([]int64, len(values))
		out[q], in[q] = view.Bytes(values), view.Bytes(recv[q])
	}
	return recv, c.AllToAll(out, in)
}

// SumInts returns the sum of each value over all ranks.
func (c *Communicator) SumInts(values ...int64) ([]int64, error) {
	sums := slices.Clone(values)
	return sums, c.AllReduce(view.Bytes(sums), dtypes.Int64, Sum)
}
