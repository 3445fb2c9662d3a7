package disk

import "encoding/json"

// FileReport is what Verify found of one file.
type FileReport struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	Arrays int    `json:"arrays"`
	// Summed says that every byte was held against a checksum. Without
	// checksums, only what contradicts itself shows.
	Summed bool   `json:"checksums"`
	Damage Errors `json:"damage"`
}

// Errors are their texts in JSON.
type Errors []error

// MarshalJSON implements json.Marshaler.
func (e Errors) MarshalJSON() ([]byte, error) {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return json.Marshal(texts)
}

// WantSums has it that the file has checksums among those of the file at a path.
func (r *FileReport) WantSums(sums map[string]Checksums, path, key string) {
	if _, err := SumsIn(sums, path, key); err != nil {
		r.Damage = append(r.Damage, err)
	}
}

// VerifyFile reads one file, by its checksums where there are some.
func VerifyFile(what, path string, sums Checksums, arrays func(*File) ([]Array, error)) FileReport {
	r := FileReport{File: path, Summed: sums != nil}
	failed := func(err error) FileReport {
		r.Damage = append(r.Damage, err)
		return r
	}
	f, err := OpenFile(what, path)
	if err != nil {
		return failed(err)
	}
	defer f.Close()
	r.Bytes = f.Size
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
