package sar

import (
	"math"
	"strings"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/internal/bitset"
	"sar/core/internal/view"
	"sar/core/mem"
	"sar/core/store/disk"
	"sar/core/store/npy"
	"sar/core/store/split"
)

// Writer writes parts in SAR's format.
//
//	count   in-edges of every node; whether edges are sorted by destination and source
//	fill    passes over the edges, as many as memory asks for: sources by destination
//	finish  part by part: number the columns, sort rows, transpose, order rows
//	sends   copies of what the peers' parts read
//	then features, original ids, checksums and descriptions
//
// Nodes of a type are numbered over the parts, one part after the other.
type Writer struct {
	*split.Writer
	to       split.Partitioning
	forNodes int64             // bytes of to.Memory
	id       mem.Array[uint32] // number of each node, by original id over all types
	base     [][]int64         // [type][parts + 1] first number of each part
	rels     []*relationWriter
	parts    []description
	column   mem.Array[int32] // of a number, in the part and relation that are being made
	halo     *bitset.Set
	// partitioning is a number of this run, in hexadecimal digits.
	Partitioning string
}

// relationWriter is a relation that is being written.
type relationWriter struct {
	src, dst int
	dir      string
	sorted   bool // by destination, then by source
	last     [2]int64
	slots    mem.Array[uint32]       // by number of the destination: its edges; while they are placed, where the next one goes
	arrays   []map[string]npy.Output // [part] by name
	columns  [][]int64               // [part] as partRelationJSON has them
	sends    [][]int64
}

func NewWriter(w *split.Writer, to split.Partitioning) *Writer {
	return &Writer{Writer: w, to: to, forNodes: NodeMemory(w.Src), parts: make([]description, w.Parts)}
}

// Steps are those of writing, in order.
func (s *Writer) Steps() []func() error {
	return []func() error{s.numberNodes, s.countEdges, s.wantMemory, s.wantDisk, s.fill, s.finishParts, s.writeSends,
		s.writeNodeFeatures, s.writeEdgeRows, s.nameIDs, s.describe}
}

func (s *Writer) Free() {
	s.id.Free()
	s.column.Free()
	for _, r := range s.rels {
		r.slots.Free()
	}
	s.halo.Free()
}

// numberNodes numbers nodes, in each part in the order they had.
func (s *Writer) numberNodes() (err error) {
	if s.id, err = mem.Make[uint32](mem.Scratch, len(s.Assign)); err != nil {
		return err
	}
	largest := int64(0)
	for t, of := range s.Node.List {
		if of.Rows > math.MaxUint32 {
			return argument.Errorf("%d nodes of type %q: at most %d of a type are supported", of.Rows, of.Name, int64(math.MaxUint32))
		}
		largest = max(largest, of.Rows)
		first := s.Node.First[t]
		base := make([]int64, s.Writer.Parts+1)
		for _, p := range s.Assign[first:s.Node.First[t+1]] {
			base[p+1]++
		}
		for p := range s.Writer.Parts {
			s.Node.Count[p][t] = base[p+1]
			if base[p+1] > math.MaxInt32 {
				return argument.Errorf("part %d has %d nodes of type %q; at most %d are supported: use more parts", p, base[p+1], of.Name, math.MaxInt32)
			}
			base[p+1] += base[p]
		}
		next := append([]int64(nil), base...)
		for i, p := range s.Assign[first:s.Node.First[t+1]] {
			s.id.Data[first+int64(i)] = uint32(next[p])
			next[p]++
		}
		s.base = append(s.base, base)
	}
	s.Progress(s.Nodes)
	if s.column, err = mem.Make[int32](mem.Scratch, int(largest)); err != nil {
		return err
	}
	s.halo, err = bitset.New(largest)
	return err
}

