package graph

import "sar/core/mem"

// orderCache says what a relation without its source, or one that was stored, keeps of the order of its
// edges, so that RowEdge and ColEdge can be derived when an operation with edge
// data first asks: 8 bytes an edge that most graphs from memory never need.
type orderCache uint8

const (
	cacheNone    orderCache = iota
	cacheRowEdge            // RowEdge
	cacheIsCSR              // nothing: the slots of the CSR are in the order of edges
	cacheIsCSC              // nothing: those of the CSC are
	cacheByKey              // Key: rows are in the order of edges, slots of a row in that of Key
)

// keepOrder reduces an edge order that was just made to what it can be derived
// from: nothing where edges came sorted by destination or by source, else
// RowEdge.
func (r *Structure) keepOrder(threads int) {
	r.threads = threads
	switch {
	case ascends(r.RowEdge.Data):
		r.cache = cacheIsCSR
		r.RowEdge.Free()
	case ascends(r.ColEdge.Data):
		r.cache = cacheIsCSC
		r.RowEdge.Free()
	default:
		r.cache = cacheRowEdge
	}
	r.ColEdge.Free()
	r.ordered = false
}

// ascends tells whether a permutation is the identity.
func ascends(permutation []int32) bool {
	for k, e := range permutation {
		if int(e) != k {
			return false
		}
	}
	return true
}

// deriveOrder undoes keepOrder; on other relations it does nothing.
func (r *Structure) deriveOrder() (err error) {
	r.deriving.Lock()
	defer r.deriving.Unlock()
	if r.cache == cacheNone {
		return nil
	}
	defer func() {
		if err != nil {
			r.ColEdge.Free()
			if r.cache != cacheRowEdge {
				r.RowEdge.Free()
			}
		}
	}()
	edges := int(r.NumEdges)
	if r.ColEdge, err = mem.Make[int32](mem.Structure, edges); err != nil {
		return err
	}
	if r.cache != cacheRowEdge {
		if r.RowEdge, err = mem.Make[int32](mem.Structure, edges); err != nil {
			return err
		}
	}
	csr := compressed{ptr: r.RowPtr.Data, idx: r.Col.Data, val: r.RowEdge.Data}
	csc := compressed{ptr: r.ColPtr.Data, idx: r.Row.Data, val: r.ColEdge.Data}
	from, to := &csr, &csc
	if r.cache == cacheIsCSC {
		from, to = to, from
	}
	switch r.cache {
	case cacheIsCSR, cacheIsCSC:
		for k := range from.val {
			from.val[k] = int32(k)
		}
	case cacheByKey:
		r.deriveRowEdge()
	}
	to.idx = nil // it is there
	if err = transpose(*from, *to, r.threads); err != nil {
		return err
	}
	r.cache, r.ordered = cacheNone, true
	r.Key.Free()
	return nil
}
