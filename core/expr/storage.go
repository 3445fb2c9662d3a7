package expr

import (
	"slices"

	"sar/core/internal/vec"
	"sar/core/internal/view"
)

// Storage is how the numbers of an operand lie in memory and in frames. Registers, results and gradients have the
// element type of the run whatever it is: only loads know it, and whoever fills frames.
type Storage uint8

const (
	Native   Storage = iota // the element type of the run, which is read where it lies
	BFloat16                // the upper half of a float32
)

// storageDef is a storage: its name in programs and how a load makes numbers of it.
type storageDef[T Float] struct {
	name string
	size int // bytes of a number
	// load: z[k*width+j] = number j of row index[k]-base, rows beginning stride bytes apart.
	load func(z []T, rows []byte, stride int, base int32, index []int32, width int)
}

// defineStorages is in the order of the constants.
func defineStorages[T Float]() []storageDef[T] {
	half := func(z []T, rows []byte, stride int, base int32, index []int32, width int) {
		size := view.Size[vec.BFloat16]()
		vec.Get[T]().HalfRows(z, view.Numbers[vec.BFloat16](rows), stride/size, base, index, width)
	}
	return []storageDef[T]{{size: view.Size[T]()}, {name: "bfloat16", size: view.Size[vec.BFloat16](), load: half}}
}

func (s Storage) String() string { return defs64.storages[s].name }

func storageNamed(name string) (Storage, bool) {
	i := slices.IndexFunc(defs64.storages, func(d storageDef[float64]) bool { return d.name == name })
	return Storage(max(0, i)), i >= 0
}

// RowBytes is the size of a row in a frame, of which numbers of the element type take elemSize each.
func (o *Operand) RowBytes(elemSize int) int {
	if o.Storage == Native {
		return o.Width * elemSize
	}
	n := o.Width * defs64.storages[o.Storage].size
	return (n + elemSize - 1) / elemSize * elemSize // what follows is aligned
}

// input is where a load finds its rows.
type input[T Float] struct {
	rows[T]
	stored []byte // not nil: what they are in place of data, in a storage of which stride is bytes
}

// inputOf is rows of an operand in bytes, the first of which is that of column base.
func (r *Run[T]) inputOf(operand int, data []byte, stride int, base int32) input[T] {
	if r.Program.Operands[operand].Storage != Native {
		return input[T]{rows[T]{stride: stride, base: base}, data}
	}
	return input[T]{rows: rows[T]{view.Numbers[T](data), stride / view.Size[T](), base}}
}

// Bytes are the rows of an operand and their size, as they lie.
func (r *Run[T]) Bytes(operand int) (data []byte, rowBytes int) {
	o := &r.Program.Operands[operand]
	if o.Storage == Native {
		return view.Bytes(r.Operands[operand]), o.Width * view.Size[T]()
	}
	return r.Stored[operand], o.Width * defs64.storages[o.Storage].size
}

// copyRows makes a register of the rows of an input.
func (t *task[T]) copyRows(z []T, c *call[T]) {
	x, in, w := t.load(c.arg), &t.s.loads[c.arg], c.width
	if in.stored != nil {
		load := t.s.defs.storages[t.s.p.Operands[c.arg].Storage].load
		if !c.fixed {
			load(z, in.stored, in.stride, in.base, x.index, w)
			return
		}
		x.data = t.left[:w]
		load(x.data, in.stored, in.stride, 0, t.s.first[:1], w)
	}
	if c.fixed {
		for k := range t.m {
			copy(z[k*w:(k+1)*w], x.data[:w])
		}
		return
	}
	t.s.ops.Rows(z, x.data, x.stride, x.base, x.index, w)
}
