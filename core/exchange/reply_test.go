package exchange

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sar/core/comm"
)

// everyRank runs f on the ranks of a world of its own and returns their errors.
func everyRank(t *testing.T, world, window int, f func(p int, c *comm.Communicator) error) []error {
	t.Helper()
	groups, err := comm.Local(comm.Config{World: world, Operation: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, world)
	var wg sync.WaitGroup
	for p, g := range groups {
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer g.Close()
			c, err := g.NewCommunicator("test", window)
			if err == nil {
				err = f(p, c)
			}
			errs[p] = err
		}()
	}
	wg.Wait()
	return errs
}

// trips is a movement with a reply of every rank. Row i that p sends to q begins with
// (p, i); what returns begins with (q, p, i).
type trips struct {
	world, out, back int
	rows             func(p, q int) int
	note             func(p int, which *strings.Builder, format string, args ...any)
	pause            func() // between steps, to shake the order of goroutines
	parts            int
	late             bool // rows that return need more parts than their share
}

func (c *trips) run(p int, cm *comm.Communicator, log *[3]strings.Builder) error {
	op, err := cm.Begin(comm.KindAggregate, comm.Backward)
	if err != nil {
		return err
	}
	sent, returned, taken := map[int]int{}, map[int]int{}, map[int]int{}
	var localDone atomic.Bool
	to, from := func(r int) int { return (p + r) % c.world }, func(r int) int { return (p - r + c.world) % c.world }
	t := &RoundTrip{Op: op, Flags: 1 << p, RowBytes: c.out, ReplyBytes: c.back, Send: make([]int, c.world),
		Recv: make([]int, c.world)}
	for r := 1; r < c.world; r++ {
		t.Send[r], t.Recv[r] = c.rows(p, to(r)), c.rows(from(r), p)
	}
	put := func(b []byte, size, i int, numbers ...byte) {
		copy(b[i*size:(i+1)*size], numbers)
	}
	check := func(what string, b []byte, size, i int, numbers ...byte) error {
		got := b[i*size : (i+1)*size]
		if n := min(size, len(numbers)); string(got[:n]) != string(numbers[:n]) {
			return fmt.Errorf("%s: %v in place of %v", what, got[:n], numbers[:n])
		}
		return nil
	}
	t.Produce = func(r, first, n int, dst []byte) error {
		c.pause()
		c.note(p, &log[0], "  round %d: to rank %d rows %d-%d of %d\n", r, to(r), first, first+n-1, t.Send[r])
		for i := range n {
			put(dst, c.out, i, byte(p), byte(first+i))
		}
		sent[r] += n
		return nil
	}
	t.Local = func() error {
		c.pause()
		c.note(p, &log[1], "  own rows\n")
		localDone.Store(true)
		return nil
	}
	var parts atomic.Int64
	if c.parts > 0 {
		t.Own.N, t.Own.Run = c.parts, func(int) { c.pause(); parts.Add(1) }
		t.Own.Needs = func(r, first, n int) int {
			if c.late {
				return c.parts * min(1, first+n)
			}
			return (first+n-1)*c.parts/t.Send[r] + 1
		}
	}
	t.Compute = func(r, first, n int, src, back []byte) error {
		c.note(p, &log[1], "  round %d: from rank %d rows %d-%d of %d, and back\n", r, from(r), first, first+n-1, t.Recv[r])
		if len(src) != n*c.out || len(back) != n*c.back {
			return fmt.Errorf("%d rows in %d bytes, and %d to return", n, len(src), len(back))
		}
		c.pause()
		for i := range n {
			if err := check("pulled", src, c.out, i, byte(from(r)), byte(first+i)); err != nil {
				return err
			}
			put(back, c.back, i, byte(p), byte(from(r)), byte(first+i))
		}
		taken[r] += n
		return nil
	}
	t.Take = func(r, first, n int, src []byte) error {
		c.note(p, &log[2], "  round %d: back from rank %d rows %d-%d of %d\n", r, to(r), first, first+n-1, t.Send[r])
		if !localDone.Load() {
			return errors.New("something returned before Local had ended")
		}
		if c.parts > 0 && int(parts.Load()) < t.Own.Needs(r, first, n) {
			return fmt.Errorf("rows %d-%d of round %d returned after %d parts", first, first+n-1, r, parts.Load())
		}
		if returned[r] != first {
			return fmt.Errorf("rows from %d on, after %d", first, returned[r])
		}
		c.pause()
		for i := range n {
			if err := check("returned", src, c.back, i, byte(to(r)), byte(p), byte(first+i)); err != nil {
				return err
			}
		}
		returned[r] += n
		return nil
	}
	flags, err := t.Move(p, c.world)
	if err := op.End(err); err != nil {
		return err
	}
	if want := uint16(1<<c.world - 1); flags != want {
		return fmt.Errorf("flags %b, want those of every rank, %b", flags, want)
	}
	if int(parts.Load()) != c.parts {
		return fmt.Errorf("%d of %d parts have run", parts.Load(), c.parts)
	}
	for r := 1; r < c.world && c.out+c.back > 0; r++ {
		if sent[r] != t.Send[r] || returned[r] != t.Send[r] || taken[r] != t.Recv[r] {
			return fmt.Errorf("round %d: %d rows sent and %d returned of %d, %d taken of %d", r, sent[r], returned[r], t.Send[r],
				taken[r], t.Recv[r])
		}
	}
	return nil
}

