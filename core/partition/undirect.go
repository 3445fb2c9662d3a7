package partition

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"

	"sar/core/internal/bitset"
	"sar/core/internal/parallel"
	"sar/core/internal/view"
	"sar/core/mem"
)

// Sorted is the undirected adjacency of any graph, made on disk. Both directions of every
// edge go to bucket files, each of a range of nodes whose neighbours fit the memory. A
// bucket is sorted when Rows comes to it.
type Sorted struct {
	nodes, entries int64
	count          mem.Array[int64] // [nodes] of entries, repetitions included
	first          []int64          // [buckets + 1] nodes
	files          []*os.File
}

// Sorting says where and with how much memory a graph is made undirected.
type Sorting struct {
	// Outward leaves the edges their direction: a node has as neighbours those that its
	// own edges lead to.
	Outward bool
	Dir     string // of temporary files: 16 bytes an edge
	Memory  int64  // bytes, beside 8 a node
	// Progress, where not nil, hears of edges read, twice each. It may stop the work.
	Progress func(done, total int64) error
}

const (
	mostBuckets = 256     // open files
	leastBucket = 1 << 16 // entries, however little the memory
)

// Undirect reads the edges twice. The files have no names, so they are gone when the
// process is. The caller closes the result.
func (s Sorting) Undirect(edges Edges) (*Sorted, error) { return s.undirect(edges, leastBucket) }

func (s Sorting) undirect(edges Edges, leastBucket int64) (_ *Sorted, err error) {
	n := edges.NumNodes()
	if n > math.MaxInt32 {
		return nil, fmt.Errorf("undirected adjacency of %d nodes: at most %d are supported", n, math.MaxInt32)
	}
	g := &Sorted{nodes: n}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	if g.count, err = mem.Make[int64](mem.Scratch, int(n)); err != nil {
		return nil, err
	}
	var done int64
	progress := func(more int) error {
		done += int64(more)
		if s.Progress == nil {
			return nil
		}
		return s.Progress(done, 2*edges.NumEdges())
	}
	err = each(edges, func(src, dst []int64) error {
		for i, u := range src {
			if v := dst[i]; u != v {
				g.count.Data[u]++
				g.entries++
				if !s.Outward {
					g.count.Data[v]++
					g.entries++
				}
			}
		}
		return progress(len(src))
	})
	if err != nil {
		return nil, err
	}
	// half of the memory for a bucket that is sorted, 4 bytes an entry; a quarter for
	// what is on its way to the files
	g.divide(max(s.Memory/8, g.entries/(mostBuckets/2), leastBucket))
	return g, g.fill(edges, s, int(min(1<<20, max(1<<12, s.Memory/4/int64(len(g.first))))), progress)
}

// divide finds the ranges of nodes. One node may have more entries than a bucket should.
func (g *Sorted) divide(room int64) {
	g.first = append(g.first, 0)
	var in int64
	for v, c := range g.count.Data {
		if in > 0 && in+c > room {
			g.first = append(g.first, int64(v))
			in = 0
		}
		in += c
	}
	if g.nodes > 0 {
		g.first = append(g.first, g.nodes)
	}
}

func (g *Sorted) fill(edges Edges, s Sorting, buffer int, progress func(int) error) error {
	out := make([]*bufio.Writer, len(g.first)-1)
	for b := range out {
		f, err := os.CreateTemp(s.Dir, ".sar-edges-*")
		if err != nil {
			return err
		}
		g.files = append(g.files, f)
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
		out[b] = bufio.NewWriterSize(f, buffer)
	}
	bucket := make([]uint16, 0, g.nodes>>bucketShift+1) // of the first node of each run of nodes
	for v := int64(0); v < g.nodes; v += 1 << bucketShift {
		b, _ := slices.BinarySearch(g.first, v+1)
		bucket = append(bucket, uint16(b-1))
	}
	put := func(row, column int64) error {
		b := int(bucket[row>>bucketShift])
		for row >= g.first[b+1] {
			b++
		}
		_, err := out[b].Write(binary.LittleEndian.AppendUint64(out[b].AvailableBuffer(), uint64(row)|uint64(column)<<32))
		return err
	}
	err := each(edges, func(src, dst []int64) error {
		for i, u := range src {
			if v := dst[i]; u != v {
				if err := put(u, v); err != nil {
					return err
				}
				if s.Outward {
					continue
				}
				if err := put(v, u); err != nil {
					return err
				}
			}
		}
		return progress(len(src))
	})
	for _, w := range out {
		if err == nil {
			err = w.Flush()
		}
	}
	return err
}

