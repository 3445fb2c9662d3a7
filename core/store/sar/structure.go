package sar

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"sar/core/graph"
	"sar/core/internal/must"
	"sar/core/internal/view"
	"sar/core/mem"
	"sar/core/store/disk"
)

// storedArrays says which array of a file is which of graph.Stored.
var storedArrays = []struct {
	name, field string
	in          func(*graph.Stored) *mem.Array[int32]
}{
	{rowPtrArray, "RowPtr", func(s *graph.Stored) *mem.Array[int32] { return &s.RowPtr }},
	{colArray, "Col", func(s *graph.Stored) *mem.Array[int32] { return &s.Col }},
	{colPtrArray, "ColPtr", func(s *graph.Stored) *mem.Array[int32] { return &s.ColPtr }},
	{rowArray, "Row", func(s *graph.Stored) *mem.Array[int32] { return &s.Row }},
	{orderArray, "Order", func(s *graph.Stored) *mem.Array[int32] { return &s.Order }},
	{rowEdgeArray, "RowEdge", func(s *graph.Stored) *mem.Array[int32] { return &s.RowEdge }},
	{keyArray, "Key", func(s *graph.Stored) *mem.Array[int32] { return &s.Key }},
}

// structure maps the structure of a relation and checks it.
func (s *Part) structure(relation, threads int) (made *graph.Structure, err error) {
	r := &s.relations[relation]
	var arrays graph.Stored
	mapped := false
	defer func() {
		if !mapped {
			for _, of := range storedArrays {
				of.in(&arrays).Free()
			}
		}
	}()
	defer must.Return(&err)
	for _, of := range storedArrays {
		if a := r.arrays[of.name]; a != nil {
			must.Do(a.Verify())
			*of.in(&arrays) = must.Get(a.MapInt32s(0, a.Len))
		}
	}
	arrays.HaloEnds, arrays.Travels, mapped = r.Columns, r.Travels, true
	made, err = graph.NewStructure(s.book, s.part, relation, arrays, threads)
	return made, s.misfit(r, err)
}

// misfit says in which file an array is not what it has to be.
func (s *Part) misfit(r *relation, err error) error {
	var m *graph.MisfitError
	if !errors.As(err, &m) {
		return err
	}
	for _, of := range storedArrays {
		if a := r.arrays[of.name]; of.field == m.Array && a != nil {
			return a.File.Bad(a.Offset+4*m.At, fmt.Sprintf("%s: %s", a.Name, m.Want), "%s", m.Got)
		}
	}
	return s.Bad(m.Array+": "+m.Want, "%s", m.Got)
}

// relation maps a relation and makes what the peers read of it.
func (s *Part) relation(i, threads int) (rel *graph.Relation, err error) {
	made, err := s.structure(i, threads)
	if err != nil {
		return nil, err
	}
	rel = &graph.Relation{Structure: made, Send: make([]mem.Array[int32], s.book.Parts)}
	defer func() {
		if err != nil {
			rel.Free()
		}
	}()
	defer must.Return(&err)
	for p := range s.book.Parts {
		rel.NumEdgesGlobal += s.book.NumEdges(i, p)
	}
	r := &s.relations[i]
	send := r.arrays[sendArray]
	must.Do(send.Verify())
	read := make([]int32, made.NumSrc) // the last peer that a row was sent to
	for q := 1; q < s.book.Parts; q++ {
		first := r.Sends[q-1]
		rel.Send[q] = must.Get(send.MapInt32s(first, r.Sends[q]-first))
		for k, row := range rel.Send[q].Data {
			if row < 0 || int(row) >= made.NumSrc || read[row] == int32(q) {
				must.Do(send.File.Bad(send.Offset+4*(first+int64(k)),
					fmt.Sprintf("%s: rows from 0 to %d, each once for a peer", send.Name, made.NumSrc-1), "%d", row))
			}
			read[row] = int32(q)
		}
	}
	rel.OutDegree = must.Get(mem.Make[int64](mem.Structure, made.NumSrc))
	out := r.arrays[outDegreeArray]
	must.Do(out.Ints(0, rel.OutDegree.Data))
	for j, n := range rel.OutDegree.Data {
		if here := int64(made.ColPtr.Data[j+1] - made.ColPtr.Data[j]); n < here {
			must.Do(out.File.Bad(out.Offset+int64(j*out.DType.Size()),
				fmt.Sprintf("%s: at least the %d edges of this part", out.Name, here), "%d", n))
		}
	}
	return rel, nil
}

