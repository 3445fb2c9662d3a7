package exchange

import (
	"fmt"
	"slices"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/internal/view"
	"sar/core/kernel"
)

// Field is one tensor of a Stream: own rows that readers of the relation get.
type Field struct {
	Data     []byte // [N, Bytes]
	N, Bytes int    // rows, NumSrc of them, and the size of one
	// Float is the size of the numbers (4 or 8) of a field whose gradient returns
	// to the owner, 0 for others. The same on every rank.
	Float int
	// Grad is added to; nil where this rank does not want it.
	Grad []byte // [N, Bytes]
}

// Block is some in-edges of own rows whose sources are rows of one peer, or the
// worker's own.
type Block struct {
	Peer int
	N    int      // rows
	Rows [][]byte // by field, [N, Bytes]
	// Grad is what to add gradients to, by field: zero before the first block of
	// these rows. Nil where there is none.
	Grad [][]byte
	// Edges is how many places of Stream.Src, Dst and Edge are filled.
	Edges int
}

// Stream visits every in-edge of own rows once: those from own rows, then those
// from each peer's, chunk by chunk as they arrive and in the order of rounds.
// Where a field has a gradient, what the visits add for a chunk returns to the owner.
type Stream struct {
	Op     *comm.Op
	Rel    *graph.Relation
	Pool   *kernel.Pool
	Flags  uint16
	Fields []Field
	// Visit gets blocks of at most len(Src) edges. For edge k of a block, Src[k]
	// is the row among the block's, Dst[k] the own row, which ascends within a
	// block, and Edge[k] the position in the users' order; no Edge, no positions.
	Src, Dst, Edge []int64
	Visit          func(b *Block) error

	offsets, backOffsets []int // of fields in a row
	cursor               *cursor
	block                Block
}

// fieldAlign keeps the fields of a chunk aligned for any type.
const fieldAlign = 8

// layout returns where each field of a row begins, and the size of a row. In a
// chunk of n rows field f begins at n times its offset and is contiguous.
func layout(sizes []int) ([]int, int) {
	offsets, at := make([]int, len(sizes)), 0
	for f, n := range sizes {
		offsets[f] = at
		at += (n + fieldAlign - 1) &^ (fieldAlign - 1)
	}
	return offsets, at
}

// RowBytes is the size of a row on its way out, and of what returns for it.
func (s *Stream) RowBytes() (out, back int) {
	sizes, backs := make([]int, len(s.Fields)), make([]int, len(s.Fields))
	for f, field := range s.Fields {
		sizes[f] = field.Bytes
		if field.Float > 0 {
			backs[f] = field.Bytes
		}
	}
	s.offsets, out = layout(sizes)
	s.backOffsets, back = layout(backs)
	return out, back
}

// Run visits all edges. It returns the union of everyone's flags. Steps: P-1
// rounds. Bytes on the wire: per boundary row its fields, each padded to 8
// bytes, and as much back for those with a gradient. Memory: 8 bytes per own row.
func (s *Stream) Run() (flags uint16, err error) {
	rel := s.Rel
	out, back := s.RowBytes()
	if s.cursor, err = newCursor(rel); err != nil {
		return 0, err
	}
	defer s.cursor.Free()
	s.block.Rows, s.block.Grad = make([][]byte, len(s.Fields)), make([][]byte, len(s.Fields))
	produce := func(r, first, n int, dst []byte) error {
		for f, field := range s.Fields {
			gather(s.Pool, dst[n*s.offsets[f]:], field.Data, field.Bytes, rel.Send[r].Data[first:first+n])
		}
		return nil
	}
	chunk := func(r, first, n int, src, back []byte) error {
		begin := rel.Halo[r].Begin + int32(first)
		return s.visit(rel.Halo[r].Peer, begin, begin+int32(n), src, back)
	}
	local := func() error {
		if err := s.visitOwn(); err != nil || out > 0 {
			return err
		}
		for r := 1; r < rel.Parts; r++ { // rows without bytes do not travel
			if err := chunk(r, 0, int(rel.Halo[r].End-rel.Halo[r].Begin), nil, nil); err != nil {
				return err
			}
		}
		return nil
	}
	send, recv := SendRows(rel), HaloRows(rel)
	if back == 0 {
		m := &Movement{
			Op: s.Op, Flags: s.Flags, RowBytes: out, Send: send, Recv: recv, OnCallerThread: true,
			Produce: produce, Local: local,
			Consume: func(r, first, n int, src []byte) error { return chunk(r, first, n, src, nil) },
		}
		return m.Move(rel.Rank, rel.Parts)
	}
	m := &RoundTrip{
		Op: s.Op, Flags: s.Flags, RowBytes: out, ReplyBytes: back, Send: send, Recv: recv, OnCallerThread: true,
		Produce: produce, Local: local,
		Compute: func(r, first, n int, src, reply []byte) error {
			clear(reply)
			return chunk(r, first, n, src, reply)
		},
		Take: func(r, first, n int, src []byte) error {
			s.addReturned(rel.Send[r].Data[first:first+n], src)
			return nil
		},
	}
	return m.Move(rel.Rank, rel.Parts)
}

