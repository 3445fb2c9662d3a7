// Package exchange moves boundary rows between workers and aggregates them
// where they arrive. One routine, Move, runs every schedule there is; an
// operation is a producer of outgoing rows and a consumer of incoming ones.
//
// With P workers a movement takes P-1 rounds. Pulling, worker p receives the
// rows of p-r in round r and sends its own to p+r. Going home, as gradients do,
// the directions are swapped. Receiving follows the order of rounds. Sending
// runs beside it, to each peer by itself: a link that is full stops only its own
// sender, what a receiver waits for is never behind anything else, and the
// movement cannot lock up however small the window is.
package exchange

import (
	"fmt"

	"sar/core/comm"
	"sar/core/trace"
)

// Movement is one exchange of rows between all pairs of workers.
type Movement struct {
	Op *comm.Op
	// Home swaps the directions: in round r send to p-r, receive from p+r.
	Home bool
	// Flags are told to every worker; Move returns the union of everyone's.
	Flags    uint16
	RowBytes int
	// Send and Recv are the rows of each round, indexed 1..P-1.
	Send, Recv []int
	// Produce writes rows [first, first+n) of what goes out in round r into
	// dst, which is the link's own memory. Runs beside Local and Consume; rounds
	// may take turns.
	Produce func(r, first, n int, dst []byte) error
	// Local runs before any Consume, and once all links are full or all rows
	// have left, so that those travel meanwhile. May be nil.
	Local func() error
	// Part runs after Local for 0 ≤ part < Parts, one after another. Rows of round 1
	// that are there already are consumed between two parts, those of later rounds
	// after the last.
	Parts int
	Part  func(part int)
	// Consume takes rows [first, first+n) of what comes in in round r. src is
	// the receive buffer and is gone afterwards. Rounds and rows come in order.
	Consume func(r, first, n int, src []byte) error
	// Here has Local, Part and Consume run on the goroutine that called Move, which
	// costs more switches where that one is bound to its thread.
	Here bool

	parts int // that have been run
}

// Move runs the movement. Each pair exchanges at least one frame, so that
// flags and the schedule are compared even where there are no rows.
//
// Steps: P-1 rounds. Bytes on the wire: RowBytes per row and one frame header
// per MaxPayload bytes.
func (m *Movement) Move(rank, world int) (uint16, error) {
	if world == 1 {
		for part := range m.Parts {
			m.Part(part)
		}
		if m.Local == nil {
			return m.Flags, nil
		}
		return m.Flags, m.Local()
	}
	if m.RowBytes == 0 { // rows of no columns: only flags travel
		m.Send, m.Recv = make([]int, world), make([]int, world)
	}
	flags := m.Flags
	d := &departures{
		op: m.Op, world: world, flags: m.Flags, rowBytes: m.RowBytes, rows: RowsPerFrame(m.Op, m.RowBytes), counts: m.Send,
		peer: func(r int) int { return m.peer(rank, world, r, true) }, produce: m.Produce,
		before: func(int, int, func()) error { return nil }, after: func(int) {},
	}
	if m.Home {
		d.way = comm.Home
	}
	d.init()
	run := m.Op.Run
	if m.Here {
		run = m.Op.RunHere
	}
	err := run(append(d.parts(), func() error {
		if err := d.local(rank, m.Local, m.Parts > 0); err != nil {
			return err
		}
		return m.receiveAll(rank, world, &flags)
	})...)
	return flags, err
}

// peer is whom this rank sends to (or receives from) in round r.
func (m *Movement) peer(rank, world, r int, sending bool) int {
	if sending == m.Home {
		return (rank - r + world) % world
	}
	return (rank + r) % world
}

// chunkBytes is the most that one frame carries where a link would hold more: the
// first frame has to arrive before anybody can work on it, and the last one is
// worked on when nothing travels any more.
var chunkBytes = 1 << 20

// RowsPerFrame is how many rows of rowBytes one frame of op holds.
func RowsPerFrame(op *comm.Op, rowBytes int) int { return rowsPerFrame(op, rowBytes, chunkBytes) }

func rowsPerFrame(op *comm.Op, rowBytes, most int) int {
	rowBytes = max(1, rowBytes)
	return max(min(op.MaxPayload(), most)/rowBytes, min(1, op.MaxPayload()/rowBytes))
}

func (m *Movement) receiveAll(rank, world int, flags *uint16) error {
	rows := RowsPerFrame(m.Op, m.RowBytes)
	for r := 1; r < world; r++ {
		peer := m.peer(rank, world, r, false)
		for first, chunk := 0, 0; first < m.Recv[r] || chunk == 0; chunk++ {
			n := min(rows, m.Recv[r]-first)
			frame, err := m.next(rank, peer, r, chunk)
			if err != nil {
				return err
			}
			if len(frame.Payload) != n*m.RowBytes {
				err = differ(m.Op, peer, n, m.RowBytes, len(frame.Payload), first == 0 && n == m.Recv[r])
			} else if n > 0 && m.Consume != nil {
				span := trace.Begin()
				err = m.Consume(r, first, n, frame.Payload)
				span.End("consume", trace.Receiving, m.Op.Comm(), peer, r, int64(len(frame.Payload)))
			}
			m.Op.Release(peer)
			if err != nil {
				return err
			}
			*flags |= frame.Tag.Flags
			first += n
		}
	}
	for m.part(rank) {
	}
	return nil
}

// next waits for a frame, and runs parts while there are any.
func (m *Movement) next(rank, peer, r, chunk int) (comm.Frame, error) {
	for m.parts < m.Parts {
		if r == 1 {
			if frame, ok, err := m.Op.TryNext(peer, r, chunk); ok || err != nil {
				return frame, err
			}
		}
		m.part(rank)
	}
	return m.Op.Next(peer, r, chunk)
}

// part runs the next part, if there is one.
func (m *Movement) part(rank int) bool {
	if m.parts >= m.Parts {
		return false
	}
	span := trace.Begin()
	m.Part(m.parts)
	span.End("own rows", trace.Computing, m.Op.Comm(), rank, 0, 0)
	m.parts++
	return true
}

// differ is the error where a frame of n rows of rowBytes, all is the last of
// them, should have come and one of size bytes did.
func differ(op *comm.Op, peer, n, rowBytes, size int, all bool) error {
	theirs := fmt.Sprintf("%d bytes for them", size)
	// A frame far from full holds all the rows there are.
	if all && n > 0 && size%n == 0 && 2*size <= min(chunkBytes, op.MaxPayload()) {
		theirs = fmt.Sprintf("rows of %d bytes", size/n)
	}
	return op.Differ(peer, fmt.Sprintf("expecting %d rows of %d bytes", n, rowBytes),
		"sending "+theirs+" (the ranks use different feature widths, dtypes or graphs)")
}
