package sar

import (
	"cmp"

	"sar/core/graph"
	"sar/core/internal/view"
	"sar/core/mem"
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
func (s *writer) cover(p, i int, ptr []int32) error {
	r := s.rels[i]
	c := &coverer{s, p, i, ptr, r.columns[p], make([]graph.Travels, s.to.Parts)}
	own, columns := c.ends[0], c.ends[len(c.ends)-1]
	next, err := mem.Make[int32](mem.Scratch, int(columns-own)+1) // first the edges of each column
	if err != nil {
		return err
	}
	defer next.Free()
	if err := c.edges(own, columns, func(j, _ int32) { next.Data[j+1]++ }); err != nil {
		return err
	}
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
			err = c.peers(first, end, next.Data[c.ends[first-1]-own:c.ends[end-1]-own+1], edges)
		} else {
			for price := range graph.NumPrices {
				c.travels[q].Leading[price] = int32(c.ends[q] - c.ends[q-1])
			}
			q++
		}
		if err != nil {
			return err
		}
	}
	r.travels = append(r.travels, c.travels)
	return nil
}

// edges calls visit with the column, less begin, and the row of every edge from columns [begin, end).
func (c *coverer) edges(begin, end int64, visit func(column, row int32)) error {
	return eachEdge(c.rels[c.relation].arrays[c.part], c.ptr, func(id, row int32) {
		if j := int64(c.column.Data[uint32(id)]); j >= begin && j < end {
			visit(int32(j-begin), row)
		}
	})
}

// peers arranges the columns of rounds [q0, q1), whose edges are so many. counts are those of each column, behind one
// number of no meaning.
func (c *coverer) peers(q0, q1 int, counts []int32, edges int64) error {
	counts[0] = 0
	begin, n := c.ends[q0-1], len(counts)-1
	var rows, ptr, to mem.Array[int32]
	defer func() { rows.Free(); ptr.Free(); to.Free() }()
	err := cmp.Or(rows.Make(mem.Scratch, int(edges)), ptr.Make(mem.Scratch, n+1), to.Make(mem.Scratch, n))
	if err != nil {
		return err
	}
	for j, k := range counts[1:] {
		ptr.Data[j+1] = ptr.Data[j] + k
	}
	copy(counts, ptr.Data)
	err = c.edges(begin, c.ends[q1-1], func(j, row int32) {
		rows.Data[counts[j]] = row
		counts[j]++
	})
	if err != nil {
		return err
	}
	finder, err := graph.NewCoverer(len(c.ptr) - 1)
	if err != nil {
		return err
	}
	defer finder.Free()
	for q := q0; q < q1; q++ {
		first, end := c.ends[q-1]-begin, c.ends[q]-begin
		c.travels[q] = finder.Arrange(ptr.Data[first:end+1], rows.Data, to.Data[first:end])
		if err := c.move(q, to.Data[first:end]); err != nil {
			return err
		}
	}
	return nil
}

// move puts the columns of a round to their places.
func (c *coverer) move(q int, to []int32) error {
	r, parts := c.rels[c.relation], c.to.Parts
	file, at := r.arrays[c.part][haloRowsArray], c.ends[q-1]-c.ends[0]
	rows, moved := make([]int32, len(to)), make([]int32, len(to))
	if err := file.Read(at, rows); err != nil {
		return err
	}
	owner := c.base[r.src][(c.part-q+parts)%parts]
	for i, row := range rows {
		moved[to[i]] = row
		c.column.Data[owner+int64(row)] = int32(c.ends[q-1]) + to[i]
	}
	return file.Write(at, view.Bytes(moved))
}
