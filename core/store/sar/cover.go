package sar

import (
	"sar/core/graph"
	"sar/core/internal/must"
	"sar/core/internal/view"
)

// coverer arranges the boundary columns of a part as graph.Build does.
type coverer struct {
	*writer
	part, relation int
	ptr            []int32 // of rows
	ends           []int64 // of columns, by round
	travels        []graph.Travels
}

// cover arranges the columns of as many peers at a time as memory holds the edges of. All rows of a peer whose edges it
// does not hold travel.
func (s *writer) cover(p, i int, ptr []int32) {
	r := s.rels[i]
	c := &coverer{s, p, i, ptr, r.columns[p], make([]graph.Travels, s.to.Parts)}
	own, columns := c.ends[0], c.ends[len(c.ends)-1]
	next := scratch[int32](columns - own + 1) // first the edges of each column
	defer next.Free()
	c.edges(own, columns, func(j, _ int32) { next.Data[j+1]++ })
	room := s.forEdges(partMemory(int64(len(ptr)), columns)) / 4
	for q := 1; q < s.to.Parts; {
		first, edges, end := q, int64(0), q
		for ; end < s.to.Parts; end++ {
			of := int64(0)
			for _, n := range next.Data[c.ends[end-1]-own+1 : c.ends[end]-own+1] {
				of += int64(n)
			}
			if edges+of > room {
				break
			}
			edges += of
		}
		if q = end; end > first {
			c.peers(first, end, next.Data[c.ends[first-1]-own:c.ends[end-1]-own+1], edges)
		} else {
			for price := range graph.NumPrices {
				c.travels[q].Leading[price] = int32(c.ends[q] - c.ends[q-1])
			}
			q++
		}
	}
	r.travels = append(r.travels, c.travels)
}

// edges calls visit with the column, less begin, and the row of every edge from columns [begin, end).
func (c *coverer) edges(begin, end int64, visit func(column, row int32)) {
	eachEdge(c.rels[c.relation].arrays[c.part], c.ptr, func(id, row int32) {
		if j := int64(c.column.Data[uint32(id)]); j >= begin && j < end {
			visit(int32(j-begin), row)
		}
	})
}

// peers arranges the columns of rounds [q0, q1), whose edges are so many. counts are those of each column, behind one
// number of no meaning.
func (c *coverer) peers(q0, q1 int, counts []int32, edges int64) {
	counts[0] = 0
	begin, n := c.ends[q0-1], len(counts)-1
	rows := scratch[int32](edges)
	defer rows.Free()
	ptr := scratch[int32](int64(n) + 1)
	defer ptr.Free()
	to := scratch[int32](int64(n))
	defer to.Free()
	for j, k := range counts[1:] {
		ptr.Data[j+1] = ptr.Data[j] + k
	}
	copy(counts, ptr.Data)
	c.edges(begin, c.ends[q1-1], func(j, row int32) {
		rows.Data[counts[j]] = row
		counts[j]++
	})
	finder := must.Get(graph.NewCoverer(len(c.ptr) - 1))
	defer finder.Free()
	for q := q0; q < q1; q++ {
		first, end := c.ends[q-1]-begin, c.ends[q]-begin
		c.travels[q] = finder.Arrange(ptr.Data[first:end+1], rows.Data, to.Data[first:end])
		c.move(q, to.Data[first:end])
	}
}

// move puts the columns of a round to their places.
func (c *coverer) move(q int, to []int32) {
	r, parts := c.rels[c.relation], c.to.Parts
	file, at := r.arrays[c.part][haloRowsArray], c.ends[q-1]-c.ends[0]
	rows, moved := make([]int32, len(to)), make([]int32, len(to))
	must.Do(file.Read(at, rows))
	owner := c.base[r.src][(c.part-q+parts)%parts]
	for i, row := range rows {
		moved[to[i]] = row
		c.column.Data[owner+int64(row)] = int32(c.ends[q-1]) + to[i]
	}
	must.Do(file.Write(at, view.Bytes(moved)))
}
