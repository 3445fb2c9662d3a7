package comm

import (
	"fmt"

	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/mem"
)

// AllReduce reduces buf, numbers of dtype, over all ranks in place. Everywhere
// contributions are folded in the order of ranks, 0 first, so every rank gets
// the same bits, whatever arrives first; float16 and bfloat16 are folded in
// float32 and rounded once. Min and Max carry a NaN of any rank, sum of bool is
// or, and an average of integers is refused.
//
// Small ones (flatBytes): 1 step, P-1 times the bytes sent by each rank. Large
// ones: reduce-scatter and all-gather, rank q folding the q-th part of buf; in
// all 2·(P-1)/P times the bytes sent by each rank, frame by frame so that a
// rank needs scratch for one frame.
func (c *Communicator) AllReduce(buf []byte, dtype dtypes.Type, op ReduceOp) error {
	r, err := newReducer(dtype, op, c.World())
	if err != nil {
		return err
	}
	if len(buf)%r.size != 0 {
		return argument.Errorf("all-reduce of %d bytes: no whole number of %s", len(buf), dtype)
	}
	return c.collective(KindAllReduce, func(o *Op) error {
		if c.World() == 1 {
			return nil
		}
		a := &allReduce{
			c: c, op: o, r: r, buf: buf, n: len(buf) / r.size,
			head: head{size: uint64(len(buf)), what: 1 + uint32(dtype)<<8 + uint32(op)<<16},
		}
		a.frame = (o.payload - headSize) / r.size
		a.flat = len(buf) <= flatBytes && a.n <= a.frame
		if !a.flat {
			a.part = (a.n + c.World() - 1) / c.World()
			a.steps = (a.part + a.frame - 1) / a.frame
		} else {
			a.part, a.steps = a.n, 1
		}
		scratch, err := mem.Make[byte](mem.Scratch, min(a.part, a.frame)*r.accSize)
		if err != nil {
			return err
		}
		defer scratch.Free()
		a.acc = scratch.Data
		return a.run()
	})
}

type allReduce struct {
	c     *Communicator
	op    *Op
	r     *reducer
	head  head
	buf   []byte
	n     int // numbers in buf
	frame int // numbers in one frame
	part  int // numbers that one rank folds, the last rank's may be fewer
	steps int // frames of a part
	flat  bool
	acc   []byte
}

// span is the bytes of buf in frame k of rank q's part.
func (a *allReduce) span(q, k int) []byte {
	part, size := a.whole(q), a.frame*a.r.size
	begin := min(k*size, len(part))
	return part[begin:min(begin+size, len(part))]
}

// whole is the bytes of buf in rank q's part.
func (a *allReduce) whole(q int) []byte {
	if a.flat {
		return a.buf
	}
	begin := min(q*a.part, a.n)
	return a.buf[begin*a.r.size : min(begin+a.part, a.n)*a.r.size]
}

const (
	roundReduce = 0
	roundGather = 1
)

// run: in step k everyone sends frame k of each part to the rank that folds it
// and folds frame k of its own. The frames of one step leave before those of
// the next, and a link holds two, so the rank in the lowest step always has or
// gets what it waits for.
//
// The flat way sends before it folds, as the result goes where the sender
// reads. That cannot block for good: at most two frames are on a link, because
// nobody is more than one operation ahead of a peer it has to hear from.
func (a *allReduce) run() error {
	if a.flat {
		if err := a.sendStep(0); err != nil {
			return err
		}
		return a.fold(0)
	}
	scattered, folded := make(chan struct{}), make(chan struct{})
	return a.op.Run(func() error {
		for k := range a.steps {
			if err := a.sendStep(k); err != nil {
				return err
			}
		}
		close(scattered)
		if err := a.await(folded); err != nil {
			return err
		}
		return a.c.ToPeers(func(_, q int) error { return a.sendPart(q) })
	}, func() error {
		for k := range a.steps {
			if err := a.fold(k); err != nil {
				return err
			}
		}
		close(folded)
		if err := a.await(scattered); err != nil { // what comes lands where the sender reads
			return err
		}
		return a.c.FromPeers(func(_, q int) error { return a.receivePart(q) })
	})
}

