package exchange

import "sar/core/trace"

// incoming is how far the rows of one round have been taken.
type incoming struct {
	arrival
	taken int    // rows
	come  cargo  // what has come, with the frame at hand
	frame []byte // what is left of that
	open  bool   // it has not been released
}

// takeRows gives consume the rows of all peers, pass after pass and in each round after
// round. A frame of which a later pass takes the rest stays in the link meanwhile. Nothing
// locks up: what this rank waits for comes over a link of which it has taken everything.
func (s *frames) takeRows() error {
	peers := make([]incoming, s.world)
	defer func() {
		for r := range peers {
			s.release(&peers[r])
		}
	}()
	passes := max(1, s.Passes)
	for pass := 1; pass <= passes; pass++ {
		for r := 1; r < s.world; r++ {
			in, until := &peers[r], s.Recv[r]
			if pass < passes {
				until = s.Until(r, pass)
			}
			if pass == 1 {
				in.arrival = arrival{peer: s.peer(r, false), round: r}
			}
			for in.taken < until || in.come.ahead < s.coming(r).ahead || pass == passes && in.chunk == 0 {
				if err := s.takeUntil(in, until); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// takeUntil takes what travels ahead in one frame, and rows of it, those before until.
func (s *frames) takeUntil(in *incoming, until int) error {
	if !in.open {
		if err := s.open(in); err != nil {
			return err
		}
	}
	if n := min(until, in.come.rows) - in.taken; n > 0 && s.Consume != nil {
		if err := s.awaitParts(in.round, in.taken, n); err != nil {
			return err
		}
		size := n * s.RowBytes
		span := trace.Begin()
		err := s.Consume(in.round, in.taken, n, in.frame[:size])
		span.End("consume", trace.Receiving, s.Op.Comm(), in.peer, in.round, int64(size))
		if err != nil {
			return err
		}
		in.frame = in.frame[size:]
	}
	if in.taken = max(in.taken, min(until, in.come.rows)); in.taken == in.come.rows {
		s.release(in)
	}
	return nil
}

// open waits for the next frame, and takes what travels ahead in it.
func (s *frames) open(in *incoming) error {
	load := s.load(s.coming(in.round), in.come)
	in.n, in.ahead = load.rows, load.ahead
	frame, err := s.next(in.arrival)
	if err != nil {
		return err
	}
	in.come.ahead, in.come.rows = in.come.ahead+load.ahead, in.come.rows+load.rows
	in.frame, in.open, in.chunk = frame, true, in.chunk+1
	if in.ahead == 0 {
		return nil
	}
	if err := s.awaitEnded(1 + s.Own.N); err != nil {
		return err
	}
	size := s.aheadBytes(in.ahead)
	span := trace.Begin()
	err = s.Ahead.Consume(in.round, in.come.ahead-in.ahead, in.ahead, in.frame[:size])
	span.End("consume", trace.Receiving, s.Op.Comm(), in.peer, in.round, int64(size))
	in.frame = in.frame[size:]
	return err
}

func (s *frames) release(in *incoming) {
	if in.open {
		in.frame, in.open = nil, false
		s.Op.Release(in.peer)
	}
}
