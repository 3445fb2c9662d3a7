package sample

// copyRows copies rows of size bytes: row from[i] of src becomes row to[i] of
// dst. A list that is nil stands for 0, 1, 2, …. In parallel.
func (s *Sampler) copyRows(dst, src []byte, size int, to, from []int32) {
	n := len(to)
	if to == nil {
		n = len(from)
	}
	s.tasks(n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			t, f := i, i
			if to != nil {
				t = int(to[i])
			}
			if from != nil {
				f = int(from[i])
			}
			copy(dst[t*size:(t+1)*size], src[f*size:(f+1)*size])
		}
	})
}