// addReturned adds what returned for own rows idx.
func (s *Stream) addReturned(idx []int32, src []byte) {
	for f, field := range s.Fields {
		if field.Float == 0 || field.Grad == nil {
			continue
		}
		x := kernel.RowsAt(src, len(idx)*s.backOffsets[f], field.Bytes, field.Bytes)
		addRows(s.Pool, field.Float, len(idx), kernel.RowsOf(field.Grad, field.Bytes, idx), x, 0)
	}
}

// addRows is kernel.AddRows, or AddRepeatedRows where there are rows, of numbers of float bytes.
func addRows(p *kernel.Pool, float, n int, y, x kernel.Rows[byte], rows int) {
	switch float {
	case 4:
		addNumbers[float32](p, n, y, x, rows)
	case 8:
		addNumbers[float64](p, n, y, x, rows)
	default:
		panic(fmt.Sprintf("exchange: rows of numbers of %d bytes cannot be added", float))
	}
}

func addNumbers[T kernel.Float](p *kernel.Pool, n int, y, x kernel.Rows[byte], rows int) {
	numbers := func(r kernel.Rows[byte]) kernel.Rows[T] {
		return kernel.RowsOf(view.Numbers[T](r.Data), r.Width/view.Size[T](), r.Index)
	}
	if rows > 0 {
		kernel.AddRepeatedRows(p, n, numbers(y), numbers(x), rows)
	} else {
		kernel.AddRows(p, n, numbers(y), numbers(x))
	}
}

// visitOwn visits the edges from own rows.
func (s *Stream) visitOwn() error {
	for f, field := range s.Fields {
		s.block.Rows[f], s.block.Grad[f] = field.Data, nil
		if field.Float > 0 {
			s.block.Grad[f] = field.Grad
		}
	}
	s.block.Peer, s.block.N = s.Rel.Rank, s.Rel.NumSrc
	return s.edges(0, int32(s.Rel.NumSrc))
}

// visit visits the edges from columns [begin, end), whose rows are in src.
func (s *Stream) visit(peer int, begin, end int32, src, back []byte) error {
	n := int(end - begin)
	for f, field := range s.Fields {
		s.block.Rows[f], s.block.Grad[f] = src[min(len(src), n*s.offsets[f]):][:n*field.Bytes], nil
		if field.Float > 0 && back != nil {
			s.block.Grad[f] = back[n*s.backOffsets[f]:][:n*field.Bytes]
		}
	}
	s.block.Peer, s.block.N = peer, n
	return s.edges(begin, end)
}

// edges hands out the edges from columns [begin, end). Windows come in
// ascending order. Own rows keep a cursor each; where a window has few edges,
// those are sorted instead of looking at every own row. The order is the same.
func (s *Stream) edges(begin, end int32) error {
	const looks = 8 // own rows looked at for the price of one edge sorted
	ptr := s.Rel.ColPtr.Data
	if n := int64(ptr[end] - ptr[begin]); n == 0 {
		return nil
	} else if n*looks < int64(s.Rel.NumDst) {
		return s.fewEdges(begin, end)
	}
	rel, cursor := s.Rel, s.cursor.Slot
	for i := range rel.NumDst {
		k, last := cursor[i], int64(rel.RowPtr.Data[i+1])
		for k < last && rel.Col.Data[k] < begin {
			k++
		}
		for ; k < last && rel.Col.Data[k] < end; k++ {
			if err := s.put(rel.Col.Data[k]-begin, int32(i), rel.RowEdge.Data, k); err != nil {
				return err
			}
		}
		cursor[i] = k
	}
	return s.flush()
}

func (s *Stream) fewEdges(begin, end int32) error {
	rel := s.Rel
	first, last := rel.ColPtr.Data[begin], rel.ColPtr.Data[end]
	type edge struct {
		row, slot, col int32
	}
	edges := make([]edge, 0, last-first)
	for col := begin; col < end; col++ {
		for k := rel.ColPtr.Data[col]; k < rel.ColPtr.Data[col+1]; k++ {
			edges = append(edges, edge{rel.Row.Data[k], k - first, col - begin})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.row != b.row {
			return int(a.row) - int(b.row)
		}
		return int(a.slot) - int(b.slot)
	})
	for _, e := range edges {
		if err := s.put(e.col, e.row, rel.ColEdge.Data, int64(first+e.slot)); err != nil {
			return err
		}
	}
	return s.flush()
}

// put adds an edge to the block, whose position in the users' order stands at place slot
// of positions, and visits a block that is full.
func (s *Stream) put(col, row int32, positions []int32, slot int64) error {
	n := s.block.Edges
	s.Src[n], s.Dst[n] = int64(col), int64(row)
	if s.Edge != nil {
		s.Edge[n] = int64(positions[slot])
	}
	if s.block.Edges++; s.block.Edges == len(s.Src) {
		return s.flush()
	}
	return nil
}

// flush visits the edges of the block, if there are any.
func (s *Stream) flush() error {
	if s.block.Edges == 0 {
		return nil
	}
	err := s.Visit(&s.block)
	s.block.Edges = 0
	return err
}
