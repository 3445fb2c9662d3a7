package parallel

import (
	"errors"
	"sync/atomic"
	"testing"
)

// Every number is taken once, whatever the goroutines, and none after an error.
func TestEach(t *testing.T) {
	for _, threads := range []int{1, 3, 50} {
		for _, n := range []int{0, 1, 40} {
			seen := make([]atomic.Int32, n)
			err := Each(threads, n, func(goroutine, i int) error {
				if goroutine < 0 || goroutine >= threads {
					t.Errorf("goroutine %d of %d", goroutine, threads)
				}
				seen[i].Add(1)
				return nil
			})
			for i := range seen {
				if got := seen[i].Load(); got != 1 || err != nil {
					t.Errorf("%d threads: %d was taken %d times, %v", threads, i, got, err)
				}
			}
		}
	}
	bad := errors.New("bad")
	calls := 0
	if err := Each(1, 10, func(_, i int) error { calls++; return map[int]error{3: bad}[i] }); err != bad || calls != 4 {
		t.Errorf("%v after %d calls", err, calls)
	}
}
