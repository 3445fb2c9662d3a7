package exchange

// cargo is what a frame has: so many rows that travel ahead, and behind them so many of the movement's own.
type cargo struct{ ahead, rows int }

// outgoing and coming are all that travels in a round.
func (s *frames) outgoing(r int) cargo {
	if s.Ahead == nil {
		return cargo{0, s.Send[r]}
	}
	return cargo{s.Ahead.Send[r], s.Send[r]}
}

func (s *frames) coming(r int) cargo {
	if s.Ahead == nil {
		return cargo{0, s.Recv[r]}
	}
	return cargo{s.Ahead.Recv[r], s.Recv[r]}
}

// load is what the next frame has, where done of all has travelled.
func (s *frames) load(all, done cargo) (c cargo) {
	if s.Ahead == nil {
		return cargo{0, min(all.rows-done.rows, s.rows)}
	}
	room := s.rows * s.widest()
	c.ahead = min(all.ahead-done.ahead, room/s.Ahead.RowBytes)
	if c.ahead == all.ahead-done.ahead {
		c.rows = min(all.rows-done.rows, (room-s.aheadBytes(c.ahead))/s.RowBytes)
	}
	return c
}

// aheadBytes is the size of n rows that travel ahead.
func (s *frames) aheadBytes(n int) int {
	if s.Ahead == nil {
		return 0
	}
	return n * s.Ahead.RowBytes
}
