package input

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

	"sar/core/internal/must"
	"sar/core/store/disk"
	"sar/core/store/npy"
)

// names lists the files of a graph directory.
func (top *description) names() (list []string) {
	add := func(files ...*npy.Described) {
		for _, f := range files {
			if f != nil {
				list = append(list, f.File)
			}
		}
	}
	for _, t := range top.NodeTypes {
		add(t.Value.IDs)
		for i := range t.Value.Features {
			add(&t.Value.Features[i].Value)
		}
	}
	for _, t := range top.EdgeTypes {
		add(t.Indptr, t.Source)
		for i := range t.Features {
			add(&t.Features[i].Value)
		}
	}
	return list
}

// SumDirectory writes checksums.crc into a graph directory, names it in the description, and
// gives that a checksum of its own.
func SumDirectory(dir string) (err error) {
	defer must.Return(&err)
	path := filepath.Join(dir, Description)
	top, data, err := readGraphJSON(path)
	must.Do(err)
	g := newDirectory(path)
	sums := map[string]disk.Checksums{}
	for _, name := range top.names() {
		sums[name] = must.Get(disk.SumsOf("a file of the graph", must.Get(g.Inside("a file", name)), npy.Arrays))
	}
	must.Do(disk.WriteSums(dir, sums))
	must.Do(disk.Sync(filepath.Join(dir, disk.SumsFile)))
	var keys, kept disk.Object[json.RawMessage]
	must.Do(disk.Decode(path, 0, data, &keys, "the description of a graph"))
	for _, k := range keys {
		if k.Name != disk.SealKey && k.Name != disk.SumsKey {
			kept = append(kept, k)
		}
	}
	kept.Set(disk.SumsKey, json.RawMessage(strconv.Quote(disk.SumsFile)))
	must.Do(disk.WriteSealed(path+".new", kept))
	must.Do(disk.Sync(path + ".new"))
	return os.Rename(path+".new", path)
}

// VerifyDirectory reads every file of a graph directory whole and tells all that is wrong with
// them, the description first.
func VerifyDirectory(dir string) ([]disk.FileReport, error) {
	path := filepath.Join(dir, Description)
	description := disk.FileReport{File: path}
	top, data, err := readGraphJSON(path)
	if err != nil {
		description.Damage = []error{err}
		return []disk.FileReport{description}, nil
	}
	description.Bytes = int64(len(data))
	if description.Summed, err = disk.CheckSeal(path, data); err != nil {
		return nil, err
	}
	reports := []disk.FileReport{description}
	g := newDirectory(path)
	if top.Checksums != "" {
		of := disk.FileReport{File: filepath.Join(dir, top.Checksums), Summed: true}
		if err := g.openSums(top.Checksums); err != nil {
			of.Damage = []error{err}
		}
		if st, err := os.Stat(of.File); err == nil {
			of.Bytes = st.Size()
		}
		reports = append(reports, of)
	}
	for _, name := range top.names() {
		at, err := g.Inside("a file", name)
		if err != nil {
			reports[0].Damage = append(reports[0].Damage, err)
			continue
		}
		r := disk.VerifyFile("a file of the graph", at, g.Sums[name], npy.Arrays)
		if g.Sums != nil {
			r.WantSums(g.Sums, path, name)
		}
		reports = append(reports, r)
	}
	return reports, nil
}
