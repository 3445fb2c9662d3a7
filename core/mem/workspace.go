package mem

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"sar/core/internal/view"
)

// Lender has large blocks that are used again and again, as those of torch's tensors are.
type Lender interface {
	// Lend gives n bytes of anything, n at least Least; nil where there are none.
	Lend(n int) []byte
	// LendBehind gives what is behind a block b of the lender's, up to size bytes from where b begins; nil where b is no
	// such block that was put where it has room, or that is not free.
	LendBehind(b []byte, size int) []byte
	// Return takes back what either gave.
	Return(b []byte)
	Least() int
}

var lender atomic.Pointer[Lender]

// LendFrom has workspaces come from a lender from now on; nil: from the system.
func LendFrom(l Lender) {
	if l == nil {
		lender.Store(nil)
		return
	}
	lender.Store(&l)
}

// Workspace is an array of n elements for one call, of the size of its tensors, that hold anything. Where there is a
// lender, it takes the place of tensors that are not in use: memory of its own would come on top of what is kept for
// them.
func Workspace[T Elem](n int) (Array[T], error) {
	size := view.Size[T]()
	l := lender.Load()
	if l == nil || !lends || n < 0 || n > (1<<62)/size || n*size < (*l).Least() {
		return Make[T](Scratch, n)
	}
	b := (*l).Lend(n * size)
	if b == nil {
		return Array[T]{}, fmt.Errorf("mem: there are no %d bytes for %s", n*size, Scratch)
	}
	Count(Scratch, int64(len(b)))
	return Array[T]{Data: view.Numbers[T](b)[:n], mapping: b, purpose: Scratch, lender: *l}, nil
}

// ZeroWorkspace is a Workspace of zeros.
func ZeroWorkspace[T Elem](n int) (Array[T], error) {
	a, err := Workspace[T](n)
	if a.lender != nil { // what the system gives is zeros
		clear(a.Data)
	}
	return a, err
}

// Widened is n = len(x) elements of T that begin where x does, in what a lender has behind x too, until tail is freed;
// nil where that is not free. x is the front of them.
func Widened[T, X Elem](x []X) (wide []T, tail Array[byte]) {
	l := lender.Load()
	if l == nil || !lends {
		return nil, tail
	}
	own := view.Bytes(x)
	b := (*l).LendBehind(own, len(x)*view.Size[T]())
	if b == nil {
		return nil, tail
	}
	Count(Scratch, int64(len(b)))
	tail = Array[byte]{Data: b, mapping: b, purpose: Scratch, lender: *l}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(own))), len(x)), tail
}
