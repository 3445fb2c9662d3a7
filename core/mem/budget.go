package mem

import (
	"fmt"
	"sync"
)

// BudgetError says that a memory budget cannot be met, and the smallest that can.
type BudgetError struct {
	What    string // the budget, as a user names it
	Have    int64  // bytes allowed
	Minimum int64  // smallest budget that would do
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("%s of %d bytes is too small: at least %d bytes are needed", e.What, e.Have, e.Minimum)
}

// Budget is a limit on bytes that are held at one time, such as the window of
// remote rows. Taking more than the limit is an error, never a wait: what runs
// inside a budget plans its chunks so that they fit.
type Budget struct {
	what        string
	mu          sync.Mutex
	limit       int64
	taken, peak int64
}

// NewBudget makes a budget; what is the name that errors use.
func NewBudget(what string, limit int64) *Budget { return &Budget{what: what, limit: limit} }

// Take reserves n bytes or returns a *BudgetError.
func (b *Budget) Take(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken+n > b.limit {
		return &BudgetError{What: b.what, Have: b.limit, Minimum: b.taken + n}
	}
	b.taken += n
	b.peak = max(b.peak, b.taken)
	return nil
}

// Give returns n bytes.
func (b *Budget) Give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken < n {
		panic(fmt.Sprintf("mem: budget %q given %d bytes back with %d taken", b.what, n, b.taken))
	}
	b.taken -= n
}

// Limit is the most that may be taken at one time.
func (b *Budget) Limit() int64 { return b.limit }

// Usage returns what is taken now and the most that has been.
func (b *Budget) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Usage{b.taken, b.peak}
}