// sendPart sends the own part, folded, to a peer.
func (a *allReduce) sendPart(peer int) error {
	part := a.whole(a.c.Rank())
	if link, ok := a.op.direct(peer, uint64(len(part))); ok {
		return a.op.sendDirect(link, roundGather, part)
	}
	for k := range a.steps {
		if err := a.send(peer, roundGather, k, a.span(a.c.Rank(), k)); err != nil {
			return err
		}
	}
	return nil
}

// receivePart receives the part that q has folded.
func (a *allReduce) receivePart(q int) error {
	part := a.whole(q)
	if link, ok := a.op.direct(q, uint64(len(part))); ok {
		return a.op.recvDirect(link, roundGather, part, nil)
	}
	for k := range a.steps {
		if err := a.receive(q, roundGather, k, a.span(q, k), func(dst, x []byte) { copy(dst, x) }); err != nil {
			return err
		}
	}
	return nil
}

// await waits for the other half, whose failure is the group's.
func (a *allReduce) await(half <-chan struct{}) error {
	select {
	case <-half:
		return nil
	case <-a.c.g.failed:
		return a.c.g.Failure()
	case <-a.c.g.done:
		return ErrClosed
	}
}

// sendStep sends frame k of every other part to who folds it.
func (a *allReduce) sendStep(k int) error {
	return a.c.ToPeers(func(_, q int) error { return a.send(q, roundReduce, k, a.span(q, k)) })
}

// fold is own[k] = rank 0's ∘ rank 1's ∘ …, for frame k of the own part.
func (a *allReduce) fold(k int) error {
	own := a.span(a.c.Rank(), k)
	acc := a.acc[:len(own)/a.r.size*a.r.accSize]
	for q := range a.c.World() {
		f := a.r.fold
		if q == 0 {
			f = a.r.load
		}
		if q == a.c.Rank() {
			f(acc, own)
			continue
		}
		if err := a.receive(q, roundReduce, k, own, func(_, x []byte) { f(acc, x) }); err != nil {
			return err
		}
	}
	a.r.store(own, acc)
	return nil
}

func (a *allReduce) send(peer, round, k int, data []byte) error {
	skip := 0
	if round == roundReduce && k == 0 {
		skip = headSize
	}
	b, err := a.op.Reserve(peer, skip+len(data))
	if err != nil {
		return err
	}
	if skip > 0 {
		a.head.put(b)
	}
	copy(b[skip:], data)
	return a.op.Commit(peer, 0, round, k)
}

// receive hands the frame of step k from peer to use, beside dst, whose size it has.
func (a *allReduce) receive(peer, round, k int, dst []byte, use func(dst, x []byte)) error {
	f, err := a.op.Next(peer, round, k)
	if err != nil {
		return err
	}
	defer a.op.Release(peer)
	data := f.Payload
	if round == roundReduce && k == 0 {
		h, ok := parseHead(data)
		if !ok || h != a.head {
			return a.op.Mismatch(peer, fmt.Sprintf("rank %d has %s, rank %d %s", a.c.Rank(), a.head, peer, h))
		}
		data = data[headSize:]
	}
	if len(data) != len(dst) {
		return a.op.Mismatch(peer, fmt.Sprintf("rank %d sent %d bytes in step %d, where %d are due", peer, len(data), k,
			len(dst)))
	}
	use(dst, data)
	return nil
}

// String describes what a rank brought to an all-reduce.
func (h head) String() string {
	if h.what == 0 {
		return fmt.Sprintf("%d bytes", h.size)
	}
	d, op := dtypes.Type(h.what>>8&0xff), ReduceOp(h.what>>16&0xff)
	n := h.size
	if d.Known() {
		n /= uint64(d.Size())
	}
	return fmt.Sprintf("%d numbers of %s (%s)", n, d, op)
}