// Relations maps all relations.
func (s *Part) Relations(threads int) (rels []*graph.Relation, err error) {
	for i := range s.relations {
		rel, err := s.relation(i, threads)
		if err != nil {
			for _, r := range rels {
				r.Free()
			}
			return nil, err
		}
		rels = append(rels, rel)
	}
	return rels, nil
}

// haloIDs lists the homogenized ids of the nodes that the part reads of its peers.
func (s *Part) haloIDs() ([]int64, error) {
	if s.Halo != nil {
		return s.Halo, nil
	}
	halo := []int64{}
	for i := range s.relations {
		err := s.haloRows(i, func(_ int64, id int64) { halo = append(halo, id) })
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(halo)
	halo = slices.Compact(halo)
	if int64(len(halo)) != s.numHalo {
		return nil, s.Bad(fmt.Sprintf("%d nodes that are read of other parts", s.numHalo), "%d", len(halo))
	}
	s.Halo = halo
	return halo, nil
}

// haloRows calls visit with every boundary column of a relation and the id of its node.
func (s *Part) haloRows(relation int, visit func(column, id int64)) error {
	r, parts := &s.relations[relation], s.book.Parts
	a := r.arrays[haloRowsArray]
	rows := make([]int64, a.Len)
	if err := a.Ints(0, rows); err != nil {
		return err
	}
	src, _ := s.ends(relation)
	own := r.Columns[0]
	for q := 1; q < parts; q++ {
		owner := (s.part - q + parts) % parts
		start, n := s.book.NodeStart[src][owner], s.book.NumNodes(src, owner)
		for j := r.Columns[q-1]; j < r.Columns[q]; j++ {
			row := rows[j-own]
			// Groups of columns by the price at which rows travel ascend, so a row may come again in another group only.
			if row < 0 || row >= n || j > r.Columns[q-1] && row <= rows[j-own-1] && !r.leads(q, j-r.Columns[q-1]) {
				return a.File.Bad(a.Offset+4*(j-own), fmt.Sprintf("%s: rows of part %d that ascend, below %d", a.Name, owner, n),
					"%d", row)
			}
			visit(j, start+row)
		}
	}
	return nil
}

// leads tells whether a new group of columns begins at a place of a round.
func (r *relation) leads(q int, place int64) bool {
	return r.Travels != nil && slices.Contains(r.Travels[q].Leading[:], int32(place))
}

func (s *Part) NumNodes() int64 {
	start, end := s.book.Nodes(s.part)
	return end - start + s.numHalo
}

func (s *Part) NumEdges() (n int64) {
	start, end := s.book.Edges(s.part)
	return end - start
}

// NodeIDs implements the edges of a partition.
func (s *Part) NodeIDs(ids []int64) error {
	halo, err := s.haloIDs()
	if err != nil {
		return err
	}
	start, end := s.book.Nodes(s.part)
	for id := start; id < end; id++ {
		ids[id-start] = id
	}
	copy(ids[end-start:], halo)
	return nil
}

// Batches implements the edges of a partition: one relation after the other, row by row.
func (s *Part) Batches(yield func(graph.EdgeBatch) error) error {
	var inner int64
	first := make([]int64, len(s.book.NodeTypes)) // local node of the first own node of each type
	for t := range first {
		first[t] = inner
		inner += s.book.NumNodes(t, s.part)
	}
	halo, err := s.haloIDs()
	if err != nil {
		return err
	}
	for i := range s.relations {
		if err := s.relationBatches(i, first, inner, halo, yield); err != nil {
			return err
		}
	}
	return nil
}

// relationBatches gives the edges of a relation. first are the local nodes of the first rows of each type, and inner is
// that of the first of the halo.
func (s *Part) relationBatches(relation int, first []int64, inner int64, halo []int64,
	yield func(graph.EdgeBatch) error) (err error) {
	defer must.Return(&err)
	src, dst := s.ends(relation)
	r, row := &s.relations[relation], first[dst]
	local := scratch[int64](r.Columns[len(r.Columns)-1]) // node of each column
	defer local.Free()
	for j := range r.Columns[0] {
		local.Data[j] = first[src] + j
	}
	must.Do(s.haloRows(relation, func(column, id int64) {
		k, _ := slices.BinarySearch(halo, id)
		local.Data[column] = inner + int64(k)
	}))
	made := must.Get(s.structure(relation, 1))
	defer made.Free()
	room := int(min(disk.Batch, made.NumEdges))
	b := graph.EdgeBatch{Src: make([]int64, 0, room), Dst: make([]int64, 0, room), ID: make([]int64, 0, room)}
	var types []int32
	if len(s.relations) > 1 {
		types = slices.Repeat([]int32{int32(relation)}, room)
	}
	start := s.book.EdgeStart[relation][s.part]
	var positions []int32
	left := made.NumEdges
	for i := range made.NumDst {
		begin, end := made.RowPtr.Data[i], made.RowPtr.Data[i+1]
		positions = slices.Grow(positions[:0], int(end-begin))[:end-begin]
		made.Positions(i, positions)
		for k, j := range made.Col.Data[begin:end] {
			b.Src, b.Dst = append(b.Src, local.Data[j]), append(b.Dst, row+int64(i))
			b.ID = append(b.ID, start+int64(positions[k]))
			if left--; len(b.Src) < room && left > 0 {
				continue
			}
			if types != nil {
				b.Type = types[:len(b.Src)]
			}
			must.Do(yield(b))
			b.Src, b.Dst, b.ID = b.Src[:0], b.Dst[:0], b.ID[:0]
		}
	}
	return nil
}

// origIDs fills dst with the original ids, int64, of the edges from the one numbered first on,
// where they follow from the destinations.
func (r *relation) origIDs(first int64, dst []byte) error {
	ptr, start := r.arrays[rowPtrArray], r.arrays[edgeStartArray]
	out := view.Numbers[int64](dst)
	var err error
	row := int64(sort.Search(int(start.Len), func(i int) bool { // the one that has edge first
		var end [1]int64
		err = errors.Join(err, ptr.Ints(int64(i)+1, end[:]))
		return end[0] > first
	}))
	bounds, starts := make([]int64, min(disk.Batch, start.Len)+1), make([]int64, min(disk.Batch, start.Len))
	at, end := first, first+int64(len(out))
	for ; err == nil && at < end; row += int64(len(starts)) {
		if row >= start.Len {
			return ptr.File.Bad(ptr.Offset, fmt.Sprintf("row pointers that reach the %d edges", r.Edges), "%d", at)
		}
		starts = starts[:min(int64(len(starts)), start.Len-row)]
		bounds = bounds[:len(starts)+1]
		if err = ptr.Ints(row, bounds); err == nil {
			err = start.Ints(row, starts)
		}
		for i, id := range starts {
			if at == end {
				break
			}
			if bounds[i] > at || bounds[i+1] < bounds[i] {
				return ptr.File.Bad(ptr.Offset+4*(row+int64(i)), "row pointers that ascend", "%d and %d", bounds[i], bounds[i+1])
			}
			for ; at < min(bounds[i+1], end); at++ {
				out[at-first] = id + at - bounds[i]
			}
		}
	}
	return err
}
