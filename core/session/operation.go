package session

import (
	"fmt"

	"sar/core/comm"
)

// Rows is a matrix [N, Width] of the caller's; Data is nil where the caller
// gave none.
type Rows[T Float] struct {
	Data     []T
	Half     []uint16 // bfloat16 in place of Data: an operand that the program stores so, any result and gradient
	N, Width int
}

func (x Rows[T]) elements() int { return max(len(x.Data), len(x.Half)) }

// run brackets one operation on the training communicator, which moves rows of
// rowBytes; sends says what they are, as BeginSending wants it. A window that cannot hold one is
// found before anybody waits.
func (g *Graph) run(kind comm.Kind, dir comm.Dir, rowBytes int, sends string, f func(op *comm.Op) error) error {
	train, err := g.session.Comm(Train)
	if err != nil {
		return err
	}
	wide := func() bool { return g.session.World() > 1 && rowBytes > train.MaxPayload() }
	if wide() {
		if err := g.session.suit(mostWindow); err != nil {
			return err
		}
	}
	if wide() {
		return g.session.tooNarrow(train, rowBytes, "rows have")
	}
	op, err := train.BeginSending(kind, dir, fmt.Sprintf("%s of graph %d", sends, g.number))
	if err != nil {
		return err
	}
	return op.End(f(op))
}
