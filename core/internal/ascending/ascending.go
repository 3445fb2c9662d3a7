// Package ascending goes through runs of ascending numbers, such as the columns of a row of
// a sparse matrix, window by window.
package ascending

import (
	"math"
	"sort"
)

// RunEnd is the first place from k on whose entry is not below end, or last. Entries
// k..last-1 ascend.
func RunEnd[I int32 | uint16](entries []I, k, last int64, end I) int64 {
	if k == last || entries[last-1] < end {
		return last
	}
	if entries[k] >= end {
		return k
	}
	step := int64(1) // runs are short: step, doubling, then search
	lo := k
	for lo < last && entries[lo] < end {
		k = lo
		lo += step
		step *= 2
	}
	return k + int64(sort.Search(int(min(lo, last)-k), func(i int) bool { return entries[k+int64(i)] >= end }))
}

// Run is places [From, To). A heavy one is one place.
type Run struct {
	From, To int
	Heavy    bool
}

// Runs cuts places [from, to) into runs of about equal work. cost(i) is the work of the places
// before i, which ascends. A run ends with the place that completes its share; where that one is
// heavy, it is a run of its own.
func Runs(from, to int, share int64, cost func(i int) int64, heavy func(i int) bool) (runs []Run) {
	for from < to {
		mark := cost(from) + share
		end := from + 1
		end += sort.Search(to-end, func(i int) bool { return cost(end+i) >= mark })
		if !heavy(end - 1) {
			runs = append(runs, Run{from, end, false})
		} else {
			if from < end-1 {
				runs = append(runs, Run{from, end - 1, false})
			}
			runs = append(runs, Run{end - 1, end, true})
		}
		from = end
	}
	return runs
}

// Cursor is how far windows, which follow each other, have come in each of many runs. Most
// windows have entries of few runs: the others are told by looking at one array in sequence.
type Cursor[S int32 | int64] struct {
	Slot []S     // the first place of each run that was not read
	Next []int32 // its entry, behind all windows after the last place; nil: not kept
	Seen int32   // entries below this were in some window
}

// none is behind all windows.
const none = math.MaxInt32

// Passes tells whether a window that ends before end has no entry of run i.
func (c *Cursor[S]) Passes(i, end int32) bool { return c.Next != nil && c.Next[i] >= end }

// Move puts the cursor of run i, which ends before last, on place k of col.
func (c *Cursor[S]) Move(i int32, col []int32, k, last int64) {
	if c.Next == nil || k >= last {
		c.End(i, S(k))
		return
	}
	c.Put(i, S(k), col[k])
}

// Put puts the cursor of run i on place k, whose entry is next.
func (c *Cursor[S]) Put(i int32, k S, next int32) { c.Slot[i], c.Next[i] = k, next }

// End puts the cursor of run i behind its last place, k.
func (c *Cursor[S]) End(i int32, k S) {
	c.Slot[i] = k
	if c.Next != nil {
		c.Next[i] = none
	}
}
