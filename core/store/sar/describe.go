package sar

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"sar/core/internal/view"
	"sar/core/store/disk"
	"sar/core/store/npy"
)

// nameIDs moves the files of the users' ids to their parts and describes them.
func (s *Writer) nameIDs() error {
	for t, of := range s.Node.List {
		if file := s.to.IDs[of.Name]; file != "" {
			for p := range s.parts {
				s.parts[p].NodeTypes[t].Value.IDs = &npy.Described{File: file}
			}
		}
	}
	return s.TakeIDs(s.to)
}

// describe writes checksums and descriptions of the parts.
func (s *Writer) describe() error {
	h := fnv.New64a()
	fmt.Fprintln(h, s.Nodes, s.Edges, s.Writer.Parts, s.Node.Count, s.Edge.Count)
	h.Write(view.Bytes(s.Assign))
	s.Partitioning = fmt.Sprintf("%015x", h.Sum64()>>4)
	for p := range s.parts {
		d := &s.parts[p]
		d.Format, d.Partitioning, d.Part = partFormat, s.Partitioning, p
		for i, r := range s.rels {
			of := s.relation(p, i)
			of.Type, of.Edges = strings.Split(s.Edge.List[i].Name, ":"), s.Edge.Count[p][i]
			of.Columns, of.Sends = r.columns[p], r.sends[p]
		}
		sums := map[string]disk.Checksums{}
		for _, name := range d.names() {
			var err error
			if sums[name], err = disk.SumsOf("a file of the part", filepath.Join(s.PartDir(p), filepath.FromSlash(name)), npy.Arrays); err != nil {
				return err
			}
		}
		if err := disk.WriteSums(s.PartDir(p), sums); err != nil {
			return err
		}
		text, err := disk.Seal(d)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.PartDir(p), Description), text, 0o664)
		}
		if err != nil {
			return err
		}
	}
	s.Progress(s.Total)
	return nil
}

// names lists the files of a part.
func (d *description) names() (list []string) {
	add := func(files disk.Object[npy.Described]) {
		for _, f := range files {
			list = append(list, f.Value.File)
		}
	}
	for _, t := range d.NodeTypes {
		add(t.Value.Features)
		if t.Value.IDs != nil {
			list = append(list, t.Value.IDs.File)
		}
	}
	for _, r := range d.Relations {
		add(r.Arrays)
		add(r.Features)
	}
	return list
}
