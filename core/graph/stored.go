package graph

import (
	"fmt"
	"slices"
	"sync/atomic"

	"sar/core/mem"
)

// Stored are the arrays of a relation as a partitioner stores them, in the numbering of
// Structure. Check says what they have to be.
type Stored struct {
	RowPtr, Col, ColPtr, Row mem.Array[int32]
	Order                    mem.Array[int32] // empty: rows are computed as they are
	HaloEnds                 []int64          // by round, one past the last column of its peer: from NumSrc to NumCols
	// Travels are those of Halo, by round: Leading ascend and are not more than there are columns; nil: all rows travel.
	Travels []Travels
	// Either tells the order of edges. RowEdge is that of Structure. Key numbers the
	// columns by the original ids of their nodes: where edges are ordered by destination
	// and then by original id of the source, this says all.
	RowEdge, Key mem.Array[int32]
}

// MisfitError says what is wrong with an array of Stored, by its field name, and where.
type MisfitError struct {
	Array     string
	At        int64
	Want, Got string
}

func (e *MisfitError) Error() string {
	return fmt.Sprintf("%s[%d]: expected %s, found %s", e.Array, e.At, e.Want, e.Got)
}

func misfit(array string, at int64, want, got string, args ...any) error {
	return &MisfitError{array, at, want, fmt.Sprintf(got, args...)}
}

// NewStructure makes relation index of worker rank of stored arrays, which it takes over,
// also where it fails. What is wrong with the arrays is a *MisfitError; HaloEnds and Travels are the caller's to check.
func NewStructure(book *Book, rank, index int, a Stored, threads int) (r *Structure, err error) {
	r = &Structure{threads: max(1, threads), stored: true,
		RowPtr: a.RowPtr, Col: a.Col, ColPtr: a.ColPtr, Row: a.Row, Order: a.Order, RowEdge: a.RowEdge, Key: a.Key,
		NumEdges: int64(len(a.Col.Data))}
	defer func() {
		if err != nil {
			r.Free()
			r = nil
		}
	}()
	if err = r.place(book, rank, index); err != nil {
		return r, err
	}
	r.haloFrom(&a)
	r.cache = cacheRowEdge
	if len(r.Key.Data) > 0 {
		r.cache = cacheByKey
	}
	if err = r.check(); err != nil {
		return r, err
	}
	return r, r.countBefore()
}

// haloFrom numbers the boundary rows.
func (r *Structure) haloFrom(a *Stored) {
	r.Halo = make([]Halo, r.Parts)
	for q := 1; q < r.Parts; q++ {
		h := &r.Halo[q]
		h.Peer, h.Begin, h.End = (r.Rank-q+r.Parts)%r.Parts, int32(a.HaloEnds[q-1]), int32(a.HaloEnds[q])
		h.AllRows()
		if a.Travels != nil {
			h.Travels = a.Travels[q]
		}
	}
}

// check holds the arrays against each other, so that nothing that reads them leaves them:
// pointers ascend, columns ascend in each row and rows in each column, both say the same
// edges, and orders name each row and edge once.
func (r *Structure) check() error {
	rows, err := side{"RowPtr", "Col", r.RowPtr.Data, r.Col.Data, false}.check(r.NumDst, r.NumCols(), r.threads)
	if err != nil {
		return err
	}
	cols, err := side{"ColPtr", "Row", r.ColPtr.Data, r.Row.Data, true}.check(r.NumCols(), r.NumDst, r.threads)
	if err != nil {
		return err
	}
	if rows != cols {
		return misfit("Row", 0, "the edges that Col has", "others")
	}
	for j := r.NumSrc; j < r.NumCols(); j++ {
		if r.ColPtr.Data[j] == r.ColPtr.Data[j+1] {
			return misfit("ColPtr", int64(j)+1, "an edge from every boundary row", "none")
		}
	}
	if err := checkPermutation("Order", r.Order.Data, r.NumDst, len(r.Order.Data) > 0); err != nil {
		return err
	}
	if len(r.Order.Data) > 0 && r.NumSrc != r.NumDst {
		return misfit("Order", 0, "none, since rows and columns are not the same nodes", "one")
	}
	if err := checkPermutation("RowEdge", r.RowEdge.Data, int(r.NumEdges), r.cache == cacheRowEdge); err != nil {
		return err
	}
	return checkPermutation("Key", r.Key.Data, r.NumCols(), r.cache == cacheByKey)
}

