package sar

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"sar/core/internal/argument"
	"sar/core/internal/must"
	"sar/core/internal/view"
	"sar/core/store/disk"
	"sar/core/store/npy"
)

// takeIDs moves the files of the users' ids to their parts and describes them.
func (s *writer) takeIDs() {
	for _, file := range s.to.IDs {
		if filepath.Base(file) != file {
			must.Do(argument.Errorf("%q cannot be the name of a file of ids", file))
		}
		for p := range s.parts {
			from := filepath.Join(s.to.IDsDir, fmt.Sprintf("part%d", p), file)
			must.Do(os.Rename(from, filepath.Join(s.partDir(p), file)))
		}
	}
	for t, of := range s.node.list {
		if file := s.to.IDs[of.Name]; file != "" {
			for p := range s.parts {
				s.parts[p].NodeTypes[t].Value.IDs = &npy.Described{File: file}
			}
		}
	}
}

// describe writes checksums and descriptions of the parts.
func (s *writer) describe() {
	h := fnv.New64a()
	fmt.Fprintln(h, s.nodes, s.edges, s.to.Parts, s.node.count, s.edge.count)
	h.Write(view.Bytes(s.to.Assignment))
	for t := range s.place {
		h.Write(view.Bytes(s.nodePlaces(t)))
	}
	s.partitioning = fmt.Sprintf("%015x", h.Sum64()>>4)
	for p := range s.parts {
		d := &s.parts[p]
		d.Format, d.Partitioning, d.Part = partFormat, s.partitioning, p
		for i, r := range s.rels {
			of := s.relation(p, i)
			of.Type, of.Edges = strings.Split(s.edge.list[i].Name, ":"), s.edge.count[p][i]
			of.Columns, of.Travels, of.Sends = r.columns[p], r.travels[p], r.sends[p]
		}
		sums := map[string]disk.Checksums{}
		for _, name := range d.names() {
			path := filepath.Join(s.partDir(p), filepath.FromSlash(name))
			sums[name] = must.Get(disk.SumsOf("a file of the part", path, npy.Arrays))
		}
		must.Do(disk.WriteSums(s.partDir(p), sums))
		must.Do(disk.WriteSealed(filepath.Join(s.partDir(p), Description), d))
	}
	s.progress(s.total)
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
