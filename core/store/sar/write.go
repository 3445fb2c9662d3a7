package sar

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/internal/bitset"
	"sar/core/internal/dtypes"
	"sar/core/internal/must"
	"sar/core/internal/view"
	"sar/core/mem"
	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/npy"
)

// writer writes parts in SAR's format.
//
//	count   in-edges of every node; whether edges are sorted by destination and source
//	fill    passes over the edges, as many as memory asks for: sources by destination
//	finish  part by part: number the columns, sort rows, transpose, order rows
//	sends   copies of what the peers' parts read
//	then features, original ids, checksums and descriptions
//
// Nodes of a type are numbered over the parts, one part after the other.
type writer struct {
	src          input.Source
	to           Plan
	nodes, edges int64
	node, edge   kinds
	forNodes     int64              // bytes of to.Memory
	id           mem.Array[uint32]  // number of each node, by original id over all types
	place        []mem.Array[int32] // [type] see nodePlaces
	base         [][]int64          // [type][parts + 1] first number of each part
	rels         []*relationWriter
	parts        []description
	column       mem.Array[int32] // of a number, in the part and relation that are being made
	halo         *bitset.Set
	partitioning string // the number of this run, in hexadecimal digits
	done, total  int64  // of the work
}

// relationWriter is a relation that is being written.
type relationWriter struct {
	src, dst int
	dir      string
	sorted   bool // by destination, then by source
	last     [2]int64
	// by number of the destination: its edges; while they are placed, where the next one goes
	slots   mem.Array[uint32]
	arrays  []map[string]npy.Output // [part] by name
	columns [][]int64               // [part] as partRelationJSON has them
	travels [][]graph.Travels
	sends   [][]int64
}

// Plan says how a graph is split, and how its parts are written. What callers may choose is in JSON.
type Plan struct {
	Assignment []int32 `json:"-"`      // [nodes] the part of each
	Parts      int     `json:"-"`      //
	Dir        string  `json:"-"`      // Write makes part p in Dir/part<p>, which is not there yet
	Memory     int64   `json:"memory"` // bytes that writing may take, Assignment among them
	// IDs are the names of Parquet files of the users' ids, by node type, which are moved into the parts
	// from IDsDir/part<p>, in the file system of Dir.
	IDs    map[string]string `json:"ids"`
	IDsDir string            `json:"ids_dir"`
	// Progress, where not nil, is called now and then with done of total, which never fall. Its error ends the work.
	Progress func(done, total int64) error `json:"-"`

	// Of the description of all parts, which package store writes: Dir/<Name>.json.
	Name   string `json:"name"`
	Method string `json:"method"` // how the assignment was made
	Format string `json:"format"` // "dgl", which "" is too, or "sar"
	// Features is what features of nodes are rounded to, "bfloat16"; "": they are not. See input.Rounded.
	Features string `json:"features"`
}

// Written is what the description of all parts says of them.
type Written struct {
	Nodes, Edges         int64
	NodeMap, EdgeMap     disk.Object[[][2]int64] // the ids of each type in each part
	NodeTypes, EdgeTypes disk.Object[int]        // their numbers
	Partitioning         string
}

// Write writes the parts of a graph.
func Write(src input.Source, to Plan) (w *Written, err error) {
	defer must.Return(&err)
	s := &writer{src: src, to: to, forNodes: nodeMemory(src), parts: make([]description, to.Parts),
		node: newKinds(src.NodeTypes(), to.Parts), edge: newKinds(src.EdgeTypes(), to.Parts)}
	defer s.free()
	s.place = make([]mem.Array[int32], len(s.node.list))
	s.nodes, s.edges = int64(len(to.Assignment)), s.edge.first[len(s.edge.list)]
	s.total = s.nodes*2 + s.node.work() + s.edges*4 + s.edge.work()
	for p := range to.Parts {
		must.Do(os.Mkdir(s.partDir(p), 0o775))
	}
	s.numberNodes()
	s.countEdges()
	must.Do(s.wantMemory())
	must.Do(s.wantDisk())
	s.fill()
	s.finishParts()
	s.writeSends()
	s.writeNodeFeatures()
	s.writeEdgeRows()
	s.takeIDs()
	s.describe()
	w = &Written{Nodes: s.nodes, Edges: s.edges, Partitioning: s.partitioning}
	w.NodeMap, w.NodeTypes = s.node.maps()
	w.EdgeMap, w.EdgeTypes = s.edge.maps()
	return w, nil
}

