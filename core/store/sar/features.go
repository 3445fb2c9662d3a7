package sar

import (
	"os"

	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/npy"
	"sar/core/store/split"
)

// spread makes an array in each part, of rows[p] rows like those of t, and has fill append
// them. made is told of each array.
func (s *Writer) spread(rows []int64, t disk.TensorInfo, made func(p int, a npy.Output), name string, fill func(out []*disk.Appender) error) error {
	files := make([]*os.File, s.Writer.Parts)
	defer func() { _ = disk.CloseAll(files) }() // what was not written shows in the checksums' reading
	out := make([]*disk.Appender, len(files))
	for p := range files {
		a, err := s.newNpy(p, name, t.DType, append([]int64{rows[p]}, t.Shape[1:]...)...)
		if err == nil {
			files[p], err = os.OpenFile(a.Path, os.O_RDWR, 0)
		}
		if err != nil {
			return err
		}
		made(p, a)
		out[p] = disk.NewAppender(files[p], a.Offset, t.RowBytes()*rows[p], s.Block(s.Writer.Parts))
	}
	if err := fill(out); err != nil {
		return err
	}
	return disk.FinishAll(out)
}

// rowsOf are the rows of a type in each part.
func (s *Writer) rowsOf(k *split.Kinds, t int) (rows []int64) {
	for p := range s.Writer.Parts {
		rows = append(rows, k.Count[p][t])
	}
	return rows
}

// writeNodeFeatures writes node features, and original ids.
func (s *Writer) writeNodeFeatures() error {
	dirs := map[string]bool{}
	for t, of := range s.Node.List {
		dir, names := "nodes/"+fileName(of.Name, t, dirs), map[string]bool{input.OrigID: true}
		for p := range s.parts {
			s.parts[p].NodeTypes.Set(of.Name, partNodesJSON{Rows: s.Node.Count[p][t]})
		}
		made := func(feature string) func(int, npy.Output) {
			return func(p int, a npy.Output) { s.parts[p].NodeTypes[t].Value.Features.Set(feature, a.Described) }
		}
		assign := s.Assign[s.Node.First[t]:s.Node.First[t+1]]
		for k, a := range of.Arrays {
			if a.Name == input.OrigID {
				delete(names, input.OrigID)
			}
			name := dir + "/" + fileName(a.Name, k, names) + ".npy"
			err := s.spread(s.rowsOf(&s.Node, t), a, made(a.Name), name, func(out []*disk.Appender) error {
				return s.ScatterRows(false, t, a, 0, assign, out)
			})
			if err != nil {
				return err
			}
			s.Progress(of.Rows)
		}
		if of.KeepsIDs() {
			continue
		}
		err := s.spread(s.rowsOf(&s.Node, t), disk.TensorInfo{DType: disk.Int64, Shape: []int64{0}}, made(input.OrigID), dir+"/"+input.OrigID+".npy", func(out []*disk.Appender) error {
			for i, p := range assign {
				if err := out[p].Int64(int64(i)); err != nil {
					return err
				}
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
func (s *Writer) writeEdgeRows() error {
	for i, of := range s.Edge.List {
		dir, names := "edges"+s.rels[i].dir[len("relations"):], map[string]bool{}
		made := func(feature string) func(int, npy.Output) {
			return func(p int, a npy.Output) { s.relation(p, i).Features.Set(feature, a.Described) }
		}
		for k, t := range of.Arrays {
			name := dir + "/" + fileName(t.Name, k, names) + ".npy"
			err := s.spread(s.rowsOf(&s.Edge, i), t, made(t.Name), name, func(out []*disk.Appender) error {
				return s.AppendEdgeRows(i, t, out)
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
		err := s.spread(s.rowsOf(&s.Edge, i), disk.TensorInfo{DType: disk.Int64, Shape: []int64{0}}, made(input.OrigID), name, func(out []*disk.Appender) error {
			return s.Src.EdgesBatch(func(first int64, _, dst []int64) error {
				return s.Edge.Runs(first, int64(len(dst)), func(r int, lo, hi int64) error {
					for k := lo; r == i && k < hi; k++ {
						if err := out[s.Assign[dst[k]]].Int64(first + k - s.Edge.First[r]); err != nil {
							return err
						}
					}
					return nil
				})
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
