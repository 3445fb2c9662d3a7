package session

import "sar/core/comm"

// AllReduce reduces buf over all ranks in place, the same bits everywhere. Collective.
func (s *Session) AllReduce(id int, buf []byte, dtype comm.DType, op comm.ReduceOp) error {
	c, err := s.Comm(id)
	if err != nil {
		return err
	}
	return c.AllReduce(buf, dtype, op)
}

// Broadcast overwrites buf with the root's. Collective.
func (s *Session) Broadcast(id int, buf []byte, root int) error {
	c, err := s.Comm(id)
	if err != nil {
		return err
	}
	if root < 0 || root >= s.World() {
		return Invalid("broadcast from rank %d: ranks are 0 to %d", root, s.World()-1)
	}
	return c.Broadcast(buf, root)
}

// Barrier returns once every rank has called it. Collective.
func (s *Session) Barrier(id int) error {
	c, err := s.Comm(id)
	if err != nil {
		return err
	}
	return c.Barrier()
}

// AllToAll sends send[q] to rank q and fills recv[q] from it. Collective.
func (s *Session) AllToAll(id int, send, recv [][]byte) error {
	c, err := s.Comm(id)
	if err != nil {
		return err
	}
	if len(send) != s.World() || len(recv) != s.World() {
		return Invalid("all_to_all of %d and %d tensors among %d ranks: there must be one for each rank", len(send), len(recv), s.World())
	}
	return c.AllToAll(send, recv)
}

// ExchangePair sends to one rank while receiving from another; -1 is nobody.
func (s *Session) ExchangePair(id, to int, send []byte, from int, recv []byte) error {
	c, err := s.Comm(id)
	if err != nil {
		return err
	}
	for _, q := range []int{to, from} {
		if q < -1 || q >= s.World() {
			return Invalid("exchange with rank %d: ranks are 0 to %d", q, s.World()-1)
		}
	}
	return c.ExchangePair(to, send, from, recv)
}