func silent(int, *strings.Builder, string, ...any) {}

// The schedule, in transcripts that a person can read.
func TestReplies(t *testing.T) {
	for _, world := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			logs := make([][3]strings.Builder, world)
			c := &trips{world: world, out: 1000, back: 1500, rows: rows, pause: func() {},
				note: func(_ int, to *strings.Builder, format string, args ...any) { fmt.Fprintf(to, format, args...) }}
			for p, err := range everyRank(t, world, 1<<14*(world-1),
				func(p int, cm *comm.Communicator) error { return c.run(p, cm, &logs[p]) }) {
				if err != nil {
					t.Errorf("rank %d: %v", p, err)
				}
			}
			var all strings.Builder
			for p := range logs {
				fmt.Fprintf(&all, "rank %d\n%s%s%s", p, byRound(logs[p][0].String()), logs[p][1].String(), logs[p][2].String())
			}
			path := fmt.Sprintf("testdata/roundtrip-%d.txt", world)
			if *update {
				if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if all.String() != string(want) {
				t.Errorf("the schedule changed; if that is meant, run with -update. Got\n%s\nwant\n%s", all.String(), want)
			}
		})
	}
}

// Whatever the sizes, the windows and the speed of each goroutine: every row
// comes back once, and nothing waits for ever.
func TestRepliesOfAllShapes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for world := 2; world <= 7; world++ {
		for trial := range 12 {
			window := []int{4096, 4096, 1 << 14}[trial%3] * (world - 1)
			counts := make([]int, world*world)
			for i := range counts {
				counts[i] = []int{0, 1, rng.IntN(5), rng.IntN(60)}[rng.IntN(4)]
			}
			widths := [][2]int{{700, 3}, {3, 700}, {1, 1}, {0, 9}, {9, 0}, {640, 640}, {0, 0}}[rng.IntN(7)]
			slow := rng.IntN(4)
			c := &trips{parts: rng.IntN(6), late: rng.IntN(3) == 0, world: world, out: widths[0], back: widths[1], note: silent,
				rows: func(p, q int) int { return counts[p*world+q] },
				pause: func() {
					switch rand.IntN(4) {
					case 0:
						runtime.Gosched()
					case 1:
						if slow == 1 {
							time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
						}
					}
				}}
			errs := everyRank(t, world, window, func(p int, cm *comm.Communicator) error {
				var log [3]strings.Builder
				for range 3 { // one after the other over the same links
					if err := c.run(p, cm, &log); err != nil {
						return err
					}
				}
				return nil
			})
			for p, err := range errs {
				if err != nil {
					t.Fatalf("world %d, trial %d, rows %v, widths %v: rank %d: %v", world, trial, counts, widths, p, err)
				}
			}
		}
	}
}

