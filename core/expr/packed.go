package expr

import (
	"fmt"
	"strings"
)

// packMost is the widest row that pack takes, packWidest the widest that it makes, in bytes.
const packMost, packWidest = 64, 256

// packed is narrow rows of destinations side by side. They are filled in when a sweep begins,
// since sweeps before it may compute some of them.
type packed[T Float] struct {
	rows rows[T]
	fill func() // nil once that is done
}

// pack has a sweep over columns read the narrow rows of destinations from where they lie side
// by side: an edge reads all of them, and edges come in no order of destinations.
func (s *Sweep[T]) pack() error {
	var slots []int
	var key strings.Builder
	width := 0
	for _, st := range s.steps {
		if st.op != opLoad || s.code.p.side(st.slot) != V || st.width == 0 || st.width*sizeOf[T]() > packMost || s.loads[st.slot].data == nil {
			continue
		}
		slots, width = append(slots, st.slot), width+st.width
		fmt.Fprint(&key, st.slot, " ")
	}
	if len(slots) < 2 || width*sizeOf[T]() > packWidest {
		return nil
	}
	r := s.run
	all, ok := r.packed[key.String()]
	if !ok {
		made, err := r.make(r.Rel.NumDst * width)
		if err != nil {
			return err
		}
		all = &packed[T]{rows: rows[T]{data: made, stride: width}}
		var from []rows[T]
		for _, slot := range slots {
			from = append(from, s.loads[slot])
		}
		all.fill = func() {
			r.rowwise(func(i int) {
				to := all.rows.data[i*width:]
				for _, x := range from {
					copy(to[:x.stride], x.data[i*x.stride:])
					to = to[x.stride:]
				}
			})
			all.fill = nil
		}
		if r.packed == nil {
			r.packed = map[string]*packed[T]{}
		}
		r.packed[key.String()] = all
	}
	s.packed = all
	offset := 0
	for _, slot := range slots {
		w := s.loads[slot].stride
		s.loads[slot] = rows[T]{data: tail(all.rows.data, offset), stride: width}
		offset += w
	}
	return nil
}
