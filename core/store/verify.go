package store

import (
	"errors"

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
	whole := true
	for _, of := range partFileKinds {
		r := verifyFile(of.what, *cfg.files.at(of.key), sums[of.key], of.arrays)
		if cfg.files.Checksums != "" && sums != nil && !r.Summed {
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
