package session

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sar/core/mem"
)

func TestDefaultWindow(t *testing.T) {
	for _, c := range []struct {
		world      int
		nodes, mib int64
	}{
		{1, 0, 4}, {2, 0, 4}, {2, 8191, 4}, {2, 8192, 8}, {2, 16383, 8}, {2, 16384, 16}, {2, 1 << 40, 16},
		{8, 7500, 4}, {9, 0, 4}, {10, 0, 8}, {10, 8192, 8}, {17, 0, 8}, {18, 0, 16}, {200, 0, 16},
		// Among many workers, frames of 256 KiB, as far as half of the rows goes.
		{9, 1 << 40, 16}, {11, 1 << 40, 18}, {24, 7000, 16}, {24, 60_000, 29}, {24, 1 << 40, 40}, {128, 10_000, 16},
		{128, 868_000, 219}, {256, 434_000, 211}, {256, 1 << 40, 439},
	} {
		if got := DefaultWindow(c.world, c.nodes); got != c.mib<<20 {
			t.Errorf("%d workers, %d nodes: %d bytes, want %d MiB", c.world, c.nodes, got, c.mib)
		}
	}
	for world := 1; world < 2000; world++ {
		if err := enough(DefaultWindow(world, 0), world); err != nil {
			t.Fatalf("%d workers: %v", world, err)
		}
	}
}

// A window that the script does not name follows the largest graph; one that it
// names stays as it is, to the byte.
func TestWindowFollowsTheGraph(t *testing.T) {
	for _, parts := range []int{2, 4, 8} {
		workers(t, parts, Config{}, func(s *Session) error {
			is := func(what string, want int64) error {
				if err := s.Barrier(ctx, Reduce); err != nil {
					return err
				}
				if w := s.Stats().Window; w.Limit != want || w.Live > int64(parts)*want || w.Peak > int64(parts)*want {
					return fmt.Errorf("%d workers, %s: %+v in all, %d bytes each expected", parts, what, w, want)
				}
				return s.Barrier(ctx, Reduce)
			}
			build := func(nodes int64) error {
				starts := make([]int64, parts+1)
				for p := 1; p < parts; p++ { // the last worker owns none
					starts[p] = int64(p) * nodes
				}
				starts[parts] = starts[parts-1]
				g, err := s.GraphFromEdges(ctx, starts, nil, nil)
				if err == nil {
					g.Free()
				}
				return err
			}
			for _, step := range []struct {
				what string
				do   func() error
				mib  int64
			}{
				{"no graph", func() error { return nil }, 4},
				{"a small graph", func() error { return build(10) }, 4},
				{"a larger one", func() error { return build(9000) }, 8},
				{"a small one again", func() error { return build(10) }, 8},
				{"5 MiB named", func() error { return s.SetWindow(5 << 20) }, 5},
				{"a large graph", func() error { return build(40000) }, 5},
				{"none named", func() error { return s.SetWindow(0) }, 16},
				{"3 MiB named", func() error { return s.SetWindow(3 << 20) }, 3},
			} {
				if err := step.do(); err != nil {
					return fmt.Errorf("%s: %w", step.what, err)
				}
				if err := is(step.what, step.mib<<20); err != nil {
					return err
				}
			}
			if err := s.SetWindow(-1); err == nil {
				return fmt.Errorf("a window of -1 bytes was taken")
			}
			return nil
		})
	}
	if live := mem.Stats()[mem.Window].Live; live != 0 {
		t.Errorf("%d bytes of window are left", live)
	}
}

// Rows that no frame of a small window would hold have it grow before they are refused.
func TestWideRowsMakeRoom(t *testing.T) {
	const parts, width = 2, 200_000 // 800 KB
	g := randomGraph(rand.New(rand.NewPCG(2, 3)), 6, 20, parts)
	workers(t, parts, Config{}, func(s *Session) error {
		if s.Stats().Window.Limit != leastWindow {
			return fmt.Errorf("the window is %+v at first", s.Stats().Window)
		}
		if err := runCase[float32](s, &g, aggregateCase{width: width}, 5, 1e-5); err != nil {
			return err
		}
		if s.Stats().Window.Limit != mostWindow {
			return fmt.Errorf("the window is %+v after rows of %d bytes", s.Stats().Window, 4*width)
		}
		return nil
	})
}
