package graph

import (
	"slices"
	"sync"

	"sar/core/internal/ascending"
	"sar/core/mem"
)

// Structure is the in-edges of worker p of one edge type, in one CSR over own
// destination rows and the transposed CSC.
//
// Columns number source rows: the own rows of the source type first, then the
// boundary rows of peer p-1, p-2, … (mod P, the order in which rounds bring
// them). Of each peer, those come first whose rows travel (see cover), and such groups
// are sorted by id. Rows hold their columns in ascending order, so one
// shard (q → p) is a contiguous run of every row, and so is any chunk of it.
// That is why shards need no arrays of their own, and why the structure
// does not grow with P.
type Structure struct {
	Type             EdgeType
	SrcType, DstType int // node type numbers
	Rank, Parts      int

	NumSrc, NumDst int   // own rows of the source and destination types
	NumEdges       int64 // in-edges of own rows

	// Slots are numbered in 32 bits (see maxEdges).
	// CSR: row i has slots RowPtr[i]..RowPtr[i+1]-1, slot k reads column Col[k].
	RowPtr mem.Array[int32]
	Col    mem.Array[int32]
	// CSC: column j has slots ColPtr[j]..ColPtr[j+1]-1, slot k is read by Row[k].
	ColPtr mem.Array[int32]
	Row    mem.Array[int32]

	// Order is the order in which a product had best compute own rows, and the
	// transposed product own columns (see Locality); empty: as they are. Before
	// a place lie RowsBefore slots of rows and ColsBefore slots of columns.
	Order                  mem.Array[int32]
	RowsBefore, ColsBefore mem.Array[int32]

	// Position of the edge of a slot among the worker's edges of this type in
	// ascending id: the order in which users see edge tensors. Made on demand.
	RowEdge, ColEdge mem.Array[int32]
	// ParentEdge, in a relation of a block that has its edge order, is the
	// position of each edge among those of the relation it was induced from.
	ParentEdge mem.Array[int32]

	// Key, in a relation that was stored, numbers the columns by the original ids of their
	// nodes. It says the order of edges where RowEdge is not stored.
	Key mem.Array[int32]

	// Halo[r], for r = 1..P-1, are the boundary rows that peer (Rank-r) mod P owns.
	Halo []Halo
	// What it takes to make edge positions on demand. origin is nil once they
	// are made.
	origin  *origin
	moved   mem.Array[int32] // of boundary columns by peer and id, the columns that they are; empty: the same
	index   int              // in Book.EdgeTypes
	ids     idSummary
	digest  uint64
	ordered bool

	deriving sync.Mutex // of an edge order that is kept in part
	cache    orderCache
	stored   bool // the arrays, and what the order of edges can be derived from, are of a file
	threads  int
}

// origin is what the relations of one Build share.
type origin struct {
	book    *Book
	rank    int
	source  EdgeSource
	threads int
}

// Halo is the boundary rows that one peer owns: columns [Begin, End).
type Halo struct {
	Peer       int
	Begin, End int32
	// Rows are the peer's own row numbers of the columns: its send list, when it is told.
	Rows mem.Array[int32]
	Travels
}

// NumCols is the number of columns: own source rows and boundary rows.
func (r *Structure) NumCols() int { return max(0, len(r.ColPtr.Data)-1) }

// HasEdgeOrder tells whether RowEdge and ColEdge are made.
func (r *Structure) HasEdgeOrder() bool { return r.ordered }

// InDegrees fills out[i], for NumDst own rows, with the number of in-edges.
func (r *Structure) InDegrees(out []int64) {
	for i := range out[:r.NumDst] {
		out[i] = int64(r.RowPtr.Data[i+1] - r.RowPtr.Data[i])
	}
}

// Span is the slots of a row that read columns [begin, end).
func (r *Structure) Span(row int, begin, end int32) (k0, k1 int64) {
	last := int64(r.RowPtr.Data[row+1])
	k0 = ascending.RunEnd(r.Col.Data, int64(r.RowPtr.Data[row]), last, begin)
	return k0, ascending.RunEnd(r.Col.Data, k0, last, end)
}

// memory is a mem.Array of whatever numbers.
type memory interface {
	Bytes() int64
	Free()
}

func held(arrays []memory) (bytes int64) {
	for _, a := range arrays {
		bytes += a.Bytes()
	}
	return bytes
}

func free(arrays []memory) {
	for _, a := range arrays {
		a.Free()
	}
}

func (r *Structure) arrays() []memory {
	all := []memory{&r.RowPtr, &r.Col, &r.ColPtr, &r.Row, &r.RowEdge, &r.ColEdge, &r.ParentEdge, &r.Key,
		&r.Order, &r.RowsBefore, &r.ColsBefore, &r.moved}
	for i := range r.Halo {
		all = append(all, &r.Halo[i].Rows)
	}
	return all
}

// Bytes is what the structure holds off the Go heap, in whole pages.
func (r *Structure) Bytes() int64 { return held(r.arrays()) }

// Free releases every array. It may be called again. The source of edges belongs to whoever made it.
func (r *Structure) Free() {
	free(r.arrays())
	r.origin, r.ordered, r.cache = nil, false, cacheNone
}

// InEdges fills columns and edges with the in-edges of a row, ascending by the
// position of the edge; both have room for all of them. The relation has its
// edge order.
func (r *Structure) InEdges(row int, columns, edges []int64) {
	begin, end := r.RowPtr.Data[row], r.RowPtr.Data[row+1]
	for i, k := 0, begin; k < end; i, k = i+1, k+1 {
		edges[i] = int64(r.RowEdge.Data[k])<<32 | int64(k-begin)
	}
	edges = edges[:end-begin]
	slices.Sort(edges)
	for i, e := range edges {
		columns[i], edges[i] = int64(r.Col.Data[int64(begin)+e&(1<<32-1)]), e>>32
	}
}
