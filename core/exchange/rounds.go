// Package exchange moves boundary rows between workers and aggregates them
// where they arrive. One routine, Move, runs every schedule there is; an
// operation is a producer of outgoing rows and a consumer of incoming ones.
//
// With P workers a movement takes P-1 rounds. Pulling, worker p receives the
// rows of p-r in round r and sends its own to p+r. Going home, as gradients do,
// the directions are swapped. Sending and receiving run side by side and each
// follows the order of rounds, so a link that is full stops only its own
// sender: the worker in the lowest round always finds its partner there, and
// the movement cannot lock up however small the window is.
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
	// dst, which is the link's own memory. Runs beside Local and Consume.
	Produce func(r, first, n int, dst []byte) error
	// Local runs first on the receiving side, before any Consume. May be nil.
	Local func() error
	// Consume takes rows [first, first+n) of what comes in in round r. src is
	// the receive buffer and is gone afterwards. Rounds and rows come in order.
	Consume func(r, first, n int, src []byte) error
}

// Move runs the movement. Each pair exchanges at least one frame, so that
// flags and the schedule are compared even where there are no rows.
//
// Steps: P-1 rounds. Bytes on the wire: RowBytes per row and one frame header
// per MaxPayload bytes.
func (m *Movement) Move(rank, world int) (uint16, error) {
	if world == 1 {
		if m.Local == nil {
			return m.Flags, nil
		}
		return m.Flags, m.Local()
	}
	if m.RowBytes == 0 { // rows of no columns: only flags travel
		m.Send, m.Recv = make([]int, world), make([]int, world)
	}
	flags := m.Flags
	err := m.Op.Run(
		func() error { return m.sendAll(rank, world) },
		func() error { return m.receiveAll(rank, world, &flags) })
	return flags, err
}

// peer is whom this rank sends to (or receives from) in round r.
func (m *Movement) peer(rank, world, r int, sending bool) int {
	if sending == m.Home {
		return (rank - r + world) % world
	}
	return (rank + r) % world
}

// RowsPerFrame is how many rows of rowBytes one frame of op holds.
func RowsPerFrame(op *comm.Op, rowBytes int) int { return op.MaxPayload() / max(1, rowBytes) }

func (m *Movement) sendAll(rank, world int) error {
	rows := RowsPerFrame(m.Op, m.RowBytes)
	for r := 1; r < world; r++ {
		peer := m.peer(rank, world, r, true)
		for first, chunk := 0, 0; first < m.Send[r] || chunk == 0; chunk++ {
			n := min(rows, m.Send[r]-first)
			dst, err := m.Op.Reserve(peer, n*m.RowBytes)
			if err != nil {
				return err
			}
			if n > 0 {
				span := trace.Begin()
				err := m.Produce(r, first, n, dst)
				span.End("produce", trace.Sending, m.Op.Comm(), peer, r, int64(len(dst)))
				if err != nil {
					return err
				}
			}
			if err := m.Op.Commit(peer, m.Flags, r, chunk); err != nil {
				return err
			}
			first += n
		}
	}
	return nil
}

func (m *Movement) receiveAll(rank, world int, flags *uint16) error {
	if m.Local != nil {
		span := trace.Begin()
		err := m.Local()
		span.End("own rows", trace.Receiving, m.Op.Comm(), rank, 0, 0)
		if err != nil {
			return err
		}
	}
	rows := RowsPerFrame(m.Op, m.RowBytes)
	for r := 1; r < world; r++ {
		peer := m.peer(rank, world, r, false)
		for first, chunk := 0, 0; first < m.Recv[r] || chunk == 0; chunk++ {
			n := min(rows, m.Recv[r]-first)
			frame, err := m.Op.Next(peer, r, chunk)
			if err != nil {
				return err
			}
			if len(frame.Payload) != n*m.RowBytes {
				err = m.differ(peer, r, first, n, len(frame.Payload))
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
	return nil
}

// differ is the error where a frame of n rows, beginning with row first of round
// r, should have come and one of size bytes did.
func (m *Movement) differ(peer, r, first, n, size int) error {
	theirs := fmt.Sprintf("%d bytes for them", size)
	// A frame far from full holds all the rows there are.
	if first == 0 && n == m.Recv[r] && n > 0 && size%n == 0 && 2*size <= m.Op.MaxPayload() {
		theirs = fmt.Sprintf("rows of %d bytes", size/n)
	}
	return m.Op.Differ(peer, fmt.Sprintf("expecting %d rows of %d bytes", n, m.RowBytes),
		"sending "+theirs+" (the ranks use different feature widths, dtypes or graphs)")
}