func (s *writer) free() {
	s.id.Free()
	s.column.Free()
	for t := range s.place {
		s.place[t].Free()
	}
	for _, r := range s.rels {
		r.slots.Free()
	}
	s.halo.Free()
}

func (s *writer) partDir(p int) string { return filepath.Join(s.to.Dir, fmt.Sprintf("part%d", p)) }

func (s *writer) progress(n int64) {
	s.done = min(s.done+n, s.total)
	if s.to.Progress != nil {
		must.Do(s.to.Progress(s.done, s.total))
	}
}

// scratch is memory that a step gives back.
func scratch[T mem.Elem](n int64) mem.Array[T] {
	return must.Get(mem.Make[T](mem.Scratch, int(n)))
}

// numberNodes numbers nodes, in each part in the order that near finds, or that they had.
func (s *writer) numberNodes() {
	s.id = scratch[uint32](s.nodes)
	largest := int64(0)
	for t, of := range s.node.list {
		if of.Rows > math.MaxUint32 {
			must.Do(argument.Errorf("%d nodes of type %q: at most %d of a type are supported", of.Rows, of.Name,
				int64(math.MaxUint32)))
		}
		largest = max(largest, of.Rows)
		first := s.node.first[t]
		base := make([]int64, s.to.Parts+1)
		for _, p := range s.to.Assignment[first:s.node.first[t+1]] {
			base[p+1]++
		}
		for p := range s.to.Parts {
			s.node.count[p][t] = base[p+1]
			if base[p+1] > math.MaxInt32 {
				must.Do(argument.Errorf("part %d has %d nodes of type %q; at most %d are supported: use more parts", p, base[p+1],
					of.Name, math.MaxInt32))
			}
			base[p+1] += base[p]
		}
		next := append([]int64(nil), base...)
		order := s.near(t)
		for k := range of.Rows {
			i := first + k
			if len(order.Data) > 0 {
				i = first + int64(order.Data[k])
			}
			p := s.to.Assignment[i]
			s.id.Data[i] = uint32(next[p])
			next[p]++
		}
		s.base = append(s.base, base)
		if len(order.Data) > 0 {
			s.placeNodes(t)
		}
		order.Free()
	}
	s.progress(s.nodes)
	s.column = scratch[int32](largest)
	s.halo = must.Get(bitset.New(largest))
}

// runs passes over the edges. do is called with runs of edges of one relation, whose first one is edge first of it.
func (s *writer) runs(do func(relation int, first int64, src, dst []int64)) {
	must.Do(s.src.EdgesBatch(func(first int64, src, dst []int64) (err error) {
		defer must.Return(&err)
		for len(dst) > 0 {
			i := s.edge.of(first)
			n := min(int64(len(dst)), s.edge.first[i+1]-first)
			do(i, first-s.edge.first[i], src[:n], dst[:n])
			first, src, dst = first+n, src[n:], dst[n:]
		}
		return nil
	}))
}

// countEdges counts the in-edges of every node.
func (s *writer) countEdges() {
	names := map[string]bool{}
	for i, of := range s.edge.list {
		r := &relationWriter{src: of.Src, dst: of.Dst, sorted: true, last: [2]int64{-1, -1},
			dir: "relations/" + fileName(strings.ReplaceAll(of.Name, ":", "__"), i, names)}
		r.slots = scratch[uint32](s.node.list[r.dst].Rows)
		s.rels = append(s.rels, r)
	}
	s.runs(func(i int, _ int64, src, dst []int64) {
		s.progress(int64(len(src)))
		s.rels[i].count(s.id.Data, src, dst)
	})
	for i, r := range s.rels {
		for p := range s.to.Parts {
			var n int64
			for _, d := range r.slots.Data[s.base[r.dst][p]:s.base[r.dst][p+1]] {
				n += int64(d)
			}
			if n > math.MaxInt32 {
				must.Do(argument.Errorf("part %d has %d edges of type %s; at most %d are supported: use more parts", p, n,
					s.edge.list[i].Name, math.MaxInt32))
			}
			s.edge.count[p][i] = n
		}
	}
}

func (r *relationWriter) count(id []uint32, src, dst []int64) {
	last := r.last
	for i, v := range dst {
		r.slots.Data[id[v]]++
		if v < last[0] || v == last[0] && src[i] < last[1] {
			r.sorted = false
		}
		last = [2]int64{v, src[i]}
	}
	r.last = last
}

