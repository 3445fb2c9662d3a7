package store

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/store/dgl"
	"sar/core/store/disk"
	"sar/core/store/npy"
)

// Verify reads every file of a partition whole and tells all that is wrong with
// them, the description of the graph first.
func Verify(jsonPath string, part int, flags Flags) ([]disk.FileReport, error) {
	top := disk.FileReport{File: jsonPath}
	cfg, err := openConfig(jsonPath, part, flags)
	if bad := (*argument.Error)(nil); errors.As(err, &bad) {
		return nil, err
	}
	if err != nil {
		top.Damage = []error{err}
		return []disk.FileReport{top}, nil
	}
	top.Bytes, top.Summed = cfg.size, cfg.sealed
	reports := []disk.FileReport{top}

	var sums map[string]disk.Checksums
	if path := cfg.files[disk.SumsKey]; path != "" {
		of := disk.FileReport{File: path, Summed: true}
		var n int64
		if sums, n, err = disk.OpenSums(path); err != nil {
			of.Damage = []error{err}
		}
		of.Bytes = n
		reports = append(reports, of)
	}
	files := cfg.dglFiles()
	if cfg.partitioning != "" {
		files = cfg.sarFiles(sums)
	}
	whole := true
	for _, of := range files {
		r := disk.VerifyFile(of.what, of.path, sums[of.key], of.arrays)
		if of.key == partKey { // it has a checksum of its own, which opening the part looks at
			r.Summed = true
		} else if sums != nil {
			r.WantSums(sums, cfg.files[disk.SumsKey], of.key)
		}
		whole = whole && len(r.Damage) == 0
		reports = append(reports, r)
	}
	if !whole {
		return reports, nil // that files fit each other cannot be judged
	}
	if err := readWhole(jsonPath, part, flags); err != nil {
		last := &reports[len(reports)-1]
		var damage *disk.FormatError
		for i := range reports {
			if errors.As(err, &damage) && damage.File == reports[i].File {
				last = &reports[i]
			}
		}
		last.Damage = append(last.Damage, err)
	}
	return reports, nil
}

// partFile is a file of a partition: its key among the checksums, and where its arrays lie.
type partFile struct {
	key, what, path string
	arrays          func(*disk.File) ([]disk.Array, error)
}

// dglFiles are the files of a partition in DGL's format.
func (cfg *partConfig) dglFiles() (list []partFile) {
	for _, of := range dgl.Files {
		list = append(list, partFile{of.Key, of.What, cfg.files[of.Key], of.Arrays})
	}
	return list
}

// sarFiles are the files of a partition in SAR's format: the description, and what has checksums.
func (cfg *partConfig) sarFiles(sums map[string]disk.Checksums) []partFile {
	list := []partFile{{partKey, "the description of the part", cfg.files[partKey], sealed}}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		path := filepath.Join(filepath.Dir(cfg.files[partKey]), filepath.FromSlash(name))
		arrays := npy.Arrays
		if err := disk.CheckInside(cfg.files[partKey], name, path); err != nil {
			arrays = func(*disk.File) ([]disk.Array, error) { return nil, err }
		}
		list = append(list, partFile{name, "a file of the part", path, arrays})
	}
	return list
}

// sealed holds a description against its own checksum.
func sealed(f *disk.File) ([]disk.Array, error) {
	data, err := disk.ReadJSON("the description of the part", f.Name)
	if err == nil {
		_, err = disk.CheckSeal(f.Name, data)
	}
	return nil, err
}

// readWhole does with a partition what loading it does, and forgets it.
func readWhole(jsonPath string, part int, flags Flags) error {
	p, err := OpenPartition(jsonPath, part, flags)
	if err != nil {
		return err
	}
	defer p.Close()
	if _, _, err := p.Nodes(); err != nil {
		return err
	}
	return p.Edges(func(graph.EdgeBatch) error { return nil })
}
