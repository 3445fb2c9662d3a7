package store

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
)

// names lists the files of a graph directory.
func (top *graphJSON) names() (list []string) {
	add := func(files ...*fileJSON) {
		for _, f := range files {
			if f != nil {
				list = append(list, f.File)
			}
		}
	}
	for _, t := range top.NodeTypes {
		add(t.value.IDs)
		for i := range t.value.Features {
			add(&t.value.Features[i].value)
		}
	}
	for _, t := range top.EdgeTypes {
		add(t.Indptr, t.Source)
		for i := range t.Features {
			add(&t.Features[i].value)
		}
	}
	return list
}

// SumGraphDir writes checksums.crc into a graph directory, names it in the description, and
// gives that a checksum of its own.
func SumGraphDir(dir string) error {
	path := filepath.Join(dir, GraphDescription)
	top, data, err := readGraphJSON(path)
	if err != nil {
		return err
	}
	g := &graphDir{typedTables: typedTables{name: path}}
	sums := map[string]checksums{}
	for _, name := range top.names() {
		at, err := g.inside("a file", name)
		if err != nil {
			return err
		}
		if sums[name], err = sumsOf("a file of the graph", at, npyArrays); err != nil {
			return err
		}
	}
	if err := writeSums(dir, sums); err != nil {
		return err
	}
	var keys, kept ordered[json.RawMessage]
	if err := json.Unmarshal(data, &keys); err != nil {
		return jsonError(path, 0, "the description of a graph", err)
	}
	for _, k := range keys {
		if k.name != sealKey && k.name != checksumsKey {
			kept = append(kept, k)
		}
	}
	text, err := seal(append(kept, named[json.RawMessage]{checksumsKey, json.RawMessage(strconv.Quote(checksumFile))}))
	if err != nil {
		return err
	}
	if err := writeSynced(path+".new", text); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// writeSynced writes a file that is on the disk afterwards.
func writeSynced(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// VerifyGraphDir reads every file of a graph directory whole and tells all that is wrong with
// them, the description first.
func VerifyGraphDir(dir string) ([]FileReport, error) {
	path := filepath.Join(dir, GraphDescription)
	description := FileReport{File: path}
	top, data, err := readGraphJSON(path)
	if err != nil {
		description.Damage = []error{err}
		return []FileReport{description}, nil
	}
	description.Bytes = int64(len(data))
	if description.Summed, err = checkSeal(path, data); err != nil {
		return nil, err
	}
	reports := []FileReport{description}
	g := &graphDir{typedTables: typedTables{name: path}}
	if top.Checksums != "" {
		of := FileReport{File: filepath.Join(dir, top.Checksums), Summed: true}
		if err := g.openSums(top.Checksums); err != nil {
			of.Damage = []error{err}
		}
		if st, err := os.Stat(of.File); err == nil {
			of.Bytes = st.Size()
		}
		reports = append(reports, of)
	}
	for _, name := range top.names() {
		at, err := g.inside("a file", name)
		if err != nil {
			reports[0].Damage = append(reports[0].Damage, err)
			continue
		}
		r := verifyFile("a file of the graph", at, g.sums[name], npyArrays)
		if g.sums != nil && !r.Summed {
			r.Damage = append(r.Damage, noSums(path, name))
		}
		reports = append(reports, r)
	}
	return reports, nil
}
