package store

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"sar/core/internal/view"
)

// nameIDs moves the files of the users' ids to their parts and describes them.
func (s *sarWriter) nameIDs() error {
	for t, of := range s.node.list {
		if file := s.to.IDs[of.Name]; file != "" {
			for p := range s.parts {
				s.parts[p].NodeTypes[t].value.IDs = &fileJSON{File: file}
			}
		}
	}
	return s.takeIDs(s.to)
}

// describe writes checksums and descriptions of the parts.
func (s *sarWriter) describe() error {
	h := fnv.New64a()
	fmt.Fprintln(h, s.nodes, s.edges, s.writer.parts, s.node.count, s.edge.count)
	h.Write(view.Bytes(s.assign))
	s.partitioning = fmt.Sprintf("%015x", h.Sum64()>>4)
	for p := range s.parts {
		d := &s.parts[p]
		d.Format, d.Partitioning, d.Part = partFormat, s.partitioning, p
		for i, r := range s.rels {
			of := s.relation(p, i)
			of.Type, of.Edges = strings.Split(s.edge.list[i].Name, ":"), s.edge.count[p][i]
			of.Columns, of.Sends = r.columns[p], r.sends[p]
		}
		sums := map[string]checksums{}
		for _, name := range d.names() {
			var err error
			if sums[name], err = sumsOf("a file of the part", filepath.Join(s.partDir(p), filepath.FromSlash(name)), npyArrays); err != nil {
				return err
			}
		}
		if err := writeSums(s.partDir(p), sums); err != nil {
			return err
		}
		text, err := seal(d)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.partDir(p), partDescription), text, 0o664)
		}
		if err != nil {
			return err
		}
	}
	s.progress(s.total)
	return nil
}

// names lists the files of a part.
func (d *partJSON) names() (list []string) {
	add := func(files ordered[fileJSON]) {
		for _, f := range files {
			list = append(list, f.value.File)
		}
	}
	for _, t := range d.NodeTypes {
		add(t.value.Features)
		if t.value.IDs != nil {
			list = append(list, t.value.IDs.File)
		}
	}
	for _, r := range d.Relations {
		add(r.Arrays)
		add(r.Features)
	}
	return list
}
