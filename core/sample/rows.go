package sample

// copyRows copies rows of size bytes: row from[i] of src becomes row to[i] of
// dst. A list that is nil stands for 0, 1, 2, …. In parallel.
func (s *Sampler) copyRows(dst, src []byte, size int, to, from []int32) {
	n := len(to)
	if to == nil {
		n = len(from)
	}
	if size == 0 {
		return
	}
	s.tasks(n, func(lo, hi int) {
		var touched byte
		for ; lo < hi; lo += ahead {
			end := min(lo+ahead, hi)
			if from != nil && size <= touchBytes {
				touched += touchRows(src, size, from[lo:end])
			}
			for i := lo; i < end; i++ {
				t, f := i, i
				if to != nil {
					t = int(to[i])
				}
				if from != nil {
					f = int(from[i])
				}
				copy(dst[t*size:(t+1)*size], src[f*size:(f+1)*size])
			}
		}
		keep(touched)
	})
}

// touchBytes is the largest row of which a copy is too short for the processor
// to have asked for the rest of it in time.
const touchBytes = 1 << 10

// touchRows asks for the lines of some rows together (see drawing.touch).
func touchRows(src []byte, size int, rows []int32) (sum byte) {
	for _, row := range rows {
		begin := int(row) * size
		for k := begin; k < begin+size; k += lineBytes {
			sum += src[k]
		}
	}
	return sum
}

// keep makes the compiler believe that a value is used.
//
//go:noinline
func keep(byte) {}
