package expr

import "sar/core/internal/view"

// packMost is the widest row that pack takes, packWidest the widest that it makes, in bytes.
const packMost, packWidest = 64, 256

// packed is narrow rows of destinations side by side. They are filled in when a sweep begins,
// since sweeps before it may compute some of them.
type packed[T Float] struct {
	rows  rows[T]
	slots []int  // what they are of
	fill  func() // nil once that is done
}

// pack has sweeps over columns, which run the same code, read the narrow rows of destinations
// from where they lie side by side: an edge reads all of them, and edges come in no order of
// destinations.
func (b *Backward[T]) pack(sweeps ...*Sweep[T]) error {
	s, r := sweeps[0], b.run
	var from []rows[T]
	all := &packed[T]{}
	for _, st := range s.steps {
		if st.op != opLoad || s.code.p.side(st.slot) != V || st.width == 0 || st.width*view.Size[T]() > packMost {
			continue
		}
		x := s.loads[st.slot]
		if x.data == nil {
			continue
		}
		all.slots, from, all.rows.stride = append(all.slots, st.slot), append(from, x), all.rows.stride+st.width
	}
	width := all.rows.stride
	if len(all.slots) < 2 || width*view.Size[T]() > packWidest {
		return nil
	}
	made, err := r.make(r.Rel.NumDst * width)
	if err != nil {
		return err
	}
	all.rows.data = made
	all.fill = func() {
		r.rowwise(func(i int) {
			to := made[i*width:]
			for _, x := range from {
				copy(to[:x.stride], x.data[i*x.stride:])
				to = to[x.stride:]
			}
		})
		all.fill = nil
	}
	for _, s := range sweeps {
		s.packed = all
		offset := 0
		for k, slot := range all.slots {
			s.loads[slot] = rows[T]{data: tail(made, offset), stride: width}
			offset += from[k].stride
		}
	}
	return nil
}
