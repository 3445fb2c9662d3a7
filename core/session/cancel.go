package session

import (
	"context"
	"fmt"
	"time"

	"sar/core/comm"
)

// within runs what waits for other workers. Where ctx ends meanwhile, the session is aborted:
// the others would wait for this worker. The error is then that of ctx and what became of f.
func (s *Session) within(ctx context.Context, f func() error) error {
	if ctx.Done() == nil {
		return f()
	}
	stop := context.AfterFunc(ctx, func() { s.Abort(context.Cause(ctx).Error()) })
	defer stop()
	err := f()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// graphWithin is within for what makes a graph.
func (s *Session) graphWithin(ctx context.Context, f func() (*Graph, error)) (g *Graph, err error) {
	err = s.within(ctx, func() error {
		g, err = f()
		return err
	})
	return g, err
}

// join meets the other workers, until ctx ends.
func join(ctx context.Context, cfg comm.Config) (*comm.Group, error) {
	if ctx.Done() == nil {
		return comm.Join(cfg)
	}
	if end, ok := ctx.Deadline(); ok && (cfg.Start == 0 || time.Until(end) < cfg.Start) {
		cfg.Start = max(time.Until(end), time.Millisecond)
	}
	type result struct {
		group *comm.Group
		err   error
	}
	done := make(chan result, 1)
	go func() {
		g, err := comm.Join(cfg)
		done <- result{g, err}
	}()
	select {
	case r := <-done:
		return r.group, r.err
	case <-ctx.Done():
	}
	go func() { // the meeting ends by its own deadline
		if r := <-done; r.err == nil {
			r.group.Abort(context.Cause(ctx).Error())
			r.group.Close()
		}
	}()
	return nil, context.Cause(ctx)
}
