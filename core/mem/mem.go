// Package mem holds the engine's large buffers. They live outside the Go heap
// (anonymous mappings), so the garbage collector neither scans nor keeps them,
// and every byte is counted under the purpose it serves. What Stats reports is
// therefore the engine's part of the process's resident size, split so that a
// user can see what structure, window or scratch costs.
package mem

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"sar/core/internal/view"
)

// Purpose says what a buffer is for. It is the unit of accounting.
type Purpose uint8

const (
	Structure   Purpose = iota // CSR and CSC arrays, send lists, degrees
	Features                   // rows read from files, before the caller owns them
	Window                     // receive buffers, shared-memory rings, send staging
	Scratch                    // temporaries of kernels, builders and collectives
	Runtime                    // Go's heap, stacks and own tables: CountRuntime
	Mapped                     // features that stay in their files; what of them is in memory the system decides
	NumPurposes = 6
)

var purposeNames = [NumPurposes]string{"structure", "features", "window", "scratch", "runtime", "mapped"}

func (p Purpose) String() string {
	if int(p) < len(purposeNames) {
		return purposeNames[p]
	}
	return fmt.Sprintf("purpose(%d)", uint8(p))
}

// Usage is the live size of one purpose and the largest it has been, in bytes.
type Usage struct {
	Live int64 `json:"live"`
	Peak int64 `json:"peak"`
}

type counter struct {
	live, peak atomic.Int64
}

func (c *counter) add(n int64) {
	now := c.live.Add(n)
	for n > 0 {
		old := c.peak.Load()
		if now <= old || c.peak.CompareAndSwap(old, now) {
			return
		}
	}
}

var (
	counters [NumPurposes]counter
	total    counter
)

// Count adjusts the account of a purpose by n bytes (negative to release) for
// memory that something other than Alloc mapped: shared-memory rings, files.
func Count(p Purpose, n int64) {
	counters[p].add(n)
	if p != Mapped {
		total.add(n)
	}
}

// Stats returns the usage of every purpose, indexed by Purpose.
func Stats() [NumPurposes]Usage {
	var out [NumPurposes]Usage
	for i := range counters {
		out[i] = Usage{counters[i].live.Load(), counters[i].peak.Load()}
	}
	return out
}

// Total returns the usage over all purposes but Mapped. Its peak is the largest sum at
// one time, which is at most the sum of the peaks.
func Total() Usage { return Usage{total.live.Load(), total.peak.Load()} }

// ResetPeaks lowers every peak to what is live now.
func ResetPeaks() {
	for p := range counters {
		ResetPeak(Purpose(p))
	}
	total.peak.Store(total.live.Load())
}

// ResetPeak lowers the peak of one purpose to what is live now. That of Total
// stays: it is of all purposes together.
func ResetPeak(p Purpose) { counters[p].peak.Store(counters[p].live.Load()) }

// Elem lists the element types that may live off the Go heap: no pointers.
type Elem interface {
	~uint8 | ~int8 | ~uint16 | ~int16 | ~uint32 | ~int32 | ~uint64 | ~int64 | ~float32 | ~float64
}

// Array is an off-heap array. The zero value is an empty array. Data must not
// be used after Free.
type Array[T Elem] struct {
	Data    []T
	mapping []byte
	purpose Purpose
	file    bool   // of a file: Map made it
	lender  Lender // Workspace made it of a block of this one's
}

// Make maps a zeroed array of n elements. An array of no elements maps nothing.
func Make[T Elem](p Purpose, n int) (Array[T], error) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if n < 0 || n > (1<<62)/size {
		return Array[T]{}, fmt.Errorf("mem: cannot map %d elements of %d bytes for %s", n, size, p)
	}
	if n == 0 {
		return Array[T]{purpose: p}, nil
	}
	m, err := mapPages(roundUp(n * size))
	if err != nil {
		return Array[T]{}, fmt.Errorf("mem: mapping %d bytes for %s: %w", n*size, p, err)
	}
	Count(p, int64(len(m)))
	return Array[T]{Data: view.Numbers[T](m)[:n], mapping: m, purpose: p}, nil
}

// Make makes a an array as the function Make does. What a was before is the caller's to free.
func (a *Array[T]) Make(p Purpose, n int) (err error) {
	*a, err = Make[T](p, n)
	return err
}

// Free unmaps the array. It may be called again, and on the zero value.
func (a *Array[T]) Free() {
	if a.mapping != nil {
		Count(a.purpose, -int64(len(a.mapping)))
		switch {
		case a.file:
			unmapFile(a.mapping)
		case a.lender != nil:
			Scribble(a.mapping)
			a.lender.Return(a.mapping)
		default:
			Scribble(a.mapping)
			unmapPages(a.mapping)
		}
	}
	*a = Array[T]{purpose: a.purpose}
}

// Bytes is the size of the mapping, whole pages.
func (a *Array[T]) Bytes() int64 { return int64(len(a.mapping)) }

const page = 4096

func roundUp(n int) int { return (n + page - 1) &^ (page - 1) }

// BudgetError says that a memory budget cannot be met, and the smallest that can.
type BudgetError struct {
	What    string // the budget, as a user names it
	Have    int64  // bytes allowed
	Minimum int64  // smallest budget that would do
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("%s of %d bytes is too small: at least %d bytes are needed", e.What, e.Have, e.Minimum)
}
