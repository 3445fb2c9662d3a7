package sample

import (
	"slices"

	"sar/core/graph"
)

// reply is edges drawn for the rows of a request: relation by relation, in
// each the rows of its destination type in the order of the request.
type reply struct {
	counts []uint32 // edges per (relation, row)
	first  []int    // [relation]: its first entry in counts; one more at the end
	at     []int64  // edges before each entry of counts, and the sum
	id     []int32  // own edges that were drawn, where their columns are wanted
}

// entries are the places in counts of relation i; at has one more.
func (a *reply) entries(i int) (from, to int) { return a.first[i], a.first[i+1] }

// edges is the range of edges of relation i.
func (a *reply) edges(i int) (from, to int) {
	return int(a.at[a.first[i]]), int(a.at[a.first[i+1]])
}

// total is the number of edges.
func (a *reply) total() int { return int(a.at[len(a.counts)]) }

// layout counts the rows of every relation.
func (s *Sampler) layout(a *reply, rows [][]int32) {
	a.first = append(a.first[:0], 0)
	for _, rel := range s.g.Rels {
		a.first = append(a.first, a.first[len(a.first)-1]+len(rows[rel.DstType]))
	}
	a.counts = resize(a.counts, a.first[len(a.first)-1])
}

// sum fills at from counts.
func (a *reply) sum() {
	a.at = resize(a.at, len(a.counts)+1)
	var n int64
	for i, c := range a.counts {
		a.at[i] = n
		n += int64(c)
	}
	a.at[len(a.counts)] = n
}

func resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n, n+n/4)
	}
	return x[:n]
}

// count fills counts and at for the rows of a request.
func (s *Sampler) count(layer int, rows [][]int32, a *reply) {
	s.layout(a, rows)
	for i, rel := range s.g.Rels {
		from, to := a.entries(i)
		counts, rows := a.counts[from:to], rows[rel.DstType]
		s.tasks(len(rows), func(lo, hi int) {
			for k, row := range rows[lo:hi] {
				counts[lo+k] = uint32(s.countRow(layer, i, rel, row))
			}
		})
	}
	a.sum()
}

func (s *Sampler) countRow(layer, i int, rel *graph.Relation, row int32) int {
	have := int(rel.RowPtr.Data[row+1] - rel.RowPtr.Data[row])
	if s.cfg.Weights != nil {
		have = int(s.weights[i].positive.Data[row])
	}
	fanout := s.cfg.Fanouts[layer][i]
	if have == 0 || fanout == All || fanout >= have && !s.cfg.Replace {
		return have
	}
	return fanout
}

// tasks splits n rows among threads.
func (s *Sampler) tasks(n int, f func(lo, hi int)) {
	const rows = 2048 // that one thread takes at a time
	s.pool.Run((n+rows-1)/rows, func(task int) { f(task*rows, min((task+1)*rows, n)) })
}

// runs finds the places of edges [first, first+n) of the reply of rank q, as
// far as they are of relation i: count edges at place at of the range go to
// place to of the block. Edges of one row lie side by side in both.
func (s *Sampler) runs(q, i int, indptr []int64, first, n int, f func(to, at, count int)) {
	a, place := &s.got[q], s.ask[q].at[s.g.Rels[i].DstType]
	lo, hi := a.edges(i)
	lo, hi = max(lo, first), min(hi, first+n)
	if lo >= hi {
		return
	}
	from, to := a.entries(i)
	at := a.at[from : to+1]
	for row := after(at, int64(lo)); lo < hi; row++ {
		skip := lo - int(at[row])
		count := min(int(at[row+1])-lo, hi-lo)
		f(int(indptr[place[row]])+skip, lo-first, count)
		lo += count
	}
}

// after is the row that holds edge e: at[row] <= e < at[row+1].
func after(at []int64, e int64) int {
	i, _ := slices.BinarySearch(at, e+1)
	return i - 1
}
