package exchange

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/mem"
)

// Rows of a peer are taken when the parts that they need have ended, those of the first
// peer at any time.
func TestConsumeWaitsForParts(t *testing.T) {
	const world, rows, parts = 3, 40, 8
	errs := everyRank(t, world, 1<<14*(world-1), func(p int, c *comm.Communicator) error {
		op, err := c.Begin(comm.KindAggregate, comm.Forward)
		if err != nil {
			return err
		}
		var ended, early atomic.Int32
		m := &Movement{Op: op, ToOwner: true, RowBytes: rowBytes, Send: []int{0, rows, rows}, Recv: []int{0, rows, rows},
			Own: Parts{
				N: parts, Run: func(int) { time.Sleep(2 * time.Millisecond); ended.Add(1) },
				Needs: func(r, first, n int) int { return (r - 1) * (first + n) * parts / rows },
			},
			Passes: 4, Until: func(r, passes int) int { return rows * passes / 4 }}
		m.Produce = func(r, first, n int, dst []byte) error { return nil }
		m.Consume = func(r, first, n int, src []byte) error {
			if need := m.Own.Needs(r, first, n); int(ended.Load()) < need {
				return fmt.Errorf("round %d, rows %d to %d after %d parts, not %d", r, first, first+n, ended.Load(), need)
			}
			if r == 2 && ended.Load() < parts {
				early.Add(1)
			}
			return nil
		}
		if _, err := m.Move(p, world); err != nil {
			return op.End(err)
		}
		if early.Load() == 0 {
			err = errors.New("all rows of the second peer came after all parts")
		}
		return op.End(err)
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// What rows need are the parts of their group and of those before it, and the first passes
// bring the rows of the first groups.
func TestGroupsOfOwnRows(t *testing.T) {
	rel := &graph.Relation{Structure: &graph.Structure{}}
	rel.NumSrc, rel.Parts, rel.Send = 10, 3, make([]mem.Array[int32], 3)
	rel.Send[1].Data, rel.Send[2].Data = []int32{1, 9}, []int32{0, 3, 4, 6, 7}
	o := &ownRows{rel: rel, groups: 3, after: []int{2, 6, 9}}
	for _, c := range []struct{ r, first, n, want int }{{1, 0, 2, 0}, {2, 0, 1, 2}, {2, 0, 2, 2}, {2, 1, 2, 6},
		{2, 2, 2, 6}, {2, 3, 2, 9}} {
		if got := o.needs(c.r, c.first, c.n); got != c.want {
			t.Errorf("rows %d to %d of round %d need %d parts, not %d", c.first, c.first+c.n, c.r, got, c.want)
		}
	}
	for pass, want := range []int{0, 2, 4, 5} {
		if got := o.until(2, pass); got != want {
			t.Errorf("%d passes bring %d rows, not %d", pass, got, want)
		}
	}
}
