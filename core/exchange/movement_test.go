package exchange

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"sar/core/comm"
)

var update = flag.Bool("update", false, "write the golden transcripts anew")

// rows that rank p sends to rank q in the transcripts: rank 2 has none.
func rows(p, q int) int {
	if p == 2 {
		return 0
	}
	return 3*p + q + 1
}

type schedule struct {
	world   int
	toOwner bool
	passes  int
}

// transcript runs a movement and returns what each rank did, senders and
// receivers apart, since the two run side by side.
func transcript(t *testing.T, o schedule) string {
	world := o.world
	sent, got := make([]strings.Builder, world), make([]strings.Builder, world)
	// small frames, so that rounds have several
	errs := everyRank(t, world, 1<<14*(world-1), func(p int, c *comm.Communicator) error {
		return move(c, p, o, &sent[p], &got[p])
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	var all strings.Builder
	for p := range world {
		fmt.Fprintf(&all, "rank %d\n%s%s", p, byRound(sent[p].String()), got[p].String())
	}
	return all.String()
}

// byRound puts what was sent in the order of rounds, which take turns as links
// have room.
func byRound(log string) string {
	lines := strings.SplitAfter(log, "\n")
	slices.SortStableFunc(lines, func(a, b string) int { return round(a) - round(b) })
	return strings.Join(lines, "")
}

func round(line string) (r int) {
	if _, err := fmt.Sscanf(line, " round %d:", &r); err != nil {
		return math.MaxInt
	}
	return r
}

const rowBytes = 1000

func move(c *comm.Communicator, p int, o schedule, sent, got *strings.Builder) error {
	world := o.world
	op, err := c.Begin(comm.KindAggregate, comm.Forward)
	if err != nil {
		return err
	}
	m := &Movement{Op: op, ToOwner: o.toOwner, RowBytes: rowBytes, Flags: 1 << p, Send: make([]int, world),
		Recv: make([]int, world)}
	peer := (&frames{Movement: Movement{ToOwner: o.toOwner}, rank: p, world: world}).peer
	for r := 1; r < world; r++ {
		to, from := peer(r, true), peer(r, false)
		m.Send[r], m.Recv[r] = rows(p, to), rows(from, p)
	}
	m.Passes, m.Until = o.passes, func(r, n int) int { return m.Recv[r] * n / o.passes }
	m.Produce = func(r, first, n int, dst []byte) error {
		to := peer(r, true)
		fmt.Fprintf(sent, "  round %d: to rank %d rows %d-%d of %d\n", r, to, first, first+n-1, m.Send[r])
		for i := range n {
			dst[i*rowBytes], dst[i*rowBytes+1] = byte(p), byte(first+i)
		}
		return nil
	}
	m.Local = func() error { fmt.Fprintln(got, "  own rows"); return nil }
	m.Consume = func(r, first, n int, src []byte) error {
		from := peer(r, false)
		fmt.Fprintf(got, "  round %d: from rank %d rows %d-%d of %d\n", r, from, first, first+n-1, m.Recv[r])
		for i := range n {
			if src[i*rowBytes] != byte(from) || src[i*rowBytes+1] != byte(first+i) {
				return fmt.Errorf("row %d of rank %d is row %d of rank %d", first+i, from, src[i*rowBytes+1], src[i*rowBytes])
			}
		}
		return nil
	}
	flags, err := m.Move(p, world)
	if err := op.End(err); err != nil {
		return err
	}
	if want := uint16(1<<world - 1); flags != want {
		return fmt.Errorf("flags %b, want those of every rank, %b", flags, want)
	}
	return nil
}

// The schedule, in transcripts that a person can read.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		name string
		schedule
	}{{"pull-2", schedule{2, false, 1}}, {"pull-4", schedule{4, false, 1}}, {"owner-4", schedule{4, true, 1}},
		{"owner-4-passes", schedule{4, true, 3}}} {
		t.Run(c.name, func(t *testing.T) {
			got, path := transcript(t, c.schedule), "testdata/"+c.name+".txt"
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the schedule changed; if that is meant, run with -update. Got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Ranks that expect different rows end with an error, all of them.
func TestSizesThatDiffer(t *testing.T) {
	errs := everyRank(t, 2, 1<<16, func(p int, c *comm.Communicator) error {
		op, err := c.Begin(comm.KindAggregate, comm.Forward)
		if err != nil {
			return err
		}
		m := &Movement{Op: op, RowBytes: 8 + 8*p, Send: []int{0, 5}, Recv: []int{0, 5},
			Produce: func(r, first, n int, dst []byte) error { return nil }}
		_, err = m.Move(p, 2)
		return op.End(err)
	})
	for p, err := range errs {
		var differs *comm.ScheduleError
		if !errors.As(err, &differs) || !strings.Contains(err.Error(), "feature widths") ||
			!strings.Contains(err.Error(), "rows of 8 bytes") || !strings.Contains(err.Error(), "rows of 16 bytes") {
			t.Errorf("rank %d: %v", p, err)
		}
	}
}
