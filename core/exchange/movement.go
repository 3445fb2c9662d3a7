// Package exchange moves boundary rows between workers and computes with them where they
// arrive. One routine carries out every schedule there is: an operation is a producer of
// outgoing rows and a consumer of incoming ones (Movement), or of what peers reply (RoundTrip).
//
// With P workers a movement takes P-1 rounds. In round r worker p receives the rows of p-r
// and sends its own to p+r; to owners, as gradients go, the directions are swapped.
// Receiving follows the order of rounds, in one pass or several. Sending runs beside it, to each peer by itself: a
// link that is full stops only its own sender, what a receiver waits for is never behind
// anything else, and the movement cannot lock up however small the window is.
package exchange

import "sar/core/comm"

// Movement is one exchange of rows between all pairs of workers.
//
// Produce, Own.Run and what takes incoming rows run on goroutines of their own, beside each
// other. Each takes rounds and rows, or parts, in order. So results have the same bits
// every time where no two of them add to the same numbers, or a sum of two has the same
// bits in either order, and callers lock what several of them change.
type Movement struct {
	Op *comm.Op
	// ToOwner swaps the directions: in round r send to p-r, receive from p+r.
	ToOwner bool
	// Flags are told to every worker; Move returns the union of everyone's.
	Flags    uint16
	RowBytes int
	// Send and Recv are the rows of each round, indexed 1..P-1.
	Send, Recv []int
	// Produce writes rows [first, first+n) of what goes out in round r into
	// dst, which is the link's own memory. Rounds may take turns.
	Produce func(r, first, n int, dst []byte) error
	// Local runs before Consume and Own, and once all links are full or all rows
	// have left, so that those travel meanwhile. May be nil.
	Local func() error
	Own   Parts
	// Consume takes rows [first, first+n) of what comes in in round r. src is
	// the receive buffer and is gone afterwards.
	Consume func(r, first, n int, src []byte) error
	// Ahead are rows of another size that travel before those of the same round, in the
	// same frames; nil: none. Every rank has them or none has.
	Ahead *Ahead
	// Rows come in in so many passes over all rounds, 0 and 1 are the same; the first of
	// them take Until(r, passes) rows of round r together. So some rows of every peer can
	// be taken while the parts that others need have not ended.
	Passes int
	Until  func(r, passes int) int
	// OnCallerThread has Local and what takes incoming rows run on the goroutine that
	// called Move, which costs more switches where that one is bound to its thread.
	OnCallerThread bool
}

// Ahead is rows that travel ahead of a movement's own. Its fields mean the same. They are taken once Local and all
// parts of Own have ended.
type Ahead struct {
	Way        comm.Way // for counting
	RowBytes   int
	Send, Recv []int
	Produce    func(r, first, n int, dst []byte) error
	Consume    func(r, first, n int, src []byte) error
}

// Parts is work of so many parts that waits for nobody, in order.
type Parts struct {
	N   int
	Run func(part int)
	// Needs is how many parts must have ended before rows [first, first+n) of round r are taken;
	// nil: none in round 1, and all in later ones.
	Needs func(r, first, n int) int
}

// RoundTrip is a Movement to which every row gets a reply: in round r worker p computes something for
// each row of p-r and sends it back, and takes what p+r computed for its own rows. So gradients travel when
// boundary rows have to be read again to compute them. Fields of both mean the same.
type RoundTrip struct {
	Op    *comm.Op
	Flags uint16
	// Pushed says that rows of destinations go out. They are counted as such, and have
	// frames as large as those without a reply.
	Pushed               bool
	RowBytes, ReplyBytes int
	Send, Recv           []int
	Produce              func(r, first, n int, dst []byte) error
	Local                func() error
	Own                  Parts // Needs is of rows that Take takes
	// Compute takes rows [first, first+n) of what comes in in round r and writes
	// n rows of ReplyBytes to reply, whose contents are undefined before.
	Compute func(r, first, n int, src, reply []byte) error
	// Take takes what returned for rows [first, first+n) of what went out in round r.
	Take           func(r, first, n int, src []byte) error
	OnCallerThread bool
}

// Move runs the movement. Each pair exchanges at least one frame, so that
// flags and the schedule are compared even where there are no rows. A window that
// holds no row must have been refused before. Steps: P-1 rounds. Bytes on the wire:
// RowBytes per row, and one frame header per frame.
func (m *Movement) Move(rank, world int) (uint16, error) {
	f := &frames{Movement: *m, way: comm.Pulled}
	if m.ToOwner {
		f.way = comm.ToOwner
	}
	return f.move(rank, world)
}

// Move is Movement.Move. Besides, ReplyBytes per row travel, and where P is even one frame of memory is needed.
func (m *RoundTrip) Move(rank, world int) (uint16, error) {
	f := &frames{
		Movement: Movement{Op: m.Op, Flags: m.Flags, RowBytes: m.RowBytes, Send: m.Send, Recv: m.Recv,
			Produce: m.Produce, Local: m.Local, Own: m.Own, OnCallerThread: m.OnCallerThread},
		way: comm.Pulled, replies: true, replyBytes: m.ReplyBytes, pushed: m.Pushed, compute: m.Compute, take: m.Take,
	}
	if m.Pushed {
		f.way = comm.Pushed
	}
	return f.move(rank, world)
}

// RowsPerFrame is how many rows travel at once; 0: a frame holds none.
func (m *Movement) RowsPerFrame() int { return rowsPerFrame(m.Op, m.widest(), chunkBytes) }

// widest is the size of the largest row.
func (m *Movement) widest() int {
	if m.Ahead == nil {
		return m.RowBytes
	}
	return max(m.RowBytes, m.Ahead.RowBytes)
}

// RowsPerFrame is how many rows travel at once, out and back; 0: a frame holds none.
func (m *RoundTrip) RowsPerFrame() int {
	if m.Pushed {
		return rowsPerFrame(m.Op, max(m.RowBytes, m.ReplyBytes), chunkBytes)
	}
	return rowsPerFrame(m.Op, max(m.RowBytes, m.ReplyBytes), replyBytes)
}

// chunkBytes is the most that one frame carries where a link would hold more: the
// first frame has to arrive before anybody can work on it, and the last one is
// worked on when nothing travels any more. With a reply it is replyBytes: the reply to the
// first frame leaves when that was computed with, and several frames are on their way.
var chunkBytes, replyBytes = 1 << 20, 256 << 10

func rowsPerFrame(op *comm.Op, rowBytes, most int) int {
	rowBytes = max(1, rowBytes)
	return max(min(op.MaxPayload(), most)/rowBytes, min(1, op.MaxPayload()/rowBytes))
}
