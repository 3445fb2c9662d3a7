package expr

// ColumnsOf sweeps over the edges out of the columns listed, in that order.
func (s *Sweep[T]) ColumnsOf(list []int32) {
	ptr := s.relation().ColPtr.Data
	before := make([]int32, len(list)+1)
	for i, j := range list {
		before[i+1] = before[i] + ptr[j+1] - ptr[j]
	}
	cuts := s.parts(before, 0, len(list))
	s.each(max(0, len(cuts)-1), func(t *task[T], part int) {
		for _, j := range list[cuts[part]:cuts[part+1]] {
			t.column(j, int64(ptr[j]), int64(ptr[j+1]))
		}
	})
}
