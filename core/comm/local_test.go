package comm

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
)

// worlds are the sizes that tests run with.
var worlds = []int{1, 2, 3, 4, 5, 8}

// onRanks runs f on every rank of a local group with one communicator.
func onRanks(t *testing.T, cfg Config, window int, f func(c *Communicator) error) []error {
	t.Helper()
	groups, err := Local(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return runRanks(t, groups, func(g *Group) error {
		c, err := g.NewCommunicator("test", window)
		if err != nil {
			return err
		}
		return f(c)
	})
}

// runRanks runs f on every group and closes them when all are done.
func runRanks(t *testing.T, groups []*Group, f func(g *Group) error) []error {
	t.Helper()
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for r, g := range groups {
		wg.Go(func() { errs[r] = f(g) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatal("ranks hang")
	}
	for _, g := range groups {
		if err := g.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	return errs
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed*31 + i*7 + i>>8)
	}
	return b
}

func TestCollectivesMoveBytes(t *testing.T) {
	for _, p := range worlds {
		for _, n := range []int{0, 1, 1000, flatBytes, flatBytes + 1, 120_000} {
			t.Run(fmt.Sprintf("P%d/%d", p, n), func(t *testing.T) {
				noErrors(t, onRanks(t, Config{World: p}, 64<<10*max(1, p-1), func(c *Communicator) error {
					me := c.Rank()
					for _, root := range []int{0, p - 1} {
						buf := make([]byte, n)
						if me == root {
							buf = pattern(root, n)
						}
						if err := c.Broadcast(buf, root); err != nil {
							return err
						}
						if string(buf) != string(pattern(root, n)) {
							return fmt.Errorf("broadcast from %d: wrong bytes", root)
						}
					}
					send, recv := make([][]byte, p), make([][]byte, p)
					for q := range p {
						send[q] = pattern(me*p+q, n*(q+1)/(me+1))
						recv[q] = make([]byte, n*(me+1)/(q+1))
					}
					if err := c.AllToAll(send, recv); err != nil {
						return err
					}
					for q := range p {
						if string(recv[q]) != string(pattern(q*p+me, n*(me+1)/(q+1))) {
							return fmt.Errorf("all-to-all from %d: wrong bytes", q)
						}
					}
					got := make([]byte, n)
					if err := c.ExchangePair(c.up(1), pattern(me, n), c.down(1), got); err != nil {
						return err
					}
					if string(got) != string(pattern(c.down(1), n)) {
						return errors.New("pair exchange: wrong bytes")
					}
					all, err := c.AllGatherInts(int64(me), int64(n))
					if err != nil {
						return err
					}
					for q := range p {
						if all[q][0] != int64(q) || all[q][1] != int64(n) {
							return fmt.Errorf("all-gather: %v", all)
						}
					}
					return c.Barrier()
				}))
			})
		}
	}
}

func TestPairExchangeWithNobody(t *testing.T) {
	noErrors(t, onRanks(t, Config{World: 3}, 1<<20, func(c *Communicator) error {
		got := make([]byte, 5)
		switch c.Rank() {
		case 0:
			return c.ExchangePair(2, []byte("hello"), -1, nil)
		case 2:
			if err := c.ExchangePair(-1, nil, 0, got); err != nil || string(got) != "hello" {
				return fmt.Errorf("%v, %q", err, got)
			}
			return nil
		}
		return c.ExchangePair(-1, nil, -1, nil)
	}))
}

func TestSizesThatDiffer(t *testing.T) {
	cases := map[string]func(c *Communicator) error{
		"all-to-all": func(c *Communicator) error {
			send, recv := make([][]byte, 3), make([][]byte, 3)
			for q := range 3 {
				send[q], recv[q] = make([]byte, 8), make([]byte, 8)
			}
			if c.Rank() == 1 {
				send[2] = make([]byte, 9)
			}
			return c.AllToAll(send, recv)
		},
		"small all-reduce": func(c *Communicator) error {
			return c.AllReduce(make([]byte, 8*(1+c.Rank()/2)), dtypes.Float64, Sum)
		},
		"large all-reduce": func(c *Communicator) error {
			return c.AllReduce(make([]byte, 8*(1+100_000*(c.Rank()/2))), dtypes.Float64, Sum)
		},
		"dtype": func(c *Communicator) error {
			return c.AllReduce(make([]byte, 8), reduced[c.Rank()/2], Sum)
		},
		"broadcast": func(c *Communicator) error {
			return c.Broadcast(make([]byte, 10+c.Rank()/2), 0)
		},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			for r, err := range onRanks(t, Config{World: 3}, 1<<20, func(c *Communicator) error {
				if err := f(c); err != nil {
					return err
				}
				return c.Barrier() // a broadcast's root cannot know by itself
			}) {
				var size *SizeError
				if !errors.As(err, &size) {
					t.Errorf("rank %d: %v", r, err)
				} else if size.Peer != 2 && size.Rank != 2 {
					t.Errorf("rank %d: %v does not name rank 2", r, err)
				}
			}
		})
	}
}

func TestArgumentsThatAreWrong(t *testing.T) {
	noErrors(t, onRanks(t, Config{World: 2}, 1<<20, func(c *Communicator) error {
		for want, err := range map[string]error{
			"avg of int64":        c.AllReduce(make([]byte, 8), dtypes.Int64, Avg),
			"whole number":        c.AllReduce(make([]byte, 7), dtypes.Float64, Sum),
			"ranks are 0 to 1":    c.Broadcast(nil, 2),
			"one for each rank":   c.AllToAll(nil, nil),
			"to itself":           c.AllToAll([][]byte{{1}, {1}}, make([][]byte, 2)),
			"own partner":         c.ExchangePair(c.Rank(), nil, -1, nil),
			"pair exchange with":  c.ExchangePair(7, nil, -1, nil),
			"all-reduce with red": c.AllReduce(nil, dtypes.Int64, 9),
		} {
			var arg *argument.Error
			if !errors.As(err, &arg) || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("want %q, got %v", want, err)
			}
		}
		return c.Barrier()
	}))
}
