// Package parallel divides work among goroutines.
package parallel

import (
	"sync"
	"sync/atomic"
)

// Each calls f with each number below n, ascending as goroutines come free, of which there are at
// most threads, until a call fails. It returns the first error. f is told which of the goroutines calls.
func Each(threads, n int, f func(goroutine, i int) error) error {
	var (
		wg    sync.WaitGroup
		next  atomic.Int64
		once  sync.Once
		first error
	)
	for t := range min(threads, n) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := f(t, int(i)); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n)) // nobody takes another one
				}
			}
		})
	}
	wg.Wait()
	return first
}
