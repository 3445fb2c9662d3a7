package store

import "os"

// spread makes an array in each part, of rows[p] rows like those of t, and has fill append
// them. made is told of each array.
func (s *sarWriter) spread(rows []int64, t TensorInfo, made func(p int, a npyFile), name string, fill func(out []*appender) error) error {
	files := make([]*os.File, s.writer.parts)
	defer func() { _ = closeAll(files) }() // what was not written shows in the checksums' reading
	out := make([]*appender, len(files))
	for p := range files {
		a, err := s.newNpy(p, name, t.DType, append([]int64{rows[p]}, t.Shape[1:]...)...)
		if err == nil {
			files[p], err = os.OpenFile(a.path, os.O_RDWR, 0)
		}
		if err != nil {
			return err
		}
		made(p, a)
		out[p] = newAppender(files[p], a.off, t.RowBytes()*rows[p], s.block(s.writer.parts))
	}
	if err := fill(out); err != nil {
		return err
	}
	return finishAll(out)
}

// rowsOf are the rows of a type in each part.
func (s *sarWriter) rowsOf(k *kinds, t int) (rows []int64) {
	for p := range s.writer.parts {
		rows = append(rows, k.count[p][t])
	}
	return rows
}

// writeNodeFeatures writes node features, and original ids.
func (s *sarWriter) writeNodeFeatures() error {
	dirs := map[string]bool{}
	for t, of := range s.node.list {
		dir, names := "nodes/"+fileName(of.Name, t, dirs), map[string]bool{origID: true}
		for p := range s.parts {
			s.parts[p].NodeTypes.set(of.Name, partNodesJSON{Rows: s.node.count[p][t]})
		}
		made := func(feature string) func(int, npyFile) {
			return func(p int, a npyFile) { s.parts[p].NodeTypes[t].value.Features.set(feature, a.json) }
		}
		assign := s.assign[s.node.first[t]:s.node.first[t+1]]
		for k, a := range of.Arrays {
			if a.Name == origID {
				delete(names, origID)
			}
			name := dir + "/" + fileName(a.Name, k, names) + ".npy"
			err := s.spread(s.rowsOf(&s.node, t), a, made(a.Name), name, func(out []*appender) error {
				return s.scatterRows(false, t, a, 0, assign, out)
			})
			if err != nil {
				return err
			}
			s.progress(of.Rows)
		}
		if of.keepsIDs() {
			continue
		}
		err := s.spread(s.rowsOf(&s.node, t), TensorInfo{DType: Int64, Shape: []int64{0}}, made(origID), dir+"/"+origID+".npy", func(out []*appender) error {
			for i, p := range assign {
				if err := out[p].int64(int64(i)); err != nil {
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
func (s *sarWriter) writeEdgeRows() error {
	for i, of := range s.edge.list {
		dir, names := "edges"+s.rels[i].dir[len("relations"):], map[string]bool{}
		made := func(feature string) func(int, npyFile) {
			return func(p int, a npyFile) { s.relation(p, i).Features.set(feature, a.json) }
		}
		for k, t := range of.Arrays {
			name := dir + "/" + fileName(t.Name, k, names) + ".npy"
			err := s.spread(s.rowsOf(&s.edge, i), t, made(t.Name), name, func(out []*appender) error {
				return s.appendEdgeRows(i, t, out)
			})
			if err != nil {
				return err
			}
		}
		if of.keepsIDs() {
			continue
		}
		if s.rels[i].sorted {
			if err := s.writeEdgeStarts(i); err != nil {
				return err
			}
			continue
		}
		name := dir + "/" + fileName(origID, 0, names) + ".npy"
		err := s.spread(s.rowsOf(&s.edge, i), TensorInfo{DType: Int64, Shape: []int64{0}}, made(origID), name, func(out []*appender) error {
			return s.src.EdgesBatch(func(first int64, _, dst []int64) error {
				return s.edge.runs(first, int64(len(dst)), func(r int, lo, hi int64) error {
					for k := lo; r == i && k < hi; k++ {
						if err := out[s.assign[dst[k]]].int64(first + k - s.edge.first[r]); err != nil {
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