// side is one side of a sparse matrix: outer i has the inner numbers idx[ptr[i]:ptr[i+1]].
type side struct {
	ptrName, name string
	ptr, idx      []int32
	transposed    bool
}

// check checks that all outers are there and that inner numbers are below inners and
// ascend. digest is the same for a matrix and its transpose, and hardly for any other.
func (s side) check(outers, inners, threads int) (digest uint64, err error) {
	ptr, idx := s.ptr, s.idx
	if len(ptr) != outers+1 {
		return 0, misfit(s.ptrName, 0, fmt.Sprintf("%d numbers", outers+1), "%d", len(ptr))
	}
	if ptr[0] != 0 || int(ptr[outers]) != len(idx) {
		return 0, misfit(s.ptrName, 0, fmt.Sprintf("numbers from 0 to the %d edges", len(idx)), "%d to %d", ptr[0],
			ptr[outers])
	}
	var sum atomic.Uint64
	var first atomic.Pointer[MisfitError]
	each(threads, func(t int) {
		var own uint64
		for i := outers * t / threads; i < outers*(t+1)/threads; i++ {
			begin, end := ptr[i], ptr[i+1]
			if begin < 0 || begin > end || int(end) > len(idx) {
				first.CompareAndSwap(nil, &MisfitError{s.ptrName, int64(i) + 1,
					fmt.Sprintf("a number from %d to %d", begin, len(idx)), fmt.Sprint(end)})
				return
			}
			last := int32(0)
			for k, j := range idx[begin:end] {
				if j < last || int(j) >= inners {
					first.CompareAndSwap(nil, &MisfitError{s.name, int64(begin) + int64(k),
						fmt.Sprintf("a number from %d to %d", last, inners-1), fmt.Sprint(j)})
					return
				}
				last = j
				if s.transposed {
					own += mix(int32(i), j, 0)
				} else {
					own += mix(j, int32(i), 0)
				}
			}
		}
		sum.Add(own)
	})
	if e := first.Load(); e != nil {
		return 0, e
	}
	return sum.Load(), nil
}

// checkPermutation checks that an array has the numbers 0 to n-1, or, where it is not there, none.
func checkPermutation(name string, p []int32, n int, there bool) error {
	if !there {
		n = 0
	}
	if len(p) != n {
		return misfit(name, 0, fmt.Sprintf("%d numbers", n), "%d", len(p))
	}
	seen := make([]uint64, (n+63)/64)
	for k, v := range p {
		if uint32(v) >= uint32(n) || seen[v>>6]>>(v&63)&1 != 0 {
			return misfit(name, int64(k), fmt.Sprintf("each number from 0 to %d once", n-1), "%d", v)
		}
		seen[v>>6] |= 1 << (v & 63)
	}
	return nil
}

// IsStored tells whether the order of edges can be made without a source of edges.
func (r *Structure) IsStored() bool { return r.stored }

// Positions fills to with the positions of the edges of a row, slot by slot, of a relation
// that is stored or has its edge order.
func (r *Structure) Positions(row int, to []int32) {
	begin, end := r.RowPtr.Data[row], r.RowPtr.Data[row+1]
	if r.cache != cacheByKey {
		copy(to, r.RowEdge.Data[begin:end])
		return
	}
	byKey(r.Key.Data, r.Col.Data[begin:end], begin, to)
}

// byKey fills to with first + the place of each column among columns by their keys; equal
// columns are neighbours and keep their order.
func byKey(key, columns []int32, first int32, to []int32) {
	var room [64]uint64
	list := room[:0]
	for k, j := range columns {
		list = append(list, uint64(key[j])<<32|uint64(k))
	}
	slices.Sort(list)
	for place, v := range list {
		to[uint32(v)] = first + int32(place)
	}
}

// deriveRowEdge makes RowEdge from Key.
func (r *Structure) deriveRowEdge() {
	each(r.threads, func(t int) {
		for i := r.NumDst * t / r.threads; i < r.NumDst*(t+1)/r.threads; i++ {
			begin, end := r.RowPtr.Data[i], r.RowPtr.Data[i+1]
			byKey(r.Key.Data, r.Col.Data[begin:end], begin, r.RowEdge.Data[begin:end])
		}
	})
}
