package sample

import (
	"sar/core/comm"
	"sar/core/kernel"
)

// copyRows copies rows of size bytes: row from[i] of src becomes row to[i] of
// dst. A list that is nil stands for 0, 1, 2, ….
func (s *Sampler) copyRows(dst, src []byte, size int, to, from []int32) {
	n := max(len(to), len(from))
	kernel.CopyRows(s.pool, n, kernel.RowsOf(dst, size, to), kernel.RowsOf(src, size, from))
}

// outputs gathers the columns of the seeds, which are all here.
func (s *Sampler) outputs(b *Batch) error {
	b.Outputs = make([][][]byte, len(s.tables))
	for t := range s.cfg.Outputs {
		for _, column := range s.cfg.Outputs[t] {
			data, err := b.memory.bytes(len(b.Seeds[t]) * column.RowBytes)
			if err != nil {
				return err
			}
			s.copyRows(data, column.Rows, column.RowBytes, nil, b.Seeds[t])
			b.Outputs[t] = append(b.Outputs[t], data)
		}
	}
	return nil
}

// inputs brings the columns of all nodes met.
func (s *Sampler) inputs(c *comm.Communicator, b *Batch) error {
	b.Inputs = make([][][]byte, len(s.tables))
	any := false
	for t := range s.cfg.Inputs {
		for _, column := range s.cfg.Inputs[t] {
			data, err := b.memory.bytes(len(s.tables[t].Nodes) * column.RowBytes)
			if err != nil {
				return err
			}
			b.Inputs[t] = append(b.Inputs[t], data)
			any = true
		}
	}
	if !any {
		return nil
	}
	if err := s.route(b.Key); err != nil { // what the last layer met; the others are known
		return err
	}
	for t := range s.use {
		s.use[t] = cacheUse{s.use[t].row[:0], s.use[t].at[:0], s.use[t].keep[:0]}
	}
	for q := range s.g.World {
		for t := range s.tables {
			s.want[q].rows[t], s.want[q].at[t] = nil, nil
			if q != s.g.Rank && len(s.cfg.Inputs[t]) > 0 {
				s.want[q].rows[t], s.want[q].at[t] = s.need(q, t)
			}
			s.want[q].new[t] = len(s.want[q].rows[t])
			s.wanted[q].rows[t] = s.wanted[q].rows[t][:0]
		}
		s.want[q].key = b.Key
	}
	err := s.exchange(c, -1, s.inputLayoutHash(), s.serveInputs, func(t *rpc) error { return s.takeInputs(t, b) })
	if err == nil {
		s.keep(b)
	}
	return err
}

func (s *Sampler) serveInputs(t *rpc) error {
	if err := t.c.ToPeers(func(_, q int) error { return t.sendRequest(q, &s.want[q]) }); err != nil {
		return err
	}
	return t.c.FromPeers(func(_, q int) error {
		if !t.await(q) {
			return nil
		}
		for k := range s.cfg.Inputs {
			rows := s.wanted[q].rows[k]
			for _, column := range s.cfg.Inputs[k] {
				err := t.send(q, len(rows), column.RowBytes, func(first, n int, dst []byte) {
					s.copyRows(dst, column.Rows, column.RowBytes, nil, rows[first:first+n])
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s *Sampler) takeInputs(t *rpc, b *Batch) error {
	me := s.g.Rank
	if err := t.c.FromPeers(func(_, q int) error { return t.recvRequest(q, &s.wanted[q]) }); err != nil {
		return err
	}
	for k := range s.cfg.Inputs {
		for j, column := range s.cfg.Inputs[k] {
			s.copyRows(b.Inputs[k][j], column.Rows, column.RowBytes, s.ask[me].at[k], s.ask[me].rows[k])
			if s.cache != nil {
				s.copyRows(b.Inputs[k][j], s.cache.types[k].rows[j].Data, column.RowBytes, s.use[k].at, s.use[k].row)
			}
		}
	}
	return t.c.ToPeers(func(_, q int) error {
		for k := range s.cfg.Inputs {
			place := s.want[q].at[k]
			for j, column := range s.cfg.Inputs[k] {
				err := t.receive(q, len(place), column.RowBytes, func(first, n int, src []byte) error {
					s.copyRows(b.Inputs[k][j], src, column.RowBytes, place[first:first+n], nil)
					return nil
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}
