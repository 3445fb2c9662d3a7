package sar

import (
	"math"
	"os"
	"runtime"
	"slices"
	"sort"
	"sync/atomic"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/internal/must"
	"sar/core/internal/parallel"
	"sar/core/internal/view"
	"sar/core/mem"
	"sar/core/store/disk"
	"sar/core/store/npy"
)

// finish makes relation i of part p out of the sources of its edges by destination.
func (s *writer) finish(p, i int) {
	r := s.rels[i]
	ptr := scratch[int32](s.node.count[p][r.dst] + 1)
	defer ptr.Free()
	for v, n := range r.slots.Data[s.base[r.dst][p]:s.base[r.dst][p+1]] {
		ptr.Data[v+1] = ptr.Data[v] + int32(n)
	}
	columns := s.numberColumns(p, i)
	s.cover(p, i, ptr.Data)
	colPtr := scratch[int32](columns + 1)
	defer colPtr.Free()
	s.sortRows(p, i, ptr.Data, colPtr.Data)
	for j := range columns {
		colPtr.Data[j+1] += colPtr.Data[j]
	}
	s.putArray(p, i, colPtrArray, colPtr.Data)
	s.transpose(r.arrays[p], ptr.Data, colPtr.Data)
	if r.sorted {
		s.writeKey(p, i, columns)
	}
	if r.src == r.dst {
		s.writeOrder(p, i, ptr.Data)
	}
}

// numberColumns numbers the own rows and the boundary rows of a relation, and writes where
// the latter are at their owners.
func (s *writer) numberColumns(p, i int) (columns int64) {
	r, parts := s.rels[i], s.to.Parts
	base := s.base[r.src]
	lo, hi := base[p], base[p+1]
	s.halo.Clear()
	must.Do(r.arrays[p][colArray].Each(func(v []int32) {
		for _, x := range v {
			if id := int64(uint32(x)); id < lo || id >= hi {
				s.halo.Add(id)
			}
		}
	}))
	columns = hi - lo
	boundary := s.halo.Seal()
	if columns+boundary > math.MaxInt32 {
		must.Do(argument.Errorf("part %d reads %d nodes; at most %d are supported: use more parts", p, columns+boundary,
			math.MaxInt32))
	}
	file := s.newArray(p, i, haloRowsArray, dtypes.Int32, boundary)
	for id := lo; id < hi; id++ {
		s.column.Data[id] = int32(id - lo)
	}
	ends := []int64{columns}
	var rows []int32 // of one peer
	for q := 1; q < parts; q++ {
		owner := (p - q + parts) % parts
		rows = rows[:0]
		for id := range s.halo.In(base[owner], base[owner+1]) {
			s.column.Data[id] = int32(columns)
			rows = append(rows, int32(id-base[owner]))
			columns++
		}
		ends = append(ends, columns)
		must.Do(file.Write(ends[q-1]-ends[0], view.Bytes(rows)))
	}
	r.columns = append(r.columns, ends)
	return columns
}

// sortRows replaces the sources of a part by columns, ascending in each row, and counts the
// edges of every column.
func (s *writer) sortRows(p, i int, ptr, colPtr []int32) {
	r := s.rels[i]
	col, edge := r.arrays[p][colArray], r.arrays[p][rowEdgeArray]
	inRows(ptr, func(row0, row1 int) {
		first := ptr[row0]
		columns := make([]int32, ptr[row1]-first)
		must.Do(col.Read(int64(first), columns))
		var positions []int32
		if !r.sorted {
			positions = make([]int32, len(columns))
			must.Do(edge.Read(int64(first), positions))
		}
		for k, id := range columns {
			j := s.column.Data[uint32(id)]
			columns[k] = j
			atomic.AddInt32(&colPtr[j+1], 1)
		}
		var pairs []uint64
		for row := row0; row < row1; row++ {
			run := columns[ptr[row]-first : ptr[row+1]-first]
			if r.sorted {
				slices.Sort(run)
				continue
			}
			at := positions[ptr[row]-first : ptr[row+1]-first]
			pairs = pairs[:0]
			for k, j := range run {
				pairs = append(pairs, uint64(j)<<32|uint64(at[k]))
			}
			slices.Sort(pairs)
			for k, x := range pairs {
				run[k], at[k] = int32(x>>32), int32(x)
			}
		}
		if !r.sorted {
			must.Do(edge.Write(int64(first), view.Bytes(positions)))
		}
		must.Do(col.Write(int64(first), view.Bytes(columns)))
	})
}

