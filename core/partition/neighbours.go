package partition

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"sar/core/mem"
)

// Neighbours is an undirected graph that is read from disk in runs of nodes.
// Every edge is there twice, once at each end.
type Neighbours interface {
	NumNodes() int64
	// NumEntries is the number of neighbours of all nodes together, or more.
	NumEntries() int64
	// Rows calls yield with one run of nodes after another, the same runs each
	// time: node first+i has the neighbours adj[ptr[i]:ptr[i+1]], in ascending
	// order, each once and without the node itself. The slices are valid during
	// the call. It stops at an error.
	Rows(yield func(first int64, ptr []int64, adj []int32) error) error
}

// CSR is a square adjacency matrix on disk. Row v has the columns from entry
// Offset[v] up to Offset[v+1], in ascending order.
type CSR interface {
	NumNodes() int64
	NumEntries() int64
	// ReadOffsets reads the offsets from that of row first on. There are NumNodes + 1.
	ReadOffsets(first int64, dst []int64) error
	// ReadColumns reads the columns of the entries from first on.
	ReadColumns(first int64, dst []int32) error
}

const (
	runEntries = 1 << 20 // of a run of rows: 4 MiB, of which there are two
	runNodes   = 1 << 17
)

// symmetric is a CSR whose entries all have a mirror image.
type symmetric struct {
	CSR
	room int // entries that are read at a time
}

// Symmetric reads a matrix that holds every edge in both directions. Loops and
// repetitions are dropped. While Rows runs it holds some 12 MiB, and 4 bytes for each
// neighbour of the node that has most of them.
func Symmetric(m CSR) Neighbours { return symmetric{m, runEntries} }

// Rows implements Neighbours. One run is read while the one before is worked on.
func (m symmetric) Rows(yield func(first int64, ptr []int64, adj []int32) error) error {
	if m.NumNodes() > math.MaxInt32 {
		return fmt.Errorf("a graph of %d nodes: at most %d are supported", m.NumNodes(), math.MaxInt32)
	}
	full, empty, stop := make(chan *run, 2), make(chan *run, 2), make(chan struct{})
	for range cap(empty) {
		empty <- &run{adj: make([]int32, 0, min(int64(m.room), m.NumEntries()))}
	}
	go func() {
		defer close(full)
		r := rowReader{symmetric: m}
		defer r.offsets.Free()
		if err := r.offsets.Make(mem.Scratch, int(min(runNodes, m.NumNodes()))+1); err != nil {
			full <- &run{err: err}
			return
		}
		for r.node < m.NumNodes() {
			select {
			case next := <-empty:
				next.err = r.fill(next)
				full <- next
				if next.err != nil {
					return
				}
			case <-stop:
				return
			}
		}
	}()
	var err error
	for r := range full {
		if err = r.err; err == nil {
			err = yield(r.first, r.ptr, r.adj)
		}
		if err != nil {
			break
		}
		empty <- r
	}
	close(stop)
	for range full { // until the reader has let go of its buffers
		continue
	}
	return err
}

// run is what Rows yields at a time.
type run struct {
	first int64
	ptr   []int64
	adj   []int32
	err   error
}

// DamageError says that a matrix on disk is not what a graph's should be.
type DamageError struct{ Found string }

func (e *DamageError) Error() string { return e.Found }

func damage(format string, args ...any) error { return &DamageError{fmt.Sprintf(format, args...)} }

type rowReader struct {
	symmetric
	node, entry int64 // the next ones
	offsets     mem.Array[int64]
}

// fill reads as many whole rows as fit, at least one, and drops the nodes themselves and repetitions.
func (r *rowReader) fill(into *run) error {
	offsets := r.offsets.Data[:min(int64(len(r.offsets.Data)), r.NumNodes()-r.node+1)]
	if err := r.ReadOffsets(r.node, offsets); err != nil {
		return err
	}
	if err := r.checkOffsets(offsets); err != nil {
		return err
	}
	rows := max(1, sort.Search(len(offsets)-1, func(i int) bool { return offsets[i+1]-r.entry > int64(r.room) }))
	entries := int(offsets[rows] - r.entry)
	adj := slices.Grow(into.adj[:0], entries)[:entries]
	if err := r.ReadColumns(r.entry, adj); err != nil {
		return err
	}
	into.first, into.ptr = r.node, append(into.ptr[:0], 0)
	nodes, kept := uint32(r.NumNodes()), 0
	for i, end := range offsets[1 : rows+1] {
		node, last := int32(r.node)+int32(i), int32(-1)
		for _, u := range adj[offsets[i]-r.entry : end-r.entry] {
			if uint32(u) >= nodes {
				return damage("node %d has neighbour %d; expected one in [0, %d)", node, u, nodes)
			}
			if u < last {
				return damage("the neighbours of node %d are not in ascending order: %d comes after %d", node, u, last)
			}
			if u != last && u != node {
				adj[kept] = u
				kept++
			}
			last = u
		}
		into.ptr = append(into.ptr, int64(kept))
	}
	into.adj = adj[:kept]
	r.node, r.entry = r.node+int64(rows), offsets[rows]
	return nil
}

func (r *rowReader) checkOffsets(offsets []int64) error {
	if offsets[0] != r.entry {
		return damage("row %d begins at entry %d; expected %d, the end of the row before", r.node, offsets[0], r.entry)
	}
	for i, o := range offsets[1:] {
		if o < offsets[i] || o > r.NumEntries() {
			return damage("row %d ends at entry %d; expected one from %d to %d", r.node+int64(i), o, offsets[i], r.NumEntries())
		}
	}
	if end := offsets[len(offsets)-1]; r.node+int64(len(offsets))-1 == r.NumNodes() && end != r.NumEntries() {
		return damage("the last row ends at entry %d of %d", end, r.NumEntries())
	}
	return nil
}

// IsSymmetric reads a matrix once and tells whether each of its entries has a
// mirror image, loops and repetitions aside. A wrong yes has probability 2^-64.
func IsSymmetric(m CSR) (bool, error) {
	var sum uint64 // of a hash of each edge, with one sign for each direction
	err := Symmetric(m).Rows(func(first int64, ptr []int64, adj []int32) error {
		for i, end := range ptr[1:] {
			v := uint64(first) + uint64(i)
			for _, u := range adj[ptr[i]:end] {
				if u := uint64(u); u < v {
					sum += mix(u<<32 | v)
				} else {
					sum -= mix(v<<32 | u)
				}
			}
		}
		return nil
	})
	return err == nil && sum == 0, err
}

// mix is the finalizer of SplitMix64: a bijection that looks random.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
