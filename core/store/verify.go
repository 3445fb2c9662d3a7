package store

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"sar/core/graph"
)

// FileReport is what Verify found of one file.
type FileReport struct {
	File   string
	Bytes  int64
	Arrays int
	// Summed says that every byte was held against a checksum. Without
	// checksums, only what contradicts itself shows.
	Summed bool
	Damage []error
}

// Verify reads every file of a partition whole and tells all that is wrong with
// them, the description of the graph first.
func Verify(jsonPath string, part int, o Options) ([]FileReport, error) {
	top := FileReport{File: jsonPath}
	cfg, err := openConfig(jsonPath, part, o)
	if errors.Is(err, ErrPart) {
		return nil, err
	}
	if err != nil {
		top.Damage = []error{err}
		return []FileReport{top}, nil
	}
	top.Bytes, top.Summed = cfg.size, cfg.sealed
	reports := []FileReport{top}

	var sums map[string]checksums
	if path := cfg.files.Checksums; path != "" {
		of := FileReport{File: path, Summed: true}
		var n int64
		if sums, n, err = openSums(path); err != nil {
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
		r := verifyFile(of.what, of.path, sums[of.key], of.arrays)
		if of.key == partKey { // it has a checksum of its own, which opening the part looks at
			r.Summed = true
		} else if cfg.files.Checksums != "" && sums != nil && !r.Summed {
			r.Damage = append(r.Damage, noSums(cfg.files.Checksums, of.key))
		}
		whole = whole && len(r.Damage) == 0
		reports = append(reports, r)
	}
	if !whole {
		return reports, nil // that files fit each other cannot be judged
	}
	if err := readWhole(jsonPath, part, o); err != nil {
		last := &reports[len(reports)-1]
		var damage *FormatError
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
	arrays          func(*file) ([]array, error)
}

// dglFiles are the files of a partition in DGL's format.
func (cfg *partConfig) dglFiles() (list []partFile) {
	for _, of := range partFileKinds {
		list = append(list, partFile{of.key, of.what, *cfg.files.at(of.key), of.arrays})
	}
	return list
}

// sarFiles are the files of a partition in SAR's format: the description, and what has checksums.
func (cfg *partConfig) sarFiles(sums map[string]checksums) []partFile {
	list := []partFile{{partKey, "the description of the part", cfg.files.Part, sealed}}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		path := filepath.Join(filepath.Dir(cfg.files.Part), filepath.FromSlash(name))
		arrays := npyArrays
		if err := checkInside(cfg.files.Part, name, path); err != nil {
			arrays = func(*file) ([]array, error) { return nil, err }
		}
		list = append(list, partFile{name, "a file of the part", path, arrays})
	}
	return list
}

// sealed holds a description against its own checksum.
func sealed(f *file) ([]array, error) {
	data, err := readJSON("the description of the part", f.name)
	if err == nil {
		_, err = checkSeal(f.name, data)
	}
	return nil, err
}

// verifyFile reads one file, by its checksums where there are some.
func verifyFile(what, path string, sums checksums, arrays func(*file) ([]array, error)) FileReport {
	r := FileReport{File: path, Summed: sums != nil}
	failed := func(err error) FileReport {
		r.Damage = append(r.Damage, err)
		return r
	}
	f, err := openFile(what, path)
	if err != nil {
		return failed(err)
	}
	defer f.Close()
	r.Bytes = f.size
	if sums != nil {
		if err := f.fits(sums); err != nil {
			return failed(err)
		}
		places, err := f.damaged(sums)
		for _, place := range places {
			r.Damage = append(r.Damage, place)
		}
		if err != nil {
			return failed(err)
		}
		if len(places) > 0 {
			return r
		}
	}
	list, err := arrays(f)
	if err != nil {
		return failed(err)
	}
	r.Arrays = len(list)
	return r
}

// readWhole does with a partition what loading it does, and forgets it.
func readWhole(jsonPath string, part int, o Options) error {
	p, err := OpenPartition(jsonPath, part, o)
	if err != nil {
		return err
	}
	defer p.Close()
	if _, _, err := p.Edges().Nodes(); err != nil {
		return err
	}
	return p.Edges().Edges(func(graph.EdgeBatch) error { return nil })
}