// inRows calls do for runs of rows of some edges each, from a few goroutines.
func inRows(ptr []int32, do func(row0, row1 int)) {
	const edges = 1 << 18
	starts := []int{0}
	for row := 0; row < len(ptr)-1; {
		end := sort.Search(len(ptr)-1-row, func(k int) bool { return ptr[row+k+1]-ptr[row] > edges })
		row += max(1, end)
		starts = append(starts, row)
	}
	must.Do(parallel.Each(runtime.GOMAXPROCS(0), len(starts)-1, func(_, k int) (err error) {
		defer must.Return(&err)
		do(starts[k], starts[k+1])
		return nil
	}))
}

// transpose writes the destination rows of every column, ascending: as many columns at a
// time as memory holds the edges of.
func (s *writer) transpose(files map[string]npy.Output, ptr, colPtr []int32) {
	columns := len(colPtr) - 1
	for c0 := 0; c0 < columns; {
		room := s.forEdges(partMemory(int64(len(ptr)), int64(columns))) / 4
		c1 := c0 + max(1, sort.Search(columns-c0, func(k int) bool { return int64(colPtr[c0+k+1]-colPtr[c0]) > room }))
		transposeColumns(files, ptr, colPtr[c0:c1+1], int32(c0))
		c0 = c1
	}
}

func transposeColumns(files map[string]npy.Output, ptr, colPtr []int32, first int32) {
	n := int32(len(colPtr) - 1)
	begin := colPtr[0]
	rows := scratch[int32](int64(colPtr[n] - begin))
	defer rows.Free()
	next := scratch[int32](int64(n))
	defer next.Free()
	for j := range n {
		next.Data[j] = colPtr[j] - begin
	}
	eachEdge(files, ptr, func(j, row int32) {
		if j -= first; uint32(j) < uint32(n) {
			rows.Data[next.Data[j]] = row
			next.Data[j]++
		}
	})
	must.Do(files[rowArray].Write(int64(begin), view.Bytes(rows.Data)))
}

// eachEdge calls visit with what colArray has of every edge, and its row.
func eachEdge(files map[string]npy.Output, ptr []int32, visit func(col, row int32)) {
	row, k := int32(0), int32(0)
	must.Do(files[colArray].Each(func(v []int32) {
		for _, col := range v {
			for k >= ptr[row+1] {
				row++
			}
			k++
			visit(col, row)
		}
	}))
}

// writeKey numbers the columns by the original ids of their nodes.
func (s *writer) writeKey(p, i int, columns int64) {
	r := s.rels[i]
	lo, hi := s.base[r.src][p], s.base[r.src][p+1]
	key := scratch[int32](columns)
	defer key.Free()
	rank := int32(0)
	for _, x := range s.id.Data[s.node.first[r.src]:s.node.first[r.src+1]] {
		if id := int64(x); id >= lo && id < hi || s.halo.Has(id) {
			key.Data[s.column.Data[id]] = rank
			rank++
		}
	}
	s.putArray(p, i, keyArray, key.Data)
}

// writeOrder writes the order in which rows are best computed, if there is one.
func (s *writer) writeOrder(p, i int, ptr []int32) {
	col := s.rels[i].arrays[p][colArray]
	f := must.Get(os.Open(col.Path))
	defer f.Close()
	mapped := must.Get(mem.Map[int32](mem.Scratch, f, col.Offset, int(col.Len)))
	defer mapped.Free()
	order := must.Get(graph.Locality(ptr, mapped.Data))
	defer order.Free()
	if len(order.Data) > 0 {
		s.putArray(p, i, orderArray, order.Data)
	}
}

// writeEdgeStarts writes the original id of the first edge of every row, where edges are
// sorted.
func (s *writer) writeEdgeStarts(i int) {
	r := s.rels[i]
	starts := disk.TensorInfo{Name: edgeStartArray, DType: dtypes.Int32, Shape: []int64{0}}
	if s.edge.list[i].Rows > math.MaxInt32 {
		starts.DType = dtypes.Int64
	}
	w := s.nodeRows(r.dst, r.dir, func(p int) *disk.Object[npy.Described] { return &s.relation(p, i).Arrays })
	w.spread(starts, edgeStartArray, func(_ int64, to []int32, out []*disk.Appender) {
		var start int64
		first := s.node.first[r.dst]
		for k, p := range to {
			b := view.Bytes([]int64{start})
			out[p].Write(b[:starts.DType.Size()])
			start += int64(r.slots.Data[s.id.Data[first+int64(k)]])
		}
	})
}