// wantDisk fails where there is no room for what is known to be written.
func (s *writer) wantDisk() error {
	var n int64
	for i, r := range s.rels {
		edges := int64(8)
		if !r.sorted {
			edges += 12
		}
		n += edges*s.edge.list[i].Rows + 16*s.node.list[r.dst].Rows
	}
	for _, k := range []*kinds{&s.node, &s.edge} {
		for _, of := range k.list {
			for _, a := range of.Arrays {
				n += a.Bytes()
			}
		}
	}
	return disk.WantRoom(s.to.Dir, n, "the parts need", "name another directory")
}

// finishParts makes one part after the other, out of the sources of its edges.
func (s *writer) finishParts() {
	for p := range s.to.Parts {
		for i := range s.rels {
			s.finish(p, i)
			s.progress(s.edge.count[p][i])
		}
		for t := range s.node.list {
			s.halo.Clear()
			for i, r := range s.rels {
				if r.src == t {
					s.addHalo(p, i)
				}
			}
			s.parts[p].Halo += s.halo.Seal()
		}
	}
}

// addHalo adds the boundary rows of a relation to halo.
func (s *writer) addHalo(p, relation int) {
	r := s.rels[relation]
	rows := make([]int32, r.columns[p][s.to.Parts-1]-r.columns[p][0])
	must.Do(r.arrays[p][haloRowsArray].Read(0, rows))
	at := r.columns[p][0]
	for q := 1; q < s.to.Parts; q++ {
		owner := (p - q + s.to.Parts) % s.to.Parts
		for ; at < r.columns[p][q]; at++ {
			s.halo.Add(s.base[r.src][owner] + int64(rows[at-r.columns[p][0]]))
		}
	}
}

// writeSends gives every part the rows that its peers read, and the out-degrees of its own
// rows, out of the peers' parts.
func (s *writer) writeSends() {
	for i, r := range s.rels {
		r.sends = make([][]int64, s.to.Parts)
		for p := range s.to.Parts {
			s.writeSend(p, i)
		}
	}
}

func (s *writer) writeSend(p, relation int) {
	r, parts := s.rels[relation], s.to.Parts
	out := make([]int64, s.node.count[p][r.src])
	degrees := func(q int, from, to int64, rows func(k int) int32) {
		ptr := make([]int32, to-from+1)
		must.Do(r.arrays[q][colPtrArray].Read(from, ptr))
		for k := range ptr[1:] {
			out[rows(k)] += int64(ptr[k+1] - ptr[k])
		}
	}
	degrees(p, 0, int64(len(out)), func(k int) int32 { return int32(k) })
	ends := make([]int64, parts)
	for q := 1; q < parts; q++ {
		c := r.columns[(p+q)%parts]
		ends[q] = ends[q-1] + c[q] - c[q-1]
	}
	send := s.newArray(p, relation, sendArray, dtypes.Int32, ends[parts-1])
	for q := 1; q < parts; q++ {
		reader := (p + q) % parts
		c := r.columns[reader]
		rows := make([]int32, c[q]-c[q-1])
		must.Do(r.arrays[reader][haloRowsArray].Read(c[q-1]-c[0], rows))
		degrees(reader, c[q-1], c[q], func(k int) int32 { return rows[k] })
		must.Do(send.Write(ends[q-1], view.Bytes(rows)))
	}
	r.sends[p] = ends
	s.putWide(p, relation, outDegreeArray, out)
}

// putArray writes an array of a relation.
func (s *writer) putArray(p, relation int, name string, v []int32) {
	must.Do(s.newArray(p, relation, name, dtypes.Int32, int64(len(v))).Write(0, view.Bytes(v)))
}

// putWide writes an array of a relation in 32 bits, where that suffices.
func (s *writer) putWide(p, relation int, name string, v []int64) {
	narrow := make([]int32, len(v))
	for i, x := range v {
		if narrow[i] = int32(x); int64(narrow[i]) != x {
			must.Do(s.newArray(p, relation, name, dtypes.Int64, int64(len(v))).Write(0, view.Bytes(v)))
			return
		}
	}
	s.putArray(p, relation, name, narrow)
}

// relation is the description of a relation of a part.
func (s *writer) relation(p, relation int) *partRelationJSON {
	return &s.parts[p].Relations[relation]
}
