package sar

import (
	"fmt"
	"os"
	"strings"

	"sar/core/internal/dtypes"
	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/npy"
)

// spread makes an array in each part, of as many rows like those of array as the part has of type t, and has fill
// append them. made is told of each array.
func (s *writer) spread(k *kinds, t int, array disk.TensorInfo, made func(p int, a npy.Output), name string,
	fill func(out []*disk.Appender) error) error {
	files := make([]*os.File, s.to.Parts)
	defer func() {
		for _, f := range files {
			_ = f.Close() // what was not written shows in the checksums' reading
		}
	}()
	out := make([]*disk.Appender, len(files))
	for p := range files {
		rows := k.count[p][t]
		a, err := npy.Create(s.partDir(p), name, array.DType, append([]int64{rows}, array.Shape[1:]...))
		if err == nil {
			files[p], err = os.OpenFile(a.Path, os.O_RDWR, 0)
		}
		if err != nil {
			return err
		}
		made(p, a)
		// the buffers take 32 MiB in all, as far as that goes
		out[p] = disk.NewAppender(files[p], a.Offset, array.RowBytes()*rows, min(max(32<<20/s.to.Parts, 4<<10), 1<<20))
	}
	if err := fill(out); err != nil {
		return err
	}
	return disk.FinishAll(out)
}

// writeNodeFeatures writes node features, and original ids.
func (s *writer) writeNodeFeatures() error {
	dirs := map[string]bool{}
	for t, of := range s.node.list {
		dir, names := "nodes/"+fileName(of.Name, t, dirs), map[string]bool{input.OrigID: true}
		for p := range s.parts {
			s.parts[p].NodeTypes.Set(of.Name, partNodesJSON{Rows: s.node.count[p][t]})
		}
		made := func(feature string) func(int, npy.Output) {
			return func(p int, a npy.Output) { s.parts[p].NodeTypes[t].Value.Features.Set(feature, a.Described) }
		}
		assign := s.to.Assignment[s.node.first[t]:s.node.first[t+1]]
		for k, a := range of.Arrays {
			if a.Name == input.OrigID {
				delete(names, input.OrigID)
			}
			name := dir + "/" + fileName(a.Name, k, names) + ".npy"
			err := s.spread(&s.node, t, a, made(a.Name), name, func(out []*disk.Appender) error {
				return s.scatterRows(false, t, a, 0, assign, out)
			})
			if err == nil {
				err = s.progress(of.Rows)
			}
			if err != nil {
				return err
			}
		}
		if of.KeepsIDs() {
			continue
		}
		err := s.spread(&s.node, t, disk.TensorInfo{DType: dtypes.Int64, Shape: []int64{0}}, made(input.OrigID),
			dir+"/"+input.OrigID+".npy", func(out []*disk.Appender) error {
				for i, p := range assign {
					out[p].Int64(int64(i))
				}
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeEdgeRows writes edge features, and original ids where they do not follow from the
// destinations.
func (s *writer) writeEdgeRows() error {
	for i, of := range s.edge.list {
		dir, names := "edges"+s.rels[i].dir[len("relations"):], map[string]bool{}
		made := func(feature string) func(int, npy.Output) {
			return func(p int, a npy.Output) { s.relation(p, i).Features.Set(feature, a.Described) }
		}
		for k, t := range of.Arrays {
			name := dir + "/" + fileName(t.Name, k, names) + ".npy"
			err := s.spread(&s.edge, i, t, made(t.Name), name, func(out []*disk.Appender) error {
				return s.appendEdgeRows(i, t, out)
			})
			if err != nil {
				return err
			}
		}
		if of.KeepsIDs() {
			continue
		}
		if s.rels[i].sorted {
			if err := s.writeEdgeStarts(i); err != nil {
				return err
			}
			continue
		}
		name := dir + "/" + fileName(input.OrigID, 0, names) + ".npy"
		ids := disk.TensorInfo{DType: dtypes.Int64, Shape: []int64{0}}
		err := s.spread(&s.edge, i, ids, made(input.OrigID), name,
			func(out []*disk.Appender) error {
				return s.eachDst(i, func(first int64, dst []int64) error {
					for k, d := range dst {
						out[s.to.Assignment[d]].Int64(first + int64(k))
					}
					return nil
				})
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// scatterRows reads len(to) rows of a type from its row first on and appends
// row i to out[to[i]].
func (s *writer) scatterRows(edge bool, kind int, t disk.TensorInfo, first int64, to []int32,
	out []*disk.Appender) error {
	row := t.RowBytes()
	if row == 0 {
		return nil
	}
	buf := make([]byte, row*max(1, min(int64(len(to)), (4<<20)/row)))
	for at := 0; at < len(to); {
		n := min(int64(len(to)-at), int64(len(buf))/row)
		if err := s.src.ReadRows(edge, kind, t.Name, first+int64(at), buf[:n*row]); err != nil {
			return err
		}
		for i := range n {
			out[to[int64(at)+i]].Write(buf[i*row : (i+1)*row])
		}
		at += int(n)
	}
	return nil
}

// appendEdgeRows appends the rows of an edge feature to the parts of the destinations.
func (s *writer) appendEdgeRows(relation int, t disk.TensorInfo, out []*disk.Appender) error {
	to := make([]int32, 0, disk.Batch)
	return s.eachDst(relation, func(first int64, dst []int64) error {
		to = to[:0]
		for _, d := range dst {
			to = append(to, s.to.Assignment[d])
		}
		if err := s.progress(int64(len(dst))); err != nil {
			return err
		}
		return s.scatterRows(true, relation, t, first, to, out)
	})
}

// eachDst calls do with runs of the destinations of the edges of a relation, the first of which is edge first of it.
func (s *writer) eachDst(relation int, do func(first int64, dst []int64) error) error {
	return s.src.EdgesBatch(func(first int64, _, dst []int64) error {
		return s.edge.runs(first, int64(len(dst)), func(r int, lo, hi int64) error {
			if r != relation {
				return nil
			}
			return do(first+lo-s.edge.first[r], dst[lo:hi])
		})
	})
}

// newArray makes an array of a relation.
func (s *writer) newArray(p, relation int, name string, d dtypes.Type, n int64) (npy.Output, error) {
	r := s.rels[relation]
	a, err := npy.Create(s.partDir(p), r.dir+"/"+name+".npy", d, []int64{n})
	r.arrays[p][name] = a
	s.relation(p, relation).Arrays.Set(name, a.Described)
	return a, err
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
