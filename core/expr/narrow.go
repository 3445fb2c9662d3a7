package expr

import (
	"sync"

	"sar/core/internal/view"
)

// narrowRow is the widest row that is put beside others, widestJoint the widest that they make, in bytes.
const narrowRow, widestJoint = 64, 256

// joinNarrow has sweeps over columns, which run the same calls, read the narrow rows of destinations
// from where they lie side by side: an edge reads all of them, and edges come in no order of
// destinations. They are put there when the first of the sweeps begins, since sweeps before it may compute some of
// them.
func (b *Backward[T]) joinNarrow(sweeps ...*Sweep[T]) error {
	s, r := sweeps[0], b.run
	var from []rows[T]
	var inputs []int
	width := 0
	for _, c := range s.list {
		if c.op != opLoad || s.p.side(c.arg) != V || c.width == 0 || c.width*view.Size[T]() > narrowRow {
			continue
		}
		if x := s.loads[c.arg]; x.data != nil {
			inputs, from, width = append(inputs, c.arg), append(from, x), width+c.width
		}
	}
	if len(inputs) < 2 || width*view.Size[T]() > widestJoint {
		return nil
	}
	made, err := r.make(r.Rel.NumDst * width)
	if err != nil {
		return err
	}
	fill := sync.OnceFunc(func() {
		r.rowwise(func(i int) {
			to := made[i*width:]
			for _, x := range from {
				copy(to[:x.stride], x.data[i*x.stride:])
				to = to[x.stride:]
			}
		})
	})
	for _, s := range sweeps {
		s.narrow = fill
		offset := 0
		for k, input := range inputs {
			s.loads[input] = rows[T]{data: tail(made, offset), stride: width}
			offset += from[k].stride
		}
	}
	return nil
}

// fillNarrow makes what the sweep reads side by side, if that has not been done.
func (s *Sweep[T]) fillNarrow() {
	if s.narrow != nil {
		s.narrow()
	}
}
