package sample

import (
	"encoding/binary"
	"fmt"
	"slices"

	"sar/core/comm"
	"sar/core/internal/view"
)

// rpc is one operation in which every rank asks every other for something: a request,
// whose size nobody but the sender knows, and then a reply in several parts, rows whose
// number both sides know by then.
//
// In round r requests go to p+r and come from p-r, and replies go the other way. A
// sender may wait for a request that its own receiving half reads. All halves
// go through the requests and then through the parts of the replies in the same order,
// so the rank that is furthest back never waits for one that waits for it.
//
// A Movement of core/exchange knows the sizes of all rounds before the first, and rows of
// one size return: docs/decisions/0017-sampling-schedule.md.
type rpc struct {
	s       *Sampler
	c       *comm.Communicator
	op      *comm.Op
	step    uint64
	check   uint64
	out, in []int           // frames so far, by rank
	arrived []chan struct{} // by rank: its request is here
	over    chan struct{}   // the receiving half has ended
}

// request is own rows that a rank asks for, by node type.
type request struct {
	key  uint64
	rows [][]int32
	at   [][]int32 // the numbers of their nodes in the batch, of what this rank asks for
	new  []int     // of rows, the last ones, that travel now
}

// requests are those of all ranks.
func requests(world, types int) []request {
	all := make([]request, world)
	for q := range all {
		all[q] = request{rows: make([][]int32, types), at: make([][]int32, types), new: make([]int, types)}
	}
	return all
}

// exchange runs an rpc. layer is -1 for features, and check what must be alike on
// all ranks.
func (s *Sampler) exchange(c *comm.Communicator, layer int, check uint64, send, receive func(t *rpc) error) error {
	op, err := c.Begin(comm.KindSample, comm.None)
	if err != nil {
		return err
	}
	world := s.g.World
	t := &rpc{s: s, c: c, op: op, step: s.stage(layer), check: check,
		out: make([]int, world), in: make([]int, world), arrived: make([]chan struct{}, world), over: make(chan struct{})}
	for q := range t.arrived {
		t.arrived[q] = make(chan struct{})
	}
	return op.End(op.Run(
		func() error { return send(t) },
		func() error {
			defer close(t.over)
			return receive(t)
		}))
}

// Whether features travel after the layers is part of every stage: a rank that
// fetches none would begin its next batch, on a communicator where nobody waits.
const withFeatures = 1 << 31

// stage tells what an rpc is for: of how many layers which one, and whether
// features come after the last.
func (s *Sampler) stage(layer int) uint64 {
	step := uint64(len(s.cfg.Fanouts))<<32 | uint64(layer+1)
	if slices.ContainsFunc(s.cfg.Inputs, func(columns []Column) bool { return len(columns) > 0 }) {
		step |= withFeatures
	}
	return step
}

// await returns once the request of rank q is here; false where the receiving
// half has ended without it, and says why.
func (t *rpc) await(q int) bool {
	select {
	case <-t.arrived[q]:
		return true
	case <-t.over:
	}
	select { // both may be true
	case <-t.arrived[q]:
		return true
	default:
		return false
	}
}

// send sends rows to rank q, in frames that fill writes.
func (t *rpc) send(q, rows, rowBytes int, fill func(first, n int, dst []byte)) error {
	if rowBytes == 0 {
		return nil
	}
	for first, n := 0, 0; first < rows; first += n {
		n = min(rows-first, t.op.MaxPayload()/rowBytes)
		dst, err := t.op.Reserve(q, n*rowBytes)
		if err != nil {
			return err
		}
		fill(first, n, dst)
		if err := t.op.Commit(q, 0, 0, t.out[q]); err != nil {
			return err
		}
		t.out[q]++
	}
	return nil
}

// receive takes rows from rank q.
func (t *rpc) receive(q, rows, rowBytes int, take func(first, n int, src []byte) error) error {
	if rowBytes == 0 {
		return nil
	}
	for first, n := 0, 0; first < rows; first += n {
		n = min(rows-first, t.op.MaxPayload()/rowBytes)
		f, err := t.op.Next(q, 0, t.in[q])
		if err != nil {
			return err
		}
		if len(f.Payload) != n*rowBytes {
			err = t.op.Mismatch(q, fmt.Sprintf("%d bytes came for %d rows of %d bytes", len(f.Payload), n, rowBytes))
		} else {
			err = take(first, n, f.Payload)
		}
		t.op.Release(q)
		if err != nil {
			return err
		}
		t.in[q]++
	}
	return nil
}

// The numbers at the head of a request; counts of rows by type follow.
const (
	headKey = iota
	headStep
	headCheck
	headCounts
)

// headBytes is the size of a head in a graph of so many node types.
func headBytes(types int) int { return 8 * (headCounts + types) }

// sendRequest sends a request to rank q.
func (t *rpc) sendRequest(q int, a *request) error {
	err := t.send(q, 1, headBytes(len(a.new)), func(_, _ int, dst []byte) {
		put := func(i int, v uint64) { binary.LittleEndian.PutUint64(dst[8*i:], v) }
		put(headKey, a.key)
		put(headStep, t.step)
		put(headCheck, t.check)
		for i, n := range a.new {
			put(headCounts+i, uint64(n))
		}
	})
	if err != nil {
		return err
	}
	for i, n := range a.new {
		rows := a.rows[i][len(a.rows[i])-n:]
		if err := t.send(q, n, 4, func(first, n int, dst []byte) { copy(dst, view.Bytes(rows[first:first+n])) }); err != nil {
			return err
		}
	}
	return nil
}

// recvRequest receives the request of rank q.
func (t *rpc) recvRequest(q int, a *request) error {
	s := t.s
	err := t.receive(q, 1, headBytes(len(a.new)), func(_, _ int, src []byte) error {
		head := view.Numbers[uint64](src)
		a.key = head[headKey]
		if err := t.alike(q, head[headStep], head[headCheck]); err != nil {
			return err
		}
		for i := range a.new {
			n, have, own := head[headCounts+i], len(a.rows[i]), s.g.Own(i)
			if n > uint64(own-have) {
				return fmt.Errorf("rank %d asks for %d rows beside %d of this rank's %d", q, n, have, own)
			}
			a.new[i] = int(n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, n := range a.new {
		own := uint32(s.g.Own(i))
		err := t.receive(q, n, 4, func(_, _ int, src []byte) error {
			rows := view.Numbers[int32](src)
			for _, row := range rows {
				if uint32(row) >= own {
					return fmt.Errorf("rank %d asks for row %d of this rank's %d", q, row, own)
				}
			}
			a.rows[i] = append(a.rows[i], rows...)
			return nil
		})
		if err != nil {
			return err
		}
	}
	close(t.arrived[q])
	return nil
}

// alike holds what rank q does against what this one does.
func (t *rpc) alike(q int, step, check uint64) error {
	layer := func(step uint64) string {
		features := "without"
		if step&withFeatures != 0 {
			features = "with"
		}
		return fmt.Sprintf("layer %d of %d %s features", int64(step&(withFeatures-1))-1, step>>32, features)
	}
	switch {
	case step != t.step:
		return fmt.Errorf("rank %d samples %s and rank %d %s: every rank needs fan-outs for the same number of layers, and "+
			"input features or none",
			t.s.g.Rank, layer(t.step), q, layer(step))
	case check != t.check:
		return fmt.Errorf("rank %d and rank %d sample columns of different sizes: the ranks use different feature widths, "+
			"dtypes or columns, or one names edges and the other does not",
			t.s.g.Rank, q)
	}
	return nil
}
