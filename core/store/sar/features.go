package sar

import (
	"fmt"
	"os"
	"strings"

	"sar/core/internal/dtypes"
	"sar/core/internal/must"
	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/npy"
)

// rows are those of a node type or a relation, for each of which something is written.
type rows struct {
	*writer
	kinds *kinds
	kind  int
	dir   string                                  // of the arrays, in that of each part
	list  func(p int) *disk.Object[npy.Described] // of the arrays, in the description of part p
	// runs calls do with the parts of runs of rows, the first of which is row first of the type.
	runs func(do func(first int64, to []int32))
	// place is, part by part, the row that each becomes of its part; empty: they keep their order
	place []int32
}

// nodeRows are those of a node type.
func (s *writer) nodeRows(t int, dir string, list func(p int) *disk.Object[npy.Described]) *rows {
	return &rows{s, &s.node, t, dir, list, func(do func(first int64, to []int32)) {
		do(0, s.to.Assignment[s.node.first[t]:s.node.first[t+1]])
	}, s.nodePlaces(t)}
}

// edgeRows are those of a relation, which fall to the parts of their destinations.
func (s *writer) edgeRows(relation int, dir string, list func(p int) *disk.Object[npy.Described]) *rows {
	return &rows{s, &s.edge, relation, dir, list, func(do func(first int64, to []int32)) {
		to := make([]int32, 0, disk.Batch)
		s.runs(func(i int, first int64, _, dst []int64) {
			if i != relation {
				return
			}
			to = to[:0]
			for _, d := range dst {
				to = append(to, s.to.Assignment[d])
			}
			do(first, to)
		})
	}, nil}
}

// spread makes an array in each part, of rows like those of array, and has fill append each run of rows to them.
func (w *rows) spread(array disk.TensorInfo, file string,
	fill func(first int64, to []int32, out []*disk.Appender)) {
	files := make([]*os.File, w.to.Parts)
	defer func() {
		for _, f := range files {
			_ = f.Close() // what was not written shows in the checksums' reading
		}
	}()
	out, place := make([]*disk.Appender, len(files)), w.place
	for p := range files {
		n := w.kinds.count[p][w.kind]
		shape := append([]int64{n}, array.Shape[1:]...)
		a := must.Get(npy.Create(w.partDir(p), w.dir+"/"+file+".npy", array.DType, shape))
		files[p] = must.Get(os.OpenFile(a.Path, os.O_RDWR, 0))
		w.list(p).Set(array.Name, a.Described)
		// the buffers take 32 MiB in all, as far as that goes
		out[p] = disk.NewAppender(files[p], a.Offset, array.RowBytes()*n, min(max(32<<20/w.to.Parts, 4<<10), 1<<20))
		if len(w.place) > 0 {
			held := scratch[byte](array.RowBytes() * n)
			defer held.Free()
			out[p].Place(held.Data, place[:n])
			place = place[n:]
		}
	}
	w.runs(func(first int64, to []int32) { fill(first, to, out) })
	must.Do(disk.FinishAll(out))
}

// features writes the features of a type and, unless they are kept otherwise, the original ids.
func (w *rows) features(idsKept bool) {
	used := map[string]bool{input.OrigID: true}
	for k, t := range w.kinds.list[w.kind].Features() {
		if t.Name == input.OrigID {
			delete(used, input.OrigID)
		}
		w.spread(t, fileName(t.Name, k, used), func(first int64, to []int32, out []*disk.Appender) {
			w.progress(int64(len(to)))
			w.scatter(t, first, to, out)
		})
	}
	if idsKept {
		return
	}
	ids := disk.TensorInfo{Name: input.OrigID, DType: dtypes.Int64, Shape: []int64{0}}
	w.spread(ids, input.OrigID, func(first int64, to []int32, out []*disk.Appender) {
		for i, p := range to {
			out[p].Int64(first + int64(i))
		}
	})
}

// scatter reads len(to) rows of a feature from row first on and appends row i to out[to[i]].
func (w *rows) scatter(t disk.TensorInfo, first int64, to []int32, out []*disk.Appender) {
	row := t.RowBytes()
	if row == 0 {
		return
	}
	buf := make([]byte, row*max(1, min(int64(len(to)), (4<<20)/row)))
	a := w.kinds.list[w.kind].Arrays[t.Name]
	for at := 0; at < len(to); {
		n := min(int64(len(to)-at), int64(len(buf))/row)
		must.Do(a.ReadRows(first+int64(at), buf[:n*row]))
		for i := range n {
			out[to[int64(at)+i]].Write(buf[i*row : (i+1)*row])
		}
		at += int(n)
	}
}

// writeNodeFeatures writes node features, and original ids.
func (s *writer) writeNodeFeatures() {
	used := map[string]bool{}
	for t, of := range s.node.list {
		for p := range s.parts {
			s.parts[p].NodeTypes.Set(of.Name, partNodesJSON{Rows: s.node.count[p][t]})
		}
		w := s.nodeRows(t, "nodes/"+fileName(of.Name, t, used),
			func(p int) *disk.Object[npy.Described] { return &s.parts[p].NodeTypes[t].Value.Features })
		w.features(of.KeepsIDs())
	}
}

// writeEdgeRows writes edge features, and original ids where they do not follow from the
// destinations.
func (s *writer) writeEdgeRows() {
	for i, of := range s.edge.list {
		kept, sorted := of.KeepsIDs(), s.rels[i].sorted
		w := s.edgeRows(i, "edges"+s.rels[i].dir[len("relations"):],
			func(p int) *disk.Object[npy.Described] { return &s.relation(p, i).Features })
		place := s.edgePlaces(i)
		w.place = place.Data
		w.features(kept || sorted)
		place.Free()
		if sorted && !kept {
			s.writeEdgeStarts(i)
		}
	}
}

// newArray makes an array of a relation.
func (s *writer) newArray(p, relation int, name string, d dtypes.Type, n int64) npy.Output {
	r := s.rels[relation]
	a := must.Get(npy.Create(s.partDir(p), r.dir+"/"+name+".npy", d, []int64{n}))
	r.arrays[p][name] = a
	s.relation(p, relation).Arrays.Set(name, a.Described)
	return a
}

// fileName makes a file's name out of a name that users gave, one that is not in used.
func fileName(name string, n int, used map[string]bool) string {
	safe := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, name)
	if len(safe) > 100 || used[strings.ToLower(safe)] {
		safe = fmt.Sprintf("%.100s-%d", safe, n)
	}
	used[strings.ToLower(safe)] = true
	return safe
}
