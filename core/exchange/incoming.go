package exchange

import "sar/core/trace"

// incoming is how far the rows of one round have been taken.
type incoming struct {
	arrival
	taken int    // rows
	end   int    // the rows that have come, with those of the frame at hand
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
			for in.taken < until || pass == passes && in.chunk == 0 {
				if err := s.takeUntil(in, until); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// takeUntil takes rows of one frame, those before until.
func (s *frames) takeUntil(in *incoming, until int) error {
	if !in.open {
		in.n = min(s.rows, s.Recv[in.round]-in.end)
		frame, err := s.next(in.arrival)
		if err != nil {
			return err
		}
		in.frame, in.open, in.end, in.chunk = frame, true, in.end+in.n, in.chunk+1
	}
	if n := min(until, in.end) - in.taken; n > 0 && s.Consume != nil {
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
	if in.taken = min(until, in.end); in.taken == in.end {
		s.release(in)
	}
	return nil
}

func (s *frames) release(in *incoming) {
	if in.open {
		in.frame, in.open = nil, false
		s.Op.Release(in.peer)
	}
}