const bucketShift = 12

var errChanged = errors.New("the graph gave other edges when it was read again")

func (g *Sorted) NumNodes() int64   { return g.nodes }
func (g *Sorted) NumEntries() int64 { return g.entries }

// Close releases the files and the memory.
func (g *Sorted) Close() {
	for _, f := range g.files {
		f.Close()
	}
	g.files = nil
	g.count.Free()
}

// Rows implements Neighbours: a bucket is a run.
func (g *Sorted) Rows(yield func(first int64, ptr []int64, adj []int32) error) error {
	for b := range g.files {
		if err := g.bucket(b, yield); err != nil {
			return err
		}
	}
	return nil
}

func (g *Sorted) bucket(b int, yield func(first int64, ptr []int64, adj []int32) error) error {
	first, end := g.first[b], g.first[b+1]
	ptr := make([]int64, end-first+1)
	for i, c := range g.count.Data[first:end] {
		ptr[i+1] = ptr[i] + c
	}
	if len(ptr) == 2 && ptr[1] > g.nodes/32 {
		return g.hub(b, yield)
	}
	columns, err := mem.Make[int32](mem.Scratch, int(ptr[len(ptr)-1]))
	if err != nil {
		return err
	}
	defer columns.Free()
	next := slices.Clone(ptr)
	err = g.pairs(b, func(row, column int32) error {
		i := int64(row) - first
		if next[i] == ptr[i+1] {
			return errChanged
		}
		columns.Data[next[i]] = column
		next[i]++
		return nil
	})
	if err != nil {
		return err
	}
	return yield(first, ptr, sortedSets(ptr, columns.Data))
}

// hub is the bucket of one node with many entries: a bit for each node sorts them.
func (g *Sorted) hub(b int, yield func(first int64, ptr []int64, adj []int32) error) error {
	set, err := bitset.New(g.nodes)
	if err != nil {
		return err
	}
	defer set.Free()
	err = g.pairs(b, func(_, column int32) error {
		set.Add(int64(column))
		return nil
	})
	if err != nil {
		return err
	}
	var adj []int32
	for u := range set.All() {
		adj = append(adj, int32(u))
	}
	return yield(g.first[b], []int64{0, int64(len(adj))}, adj)
}

// pairs reads a bucket, and checks that it is what was counted.
func (g *Sorted) pairs(b int, visit func(row, column int32) error) error {
	var want, seen int64
	for _, c := range g.count.Data[g.first[b]:g.first[b+1]] {
		want += c
	}
	block := make([]int32, 1<<17)
	for seen < want {
		pairs := block[:min(int64(len(block)), 2*(want-seen))]
		if _, err := g.files[b].ReadAt(view.Bytes(pairs), 8*seen); err != nil {
			if err == io.EOF {
				err = errChanged
			}
			return err
		}
		for i := 0; i < len(pairs); i += 2 {
			if err := visit(pairs[i], pairs[i+1]); err != nil {
				return err
			}
		}
		seen += int64(len(pairs) / 2)
	}
	return nil
}

// sortedSets sorts each row, on all threads, and drops repetitions. It moves the ends of
// rows in ptr, and returns what is left of columns.
func sortedSets(ptr []int64, columns []int32) []int32 {
	rows := len(ptr) - 1
	_ = parallel.Each(runtime.GOMAXPROCS(0), (rows+chunkNodes-1)/chunkNodes, func(_, chunk int) error {
		for i := chunk * chunkNodes; i < min(rows, (chunk+1)*chunkNodes); i++ {
			slices.Sort(columns[ptr[i]:ptr[i+1]])
		}
		return nil
	})
	var kept, begin int64
	for i, end := range ptr[1:] {
		for k := begin; k < end; k++ {
			if k == begin || columns[k] != columns[k-1] {
				columns[kept] = columns[k]
				kept++
			}
		}
		begin, ptr[i+1] = end, kept
	}
	return columns[:kept]
}
