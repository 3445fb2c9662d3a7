package input

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

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
func SumDirectory(dir string) error {
	path := filepath.Join(dir, Description)
	top, data, err := readGraphJSON(path)
	if err != nil {
		return err
	}
	g := newDirectory(path)
	sums := map[string]disk.Checksums{}
	for _, name := range top.names() {
		at, err := g.Inside("a file", name)
		if err != nil {
			return err
		}
		if sums[name], err = disk.SumsOf("a file of the graph", at, npy.Arrays); err != nil {
			return err
		}
	}
	err = disk.WriteSums(dir, sums)
	if err == nil {
		err = disk.Sync(filepath.Join(dir, disk.SumsFile))
	}
	if err != nil {
		return err
	}
	var keys, kept disk.Object[json.RawMessage]
	if err := json.Unmarshal(data, &keys); err != nil {
		return disk.JSONError(path, 0, "the description of a graph", err)
	}
	for _, k := range keys {
		if k.Name != disk.SealKey && k.Name != disk.SumsKey {
			kept = append(kept, k)
		}
	}
	text, err := disk.Seal(append(kept, disk.Member[json.RawMessage]{Name: disk.SumsKey,
		Value: json.RawMessage(strconv.Quote(disk.SumsFile))}))
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o664)
	}
	if err == nil {
		err = disk.Sync(path + ".new")
	}
	if err != nil {
		return err
	}
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
		if g.Sums != nil && !r.Summed {
			r.Damage = append(r.Damage, disk.NoSums(path, name))
		}
		reports = append(reports, r)
	}
	return reports, nil
}
