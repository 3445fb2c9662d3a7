package kernel

import (
	"unsafe"

	"sar/core/internal/ascending"
	"sar/core/mem"
)

const (
	// alignSlots is how many slots must read a row of x, on average, for a copy
	// of x to pay.
	alignSlots = 16
	// alignSaves is the part of cache lines that it must save, in percent.
	alignSaves = 10
	// alignMost bounds the copy, in bytes. Between products the pool keeps it,
	// because the page faults of a fresh one cost as much as it saves.
	alignMost = 16 << 20
)

// align has the product read a copy of x whose rows begin on cache lines and lie
// in huge pages, where that pays. A row of 47 floats lies on 3.9 lines on
// average and then on 3, and lines from the last-level cache are what a product
// costs. Where rows have an order most of those are in the core's own cache, and
// the copy takes as much as it saves. Sums are taken as before, so no bit
// changes. slots is how many slots will be read. The result is called when the
// product is done.
func (m *sums[T]) align(p *Pool, a *CSR, slots int64) (done func()) {
	none := func() {}
	pitch, pays := alignedPitch(m.width, sizeof[T]())
	if !pays || a.Order.Rows != nil {
		return none
	}
	rows := len(m.x) / m.width
	if size := rows * pitch * sizeof[T](); slots < alignSlots*int64(rows) || size > alignMost || size == 0 {
		return none
	}
	memory, err := p.takeSpare(rows * pitch * sizeof[T]())
	if err != nil {
		return none // there is no memory for a copy: do without
	}
	copied := numbers[T](memory.Data)[:rows*pitch]
	x, width := m.x, m.width
	eachRows(p, rows, width, func(r0, r1 int) {
		for i := r0; i < r1; i++ {
			copy(copied[i*pitch:i*pitch+width], x[i*width:])
		}
	})
	m.x, m.stride = copied, pitch
	return func() { p.keepSpare(memory) }
}

// alignedPitch is width rounded up to whole cache lines, and whether rows of
// that pitch lie on so many fewer lines that a copy may pay.
func alignedPitch(width, itemBytes int) (pitch int, pays bool) {
	size := width * itemBytes
	lines := (size + lineBytes - 1) / lineBytes
	if size%lineBytes == 0 {
		return width, false
	}
	// Rows begin at every multiple of step in a line alike: the mean over those
	// of the lines that a row lies on, times how many there are.
	step := size & -size
	starts, touched := lineBytes/step, 0
	for at := 0; at < lineBytes; at += step {
		touched += (at + size + lineBytes - 1) / lineBytes
	}
	return lines * lineBytes / itemBytes, 100*lines*starts <= (100-alignSaves)*touched
}

// takeSpare returns at least n bytes, the pool's own where they are enough and
// not in use. Contents are undefined.
func (p *Pool) takeSpare(n int) (mem.Array[byte], error) {
	p.mu.Lock()
	spare := p.spare
	p.spare = mem.Array[byte]{}
	p.mu.Unlock()
	if len(spare.Data) >= n {
		return spare, nil
	}
	spare.Free()
	fresh, err := mem.Make[byte](mem.Scratch, n)
	if err == nil {
		adviseHuge(numbers[float32](fresh.Data))
	}
	return fresh, err
}

// keepSpare gives memory back to the pool, which keeps the larger of two.
func (p *Pool) keepSpare(memory mem.Array[byte]) {
	p.mu.Lock()
	if len(p.spare.Data) < len(memory.Data) {
		p.spare, memory = memory, p.spare
	}
	p.mu.Unlock()
	memory.Free()
}

// numbers views whole pages as numbers.
func numbers[T Float](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeof[T]())
}

// windowSlots is about how many slots of a window there are, from a look at some
// of the rows.
func windowSlots(a *CSR, cursor []int64, colEnd int32) int64 {
	const looks = 128
	n := a.Rows()
	var inside, seen int64
	for look := range min(n, looks) {
		i := n * look / min(n, looks)
		inside += ascending.RunEnd(a.Col, cursor[i], a.at(i+1), colEnd) - cursor[i]
		seen += a.at(i+1) - a.at(i)
	}
	if seen == 0 {
		return 0
	}
	return int64(float64(inside) / float64(seen) * float64(a.at(n)-a.at(0)))
}