// An error or a panic in any of the callbacks ends the operation on all ranks.
func TestRoundTripFails(t *testing.T) {
	for world := 2; world <= 4; world++ {
		for _, where := range []string{"produce", "local", "consume", "return", "panic"} {
			t.Run(fmt.Sprintf("%d/%s", world, where), func(t *testing.T) {
				errs := everyRank(t, world, 1<<14*(world-1), func(p int, cm *comm.Communicator) error {
					op, err := cm.Begin(comm.KindAggregate, comm.Backward)
					if err != nil {
						return err
					}
					at := func(here string) error {
						if p != 0 || here != where {
							return nil
						}
						return fmt.Errorf("rank 0 stumbled in %s", here)
					}
					size := make([]int, world)
					for r := 1; r < world; r++ {
						size[r] = 100
					}
					m := &RoundTrip{Op: op, RowBytes: 500, ReplyBytes: 300, Send: size, Recv: size,
						Produce: func(r, first, n int, dst []byte) error {
							if first > 0 {
								return at("produce")
							}
							return nil
						},
						Local: func() error { return at("local") },
						Compute: func(r, first, n int, src, reply []byte) error {
							if p == 0 && where == "panic" && first > 0 {
								panic("rank 0 stumbled in panic")
							}
							return at("consume")
						},
						Take: func(r, first, n int, src []byte) error { return at("return") },
					}
					_, err = m.Move(p, world)
					return op.End(err)
				})
				for p, err := range errs {
					if err == nil || !strings.Contains(err.Error(), "rank 0 stumbled in "+where) {
						t.Errorf("rank %d: %v", p, err)
					}
				}
			})
		}
	}
}

// Ranks that disagree about the size of what returns end with an error.
func TestReplySizesThatDiffer(t *testing.T) {
	for world := 2; world <= 3; world++ {
		errs := everyRank(t, world, 1<<16*(world-1), func(p int, cm *comm.Communicator) error {
			op, err := cm.Begin(comm.KindAggregate, comm.Backward)
			if err != nil {
				return err
			}
			size := []int{0, 5, 5}[:world]
			nothing := func(int, int, int, []byte) error { return nil }
			m := &RoundTrip{Op: op, RowBytes: 8, ReplyBytes: 8 + 8*min(p, 1), Send: size, Recv: size, Produce: nothing,
				Take: nothing, Compute: func(int, int, int, []byte, []byte) error { return nil }}
			_, err = m.Move(p, world)
			return op.End(err)
		})
		for p, err := range errs {
			var differs *comm.ScheduleError
			if !errors.As(err, &differs) || !strings.Contains(err.Error(), "feature widths") {
				t.Errorf("world %d, rank %d: %v", world, p, err)
			}
		}
	}
}

// However many frames a link holds, two workers that answer in step with each other find
// room: what each has sent ahead leaves room for its answers.
func TestRepliesInStep(t *testing.T) {
	old := replyBytes
	defer func() { replyBytes = old }()
	const window, chunks = 1 << 14, 40
	fits := map[int]bool{}
	for replyBytes = 512; replyBytes <= 5248; replyBytes += 64 {
		rowBytes := replyBytes // a row is a frame
		steps := make([]chan struct{}, chunks)
		for k := range steps {
			steps[k] = make(chan struct{}, 1)
		}
		errs := everyRank(t, 2, window, func(p int, cm *comm.Communicator) error {
			op, err := cm.Begin(comm.KindAggregate, comm.Backward)
			if err != nil {
				return err
			}
			if p == 0 {
				fits[op.Fit(rowBytes)] = true
			}
			m := &RoundTrip{Op: op, RowBytes: rowBytes, ReplyBytes: rowBytes, Send: []int{0, chunks}, Recv: []int{0, chunks},
				Produce: func(r, first, n int, dst []byte) error { return nil },
				Compute: func(r, first, n int, src, reply []byte) error {
					if n != 1 {
						return fmt.Errorf("%d rows in a frame", n)
					}
					select { // whoever is second lets both go
					case steps[first] <- struct{}{}:
						for len(steps[first]) > 0 {
							runtime.Gosched()
						}
					case <-steps[first]:
					}
					return nil
				},
				Take: func(r, first, n int, src []byte) error { return nil }}
			_, err = m.Move(p, 2)
			return op.End(err)
		})
		for p, err := range errs {
			if err != nil {
				t.Fatalf("frames of %d bytes, rank %d: %v", rowBytes, p, err)
			}
		}
	}
	for _, n := range []int{2, 3, 4, 5, 7} {
		if !fits[n] {
			t.Errorf("no links of %d frames among %v", n, fits)
		}
	}
}
