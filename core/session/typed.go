package session

import (
	"context"

	"sar/core/comm"
	"sar/core/internal/dtypes"
	"sar/core/internal/view"
)

// What an all-reduce does.
const (
	Sum  = comm.Sum
	Min  = comm.Min
	Max  = comm.Max
	Prod = comm.Prod
	Avg  = comm.Avg
)

// Number lists the Go types of tensors.
type Number = dtypes.Number

// AllReduce reduces x over all ranks in place, the same bits everywhere. Collective.
func AllReduce[T Number](ctx context.Context, s *Session, id CommID, x []T, op ReduceOp) error {
	return s.on(ctx, id, func(c *Communicator) error { return c.AllReduce(view.Bytes(x), dtypes.For[T](), op) })
}

// Broadcast overwrites x with the root's. Collective.
func Broadcast[T Number](ctx context.Context, s *Session, id CommID, x []T, root int) error {
	return s.on(ctx, id, func(c *Communicator) error { return c.Broadcast(view.Bytes(x), root) })
}

// Barrier returns once every rank has called it. Collective.
func (s *Session) Barrier(ctx context.Context, id CommID) error {
	return s.on(ctx, id, (*Communicator).Barrier)
}

// on runs a collective of a communicator.
func (s *Session) on(ctx context.Context, id CommID, f func(*Communicator) error) error {
	c, err := s.Comm(id)
	if err != nil {
		return err
	}
	return s.within(ctx, func() error { return f(c) })
}

// NodeFeature reads a feature of the worker's own nodes, and its shape. The name has the node
// type before it, as in "_N/features".
func NodeFeature[T Number](p *Partition, name string) ([]T, []int64, error) {
	have, err := p.Feature(false, name)
	if err != nil {
		return nil, nil, err
	}
	x := make([]T, have.Len)
	return x, have.Shape, p.Read(false, name, view.Bytes(x), dtypes.For[T](), have.Shape)
}
