package expr

import (
	"slices"

	"sar/core/internal/vec"
	"sar/core/internal/view"
)

// Storage is how the numbers of an operand lie in memory and in frames. Registers, results and gradients have the
// element type of the run whatever it is: only what reads operands knows it, and whoever fills frames.
type Storage uint8

const (
	Native   Storage = iota // the element type of the run
	BFloat16                // the upper half of a float32
)

// storageNames is in the order of the constants.
var storageNames = []string{"", "bfloat16"}

func (s Storage) String() string { return storageNames[s] }

func storageNamed(name string) (Storage, bool) {
	i := slices.Index(storageNames, name)
	return Storage(max(0, i)), i >= 0
}

// bytes is the size of a number.
func (s Storage) bytes(elemSize int) int {
	if s == BFloat16 {
		return view.Size[vec.BFloat16]()
	}
	return elemSize
}

// RowBytes is the size of a row in a frame, of which numbers of the element type take elemSize each.
func (o *Operand) RowBytes(elemSize int) int {
	if o.Storage == Native {
		return o.Width * elemSize
	}
	return aligned(o.Width*o.Storage.bytes(elemSize), elemSize)
}

// aligned is so many bytes of a row, and as many more as align numbers of the element type that follow.
func aligned(bytes, elemSize int) int { return (bytes + elemSize - 1) / elemSize * elemSize }

// rowsOf is rows of an operand in bytes, the first of which is that of column base.
func (r *Run[T]) rowsOf(operand int, data []byte, stride int, base int32) rows[T] {
	storage := r.Program.Operands[operand].Storage
	out := rows[T]{stride: stride / storage.bytes(view.Size[T]()), base: base}
	if storage == BFloat16 {
		out.half = view.Numbers[vec.BFloat16](data)
	} else {
		out.data = view.Numbers[T](data)
	}
	return out
}

// Bytes are the rows of an operand and their size, as they lie.
func (r *Run[T]) Bytes(operand int) (data []byte, rowBytes int) {
	o := &r.Program.Operands[operand]
	rowBytes = o.Width * o.Storage.bytes(view.Size[T]())
	if o.Storage == Native {
		return view.Bytes(r.Operands[operand]), rowBytes
	}
	return r.Stored[operand], rowBytes
}

// copyRows makes a register of the rows of an input.
func (t *task[T]) copyRows(z []T, c *call[T]) {
	x, w := t.load(c.arg), c.width
	if c.fixed {
		one := x.numbers(t.row(w), 0)
		for k := range t.m {
			copy(z[k*w:(k+1)*w], one)
		}
		return
	}
	if x.half != nil {
		t.s.ops.HalfRows(z, x.half, x.stride, x.base, x.index, w)
		return
	}
	t.s.ops.Rows(z, x.data, x.stride, x.base, x.index, w)
}

// row is room for a row that is widened.
func (t *task[T]) row(width int) []T {
	if len(t.wide) < width {
		t.wide = make([]T, width)
	}
	return t.wide[:width]
}

// numbers is the row of edge k, of the width of room, where it is widened if it is stored in bfloat16.
func (p *picked[T]) numbers(room []T, k int) []T { return p.rows.numbers(room, p.index[k]) }

func (r *rows[T]) numbers(room []T, i int32) []T {
	if r.half == nil {
		return r.row(i)[:len(room)]
	}
	vec.Get[T]().Widen(room, r.half[int(i-r.base)*r.stride:])
	return room
}
