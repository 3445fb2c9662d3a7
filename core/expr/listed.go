package expr

// ColumnsOf sweeps over the edges out of the columns listed, in that order.
func (s *Sweep[T]) ColumnsOf(list []int32) {
	ptr := s.relation().ColPtr.Data
	before := make([]int32, len(list)+1)
	for i, j := range list {
		before[i+1] = before[i] + ptr[j+1] - ptr[j]
	}
	s.over(before, 0, len(list), true, func(at int) (int32, int64, int64) {
		j := list[at]
		return j, int64(ptr[j]), int64(ptr[j+1])
	})
}
