package exchange

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/transport"
)

// cpu stands for the one thread that a worker's kernels share, as kernel.Pool
// hands it out: in turns, a little work at a time, and first to those who do not
// come behind. Its work is to wait, by a clock that nothing else moves.
type cpu struct {
	mu    sync.Mutex
	queue [2][]chan struct{}
	busy  bool
}

func (c *cpu) acquire(rank int) {
	c.mu.Lock()
	if !c.busy {
		c.busy = true
		c.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	c.queue[rank] = append(c.queue[rank], turn)
	c.mu.Unlock()
	<-turn
}

func (c *cpu) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rank := range c.queue {
		if len(c.queue[rank]) > 0 {
			close(c.queue[rank][0])
			c.queue[rank] = c.queue[rank][1:]
			return
		}
	}
	c.busy = false
}

func (c *cpu) work(d time.Duration) { c.workAt(0, d) }

func (c *cpu) workAt(rank int, d time.Duration) {
	const slice = 2 * time.Millisecond
	for d > 0 {
		c.acquire(rank)
		begin := time.Now()
		time.Sleep(min(d, slice))
		d -= time.Since(begin)
		c.release()
	}
}

// load is a made-up exchange: what a worker computes and what it sends.
type load struct {
	world, rows         int           // rows for each peer
	out, back           int           // bytes of a row; back 0: without a reply
	toOwner             bool          // without a reply
	parts               int           // of own rows, with a reply
	produce             time.Duration // of all rows of all peers
	local, take, settle time.Duration // Local; Consume and Return of all rows of all peers
}

// bytes that a worker sends, and receives.
func (l *load) bytes() int { return (l.world - 1) * l.rows * (l.out + l.back) }

func (l *load) move(c *comm.Communicator, rank int, thread *cpu) error {
	op, err := c.Begin(comm.KindAggregate, comm.Forward)
	if err != nil {
		return err
	}
	counts := make([]int, l.world)
	for r := 1; r < l.world; r++ {
		counts[r] = l.rows
	}
	part := func(of time.Duration, n int) error {
		thread.work(of * time.Duration(n) / time.Duration(l.rows*(l.world-1)))
		return nil
	}
	produce := func(r, first, n int, dst []byte) error { return part(l.produce, n) }
	local := func() error { thread.work(l.local); return nil }
	if l.back > 0 {
		t := &RoundTrip{Op: op, RowBytes: l.out, ReplyBytes: l.back, Send: counts, Recv: counts, Produce: produce,
			Local:   local,
			Compute: func(r, first, n int, src, reply []byte) error { return part(l.take, n) },
			Take:    func(r, first, n int, src []byte) error { return part(l.settle, n) }}
		if l.parts > 0 {
			t.Local, t.Own.N, t.Own.Run = nil, l.parts, func(int) { thread.workAt(1, l.local/time.Duration(l.parts)) }
			t.Own.Needs = func(r, first, n int) int {
				if r == 1 {
					return 0
				}
				return (first+n-1)*l.parts/l.rows + 1
			}
		}
		_, err = t.Move(rank, l.world)
	} else {
		m := &Movement{Op: op, ToOwner: l.toOwner, RowBytes: l.out, Send: counts, Recv: counts, Produce: produce,
			Local:   local,
			Consume: func(r, first, n int, src []byte) error { return part(l.take, n) }}
		if l.toOwner {
			m.Local, m.Own.N, m.Own.Run = nil, ownParts, func(int) { thread.work(l.local / ownParts) }
			if l.world > 2 {
				own := ownRows{rel: &graph.Relation{Structure: &graph.Structure{}}, groups: ownGroups}
				own.rel.NumSrc = l.rows
				m.Passes = ownGroups
				m.Until = func(r, passes int) int { return own.first(passes) }
				m.Own.Needs = func(r, first, n int) int {
					if r == 1 {
						return 0
					}
					return (own.of(int32(first+n-1)) + 1) * (ownParts / ownGroups)
				}
			}
		}
		_, err = m.Move(rank, l.world)
	}
	return op.End(err)
}

// run returns how long the slowest rank takes where each sends rate bytes a
// second at most.
func (l *load) run(t *testing.T, window int, rate float64) time.Duration {
	t.Helper()
	ports := make([]*port, l.world)
	for p := range ports {
		ports[p] = newPort(rate)
	}
	groups, err := comm.LocalOver(comm.Config{World: l.world},
		func(a, b, linkBytes int) (transport.Link, transport.Link, error) {
			return shapedPair(a, b, linkBytes, ports[a], ports[b])
		})
	if err != nil {
		t.Fatal(err)
	}
	took := make([]time.Duration, l.world)
	var wg sync.WaitGroup
	for p, g := range groups {
		wg.Go(func() {
			defer g.Close()
			c, err := g.NewCommunicator("test", window)
			if err == nil {
				err = c.Barrier()
			}
			begin := time.Now()
			if err == nil {
				err = l.move(c, p, &cpu{})
			}
			took[p] = time.Since(begin)
			if err == nil {
				err = c.Barrier() // nobody leaves before all have what they wait for
			}
			if err != nil {
				t.Errorf("rank %d: %v", p, err)
			}
		})
	}
	wg.Wait()
	synctest.Wait()
	var most time.Duration
	for _, d := range took {
		most = max(most, d)
	}
	return most
}

// Over a link on which the transfer takes half to nine tenths of the time that
// the kernels take, seven tenths of it at least are hidden behind them.
func TestTransferIsHidden(t *testing.T) {
	const second = 400 * time.Millisecond // of computing
	worlds, shares := []int{2, 4, 16}, []float64{0.5, 0.7, 0.9}
	if testing.Short() {
		worlds, shares = worlds[:1], shares[1:2]
	}
	for _, c := range []struct {
		name string
		load load
		most int // workers; 0: as many as are tried
	}{
		{"forward", load{out: 1024, produce: second / 20, local: second / 2, take: second * 9 / 20}, 0},
		{"gradients to owners", load{out: 1024, toOwner: true, produce: second * 9 / 20, local: second / 2,
			take: second / 20}, 0},
		{"attention backward", load{out: 528, back: 528, produce: second / 20, local: second / 2, take: second * 4 / 10,
			settle: second / 20}, 0},
		{"attention backward in parts", load{out: 528, back: 528, produce: second / 20, local: second / 2,
			take: second * 4 / 10, settle: second / 20, parts: ownGroups}, 0},
		{"few edges between parts", load{out: 950, back: 950, produce: second / 20, local: second * 7 / 10, take: second / 5,
			settle: second / 20, parts: ownGroups}, 4},
	} {
		for _, world := range worlds {
			if c.most > 0 && world > c.most {
				continue
			}
			t.Run(fmt.Sprintf("%s/P=%d", c.name, world), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := c.load
					l.world, l.rows = world, 16000/(world-1)
					const window = 14 << 20
					alone := l.run(t, window, 1e12)
					tried := shares
					if world == 16 { // the longest to simulate
						tried = shares[len(shares)-1:]
					}
					for _, share := range tried {
						transfer := share * alone.Seconds()
						took := l.run(t, window, float64(l.bytes())/transfer)
						hidden := 1 - (took-alone).Seconds()/transfer
						t.Logf("computing %.0f ms, transfer %.0f ms, together %.0f ms: %.0f %% hidden",
							1e3*alone.Seconds(), 1e3*transfer, 1e3*took.Seconds(), 100*hidden)
						if hidden < 0.7 {
							t.Errorf("%.0f %% of the transfer is hidden, at least 70 %% are wanted", 100*hidden)
						}
					}
				})
			})
		}
	}
}