// countEdges counts the in-edges of every node.
func (s *Writer) countEdges() error {
	names := map[string]bool{}
	for i, of := range s.Edge.List {
		t, err := graph.ParseEdgeType(of.Name)
		if err != nil {
			return err
		}
		r := &relationWriter{sorted: true, last: [2]int64{-1, -1}, dir: "relations/" + fileName(strings.ReplaceAll(of.Name, ":", "__"), i, names)}
		for k, n := range s.Node.List {
			if n.Name == t.Src {
				r.src = k
			}
			if n.Name == t.Dst {
				r.dst = k
			}
		}
		if r.slots, err = mem.Make[uint32](mem.Scratch, int(s.Node.List[r.dst].Rows)); err != nil {
			return err
		}
		s.rels = append(s.rels, r)
	}
	err := s.Src.EdgesBatch(func(first int64, src, dst []int64) error {
		s.Progress(int64(len(src)))
		return s.Edge.Runs(first, int64(len(src)), func(r int, lo, hi int64) error {
			s.rels[r].count(s.id.Data, src[lo:hi], dst[lo:hi])
			return nil
		})
	})
	if err != nil {
		return err
	}
	for i, r := range s.rels {
		for p := range s.Writer.Parts {
			var n int64
			for _, d := range r.slots.Data[s.base[r.dst][p]:s.base[r.dst][p+1]] {
				n += int64(d)
			}
			if n > math.MaxInt32 {
				return argument.Errorf("part %d has %d edges of type %s; at most %d are supported: use more parts", p, n, s.Edge.List[i].Name, math.MaxInt32)
			}
			s.Edge.Count[p][i] = n
		}
	}
	return nil
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
func (s *Writer) wantDisk() error {
	var n int64
	for i, r := range s.rels {
		edges := int64(8)
		if !r.sorted {
			edges += 12
		}
		n += edges*s.Edge.List[i].Rows + 16*s.Node.List[r.dst].Rows
	}
	for _, k := range []*split.Kinds{&s.Node, &s.Edge} {
		for _, of := range k.List {
			for _, a := range of.Arrays {
				n += a.Bytes()
			}
		}
	}
	return disk.WantRoom(s.Tmp, n, "the parts need", "name another directory")
}

// finishParts makes one part after the other, out of the sources of its edges.
func (s *Writer) finishParts() error {
	for p := range s.Writer.Parts {
		for i := range s.rels {
			if err := s.finish(p, i); err != nil {
				return err
			}
			s.Progress(s.Edge.Count[p][i])
		}
		for t := range s.Node.List {
			s.halo.Clear()
			for i, r := range s.rels {
				if r.src != t {
					continue
				}
				if err := s.addHalo(p, i); err != nil {
					return err
				}
			}
			s.parts[p].Halo += s.halo.Seal()
		}
	}
	return nil
}

// addHalo adds the boundary rows of a relation to halo.
func (s *Writer) addHalo(p, relation int) error {
	r := s.rels[relation]
	rows := make([]int32, r.columns[p][s.Writer.Parts-1]-r.columns[p][0])
	if err := r.arrays[p][haloRowsArray].Read(0, rows); err != nil {
		return err
	}
	at := r.columns[p][0]
	for q := 1; q < s.Writer.Parts; q++ {
		owner := (p - q + s.Writer.Parts) % s.Writer.Parts
		for ; at < r.columns[p][q]; at++ {
			s.halo.Add(s.base[r.src][owner] + int64(rows[at-r.columns[p][0]]))
		}
	}
	return nil
}

// writeSends gives every part the rows that its peers read, and the out-degrees of its own
// rows, out of the peers' parts.
func (s *Writer) writeSends() error {
	for i, r := range s.rels {
		r.sends = make([][]int64, s.Writer.Parts)
		for p := range s.Writer.Parts {
			if err := s.writeSend(p, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Writer) writeSend(p, relation int) error {
	r, parts := s.rels[relation], s.Writer.Parts
	out := make([]int64, s.Node.Count[p][r.src])
	degrees := func(q int, from, to int64, rows func(k int) int32) error {
		ptr := make([]int32, to-from+1)
		if err := r.arrays[q][colPtrArray].Read(from, ptr); err != nil {
			return err
		}
		for k := range ptr[1:] {
			out[rows(k)] += int64(ptr[k+1] - ptr[k])
		}
		return nil
	}
	if err := degrees(p, 0, int64(len(out)), func(k int) int32 { return int32(k) }); err != nil {
		return err
	}
	ends := make([]int64, parts)
	for q := 1; q < parts; q++ {
		c := r.columns[(p+q)%parts]
		ends[q] = ends[q-1] + c[q] - c[q-1]
	}
	send, err := s.newArray(p, relation, sendArray, disk.Int32, ends[parts-1])
	if err != nil {
		return err
	}
	for q := 1; q < parts; q++ {
		reader := (p + q) % parts
		c := r.columns[reader]
		rows := make([]int32, c[q]-c[q-1])
		if err := r.arrays[reader][haloRowsArray].Read(c[q-1]-c[0], rows); err != nil {
			return err
		}
		if err := degrees(reader, c[q-1], c[q], func(k int) int32 { return rows[k] }); err != nil {
			return err
		}
		if err := send.Write(ends[q-1], view.Bytes(rows)); err != nil {
			return err
		}
	}
	r.sends[p] = ends
	return s.putWide(p, relation, outDegreeArray, out)
}

// putArray writes an array of a relation.
func (s *Writer) putArray(p, relation int, name string, v []int32) error {
	a, err := s.newArray(p, relation, name, disk.Int32, int64(len(v)))
	if err != nil {
		return err
	}
	return a.Write(0, view.Bytes(v))
}

// putWide writes an array of a relation in 32 bits, where that suffices.
func (s *Writer) putWide(p, relation int, name string, v []int64) error {
	narrow := make([]int32, len(v))
	for i, x := range v {
		if narrow[i] = int32(x); int64(narrow[i]) != x {
			a, err := s.newArray(p, relation, name, disk.Int64, int64(len(v)))
			if err != nil {
				return err
			}
			return a.Write(0, view.Bytes(v))
		}
	}
	return s.putArray(p, relation, name, narrow)
}

// relation is the description of a relation of a part.
func (s *Writer) relation(p, relation int) *partRelationJSON {
	return &s.parts[p].Relations[relation]
}
