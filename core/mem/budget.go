package mem

import "fmt"

// BudgetError says that a memory budget cannot be met, and the smallest that can.
type BudgetError struct {
	What    string // the budget, as a user names it
	Have    int64  // bytes allowed
	Minimum int64  // smallest budget that would do
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("%s of %d bytes is too small: at least %d bytes are needed", e.What, e.Have, e.Minimum)
}
