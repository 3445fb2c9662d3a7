package graph

import (
	"sort"

	"sar/core/internal/parallel"
	"sar/core/mem"
)

// compressed is one side of a sparse matrix: outer i has the slots
// ptr[i]..ptr[i+1]-1, slot k holds inner index idx[k] and, where val is not
// nil, a number val[k] that travels with it.
type compressed struct {
	ptr      []int32
	idx, val []int32
}

// transpose fills b (whose ptr is final) from a:
//
//	for i, k in slots of a in order: b gets (i, a.val[k]) in the next slot of outer a.idx[k]
//
// It is stable, so b's inner indices ascend, and equal ones keep their order.
// b.idx may be nil where it is known already. Every thread takes an equal run
// of a's slots and starts in each outer of b behind the runs before its own,
// so the result does not depend on the number of threads.
func transpose(a, b compressed, threads int) error {
	edges, outers := len(a.idx), len(b.ptr)-1
	// cursors take 4 bytes an outer and thread; they must stay small beside the 4 bytes an edge of b
	for threads > 1 && (edges/threads < 1<<15 || threads*outers > edges) {
		threads--
	}
	cursors, err := mem.Make[int32](mem.Scratch, threads*outers)
	if err != nil {
		return err
	}
	defer cursors.Free()
	cursor := func(t int) []int32 { return cursors.Data[t*outers : (t+1)*outers] }
	bound := func(t int) int { return int(int64(edges) * int64(t) / int64(threads)) }

	// The last thread needs no count of its own.
	each(threads-1, func(t int) {
		next := cursor(t + 1)
		for _, j := range a.idx[bound(t):bound(t+1)] {
			next[j]++
		}
	})
	each(threads, func(part int) {
		for j := outers * part / threads; j < outers*(part+1)/threads; j++ {
			at := b.ptr[j]
			for t := 0; t < threads; t++ {
				at += cursors.Data[t*outers+j]
				cursors.Data[t*outers+j] = at
			}
		}
	})
	each(threads, func(t int) {
		next, k, end := cursor(t), bound(t), bound(t+1)
		for i := sort.Search(len(a.ptr), func(i int) bool { return int(a.ptr[i]) > k }) - 1; k < end; i++ {
			for stop := min(int(a.ptr[i+1]), end); k < stop; k++ {
				j := a.idx[k]
				to := next[j]
				next[j]++
				if b.idx != nil {
					b.idx[to] = int32(i)
				}
				if a.val != nil {
					b.val[to] = a.val[k]
				}
			}
		}
	})
	return nil
}

// each calls f(0..n-1), each in a goroutine of its own, and waits.
func each(n int, f func(i int)) {
	_ = parallel.Each(n, n, func(_, i int) error { f(i); return nil })
}
