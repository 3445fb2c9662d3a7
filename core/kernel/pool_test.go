package kernel

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPoolLimit runs two callers at once and counts who computes.
func TestPoolLimit(t *testing.T) {
	for _, threads := range []int{1, 2, 3} {
		p := NewPool(threads)
		var now, most, ran atomic.Int32
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				for range 20 {
					p.Run(13, func(int) {
						v := now.Add(1)
						for {
							m := most.Load()
							if v <= m || most.CompareAndSwap(m, v) {
								break
							}
						}
						time.Sleep(10 * time.Microsecond)
						ran.Add(1)
						now.Add(-1)
					})
				}
			})
		}
		callers.Wait()
		if ran.Load() != 3*20*13 {
			t.Errorf("%d threads: %d tasks ran, want %d", threads, ran.Load(), 3*20*13)
		}
		if int(most.Load()) > threads {
			t.Errorf("%d threads: %d tasks ran at one time", threads, most.Load())
		}
	}
}

func TestPoolOneThreadIsInline(t *testing.T) {
	p := NewPool(1)
	before := runtime.NumGoroutine()
	p.Run(5, func(int) {
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines in a task, %d before", n, before)
		}
	})
}

func TestPoolPanic(t *testing.T) {
	for _, threads := range []int{1, 4} {
		p := NewPool(threads)
		func() {
			defer func() {
				e, ok := recover().(*TaskPanic)
				if !ok || e.Value != "task 7" || !strings.Contains(e.Error(), "TestPoolPanic") {
					t.Errorf("%d threads: recovered %v", threads, e)
				}
			}()
			p.Run(20, func(i int) {
				if i == 7 {
					panic("task 7")
				}
			})
			t.Errorf("%d threads: Run returned", threads)
		}()
		var n atomic.Int32
		p.Run(3, func(int) { n.Add(1) }) // the slots were given back
		if n.Load() != 3 {
			t.Errorf("after a panic %d of 3 tasks ran", n.Load())
		}
	}
}

func TestPoolResize(t *testing.T) {
	p := NewPool(4)
	p.SetThreads(0)
	if p.Threads() != 1 {
		t.Errorf("SetThreads(0) leaves %d threads, want 1", p.Threads())
	}
	p.SetThreads(3)
	var n atomic.Int32
	p.Run(100, func(int) { n.Add(1) })
	if p.Threads() != 3 || n.Load() != 100 {
		t.Errorf("%d threads, %d tasks", p.Threads(), n.Load())
	}
}

func BenchmarkPoolRun(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(map[int]string{1: "1thread", 2: "2threads"}[threads], func(b *testing.B) {
			p := NewPool(threads)
			for b.Loop() {
				p.Run(2, func(int) {})
			}
		})
	}
}

// TestPoolBehind has work that comes behind meet a caller that does not.
func TestPoolBehind(t *testing.T) {
	p := NewPool(1)
	var begun, ended atomic.Bool // the caller's tasks
	var between, ran atomic.Int32
	first := make(chan struct{})
	var callers sync.WaitGroup
	callers.Go(func() {
		p.Behind().Run(20, func(task int) {
			if task == 0 {
				close(first)
				for p.waiting[0].Load() == 0 {
					runtime.Gosched()
				}
			}
			if begun.Load() && !ended.Load() {
				between.Add(1)
			}
			ran.Add(1)
		})
	})
	<-first
	p.Run(50, func(task int) {
		begun.Store(true)
		if task == 10 { // somebody else who comes behind
			callers.Go(func() { p.Behind().Run(5, func(int) { ran.Add(1) }) })
			for p.waiting[1].Load() < 2 {
				runtime.Gosched()
			}
		}
		if task == 49 {
			ended.Store(true)
		}
	})
	callers.Wait()
	if between.Load() != 0 || ran.Load() != 25 {
		t.Errorf("%d tasks ran between another's, %d of 25 in all", between.Load(), ran.Load())
	}
}
