package store

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"path/filepath"
)

// A partition that WritePartitions wrote has a file of checksums beside DGL's
// files, part<p>/checksums.crc, which the description names as "checksums" of
// the partition. DGL reads neither. Both files carry a checksum of their
// own under the key "checksum".

const (
	checksumFile = "checksums.crc"
	sumsFormat   = "SAR checksums 1"
	sumsMethod   = "crc32c" // with the Castagnoli polynomial, as iSCSI and ext4 have it
	sealKey      = "checksum"
)

// sumsJSON is the file of checksums of a partition.
type sumsJSON struct {
	Format string                 `json:"format"`
	Method string                 `json:"method"`
	Files  map[string]fileSumJSON `json:"files"` // by the key of the path in the description
}

type fileSumJSON struct {
	Bytes  int64          `json:"bytes"`
	Ranges []rangeSumJSON `json:"ranges"` // one after the other, all bytes of the file
}

type rangeSumJSON struct {
	Array string `json:"array,omitempty"` // none for headers
	Bytes int64  `json:"bytes"`
	Block int64  `json:"block"` // bytes that a checksum stands for; the last block may be shorter
	Sums  string `json:"sums"`  // 8 hexadecimal digits for each block
}

func (s checksums) json() fileSumJSON {
	out := fileSumJSON{Ranges: make([]rangeSumJSON, len(s))}
	for i, r := range s {
		digits := make([]byte, 0, 4*len(r.sums))
		for _, v := range r.sums {
			digits = append(digits, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
		}
		out.Ranges[i] = rangeSumJSON{r.array, r.size, r.block, hex.EncodeToString(digits)}
		out.Bytes += r.size
	}
	return out
}

// parseSums reads a file of checksums.
func parseSums(name string, data []byte) (map[string]checksums, error) {
	bad := func(want, got string, args ...any) error {
		return &FormatError{File: name, Offset: -1, Want: want, Got: fmt.Sprintf(got, args...)}
	}
	var top sumsJSON
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, jsonError(name, 0, "a JSON object of checksums", err)
	}
	if top.Format != sumsFormat || top.Method != sumsMethod {
		return nil, bad(fmt.Sprintf("the format %q with %q", sumsFormat, sumsMethod), "%q with %q", top.Format, top.Method)
	}
	if sealed, err := checkSeal(name, data); err != nil {
		return nil, err
	} else if !sealed {
		return nil, bad(fmt.Sprintf("the key %q, the checksum of this file", sealKey), "no such key")
	}
	out := map[string]checksums{}
	for key, of := range top.Files {
		var list checksums
		var at int64
		for i, r := range of.Ranges {
			if r.Bytes < 1 || r.Bytes > of.Bytes-at || r.Block < 1 || r.Block > maxBlock {
				return nil, bad(fmt.Sprintf("range %d of %q inside its %d bytes, in blocks of 1 to %d", i, key, of.Bytes, maxBlock), "%d bytes in blocks of %d", r.Bytes, r.Block)
			}
			next := sumRange{array: r.Array, off: at, size: r.Bytes, block: r.Block}
			digits, err := hex.DecodeString(r.Sums)
			if err != nil || len(digits)%4 != 0 || int64(len(digits)/4) != next.blocks() {
				return nil, bad(fmt.Sprintf("%d checksums of range %d of %q, 8 digits each", next.blocks(), i, key), "%d characters", len(r.Sums))
			}
			next.sums = make([]uint32, len(digits)/4)
			for k := range next.sums {
				d := digits[4*k:]
				next.sums[k] = uint32(d[0])<<24 | uint32(d[1])<<16 | uint32(d[2])<<8 | uint32(d[3])
			}
			list = append(list, next)
			at += r.Bytes
		}
		if at != of.Bytes || at == 0 {
			return nil, bad(fmt.Sprintf("checksums of all %d bytes of %q", of.Bytes, key), "of %d", at)
		}
		out[key] = list
	}
	return out, nil
}

// seal writes a JSON object with its keys in order, and last a checksum of what it says. The
// object has a key.
func seal(v any) ([]byte, error) {
	const indent = "    "
	text, err := json.MarshalIndent(v, "", indent)
	if err != nil {
		return nil, err
	}
	sum, _, err := sumJSON(text)
	if err != nil {
		return nil, err
	}
	open := bytes.TrimSuffix(text, []byte("\n}"))
	return fmt.Appendf(open, ",\n%s%q: \"%08x\"\n}\n", indent, sealKey, sum), nil
}

// checkSeal holds what a JSON object says against the checksum in it, and says
// whether it has one.
func checkSeal(name string, data []byte) (sealed bool, err error) {
	sum, found, err := sumJSON(data)
	if err != nil {
		return false, jsonError(name, 0, "a JSON object", err)
	}
	if found == nil {
		return false, nil
	}
	if want := fmt.Sprintf("%08x", sum); found != want {
		return true, &FormatError{
			File: name, Offset: -1, Want: fmt.Sprintf("contents with the checksum %v that they were written with", found), Got: want,
			Remedy: fmt.Sprintf("the file is damaged: copy it again, or partition the graph again; if it was edited on purpose, remove the key %q from it", sealKey),
		}
	}
	return true, nil
}

// sumJSON is the checksum of what a JSON object says but for the key "checksum",
// whatever the order of keys and the spaces, and the value of that key.
func sumJSON(data []byte) (sum uint32, found any, err error) {
	var top map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // numbers as they are written: ids may have more digits than a float64
	if err := d.Decode(&top); err != nil {
		return 0, nil, err
	}
	found = top[sealKey]
	delete(top, sealKey)
	text, err := json.Marshal(top) // keys in order
	return crc32.Checksum(text, castagnoli), found, err
}

// openSums reads the file of checksums that a description names, of so many bytes.
func openSums(path string) (sums map[string]checksums, size int64, err error) {
	data, err := readJSON("the checksums of the partition", path)
	if err != nil {
		return nil, 0, err
	}
	sums, err = parseSums(path, data)
	return sums, int64(len(data)), err
}

func noSums(path, key string) error {
	return &FormatError{File: path, Offset: -1, Want: fmt.Sprintf("checksums of %q", key), Got: "none"}
}

// writeChecksums writes the file of checksums of every partition.
func (w *dglWriter) writeChecksums() error {
	for p := range w.parts {
		sums := map[string]checksums{}
		for _, of := range partFileKinds {
			var err error
			if sums[of.key], err = sumsOf(of.what, filepath.Join(w.partDir(p), of.name), of.arrays); err != nil {
				return err
			}
		}
		if err := writeSums(w.partDir(p), sums); err != nil {
			return err
		}
		w.progress(w.innerNodes(p) + w.innerEdges(p))
	}
	return nil
}

// writeSums writes a file of checksums.
func writeSums(dir string, sums map[string]checksums) error {
	top := sumsJSON{sumsFormat, sumsMethod, map[string]fileSumJSON{}}
	for key, of := range sums {
		top.Files[key] = of.json()
	}
	text, err := seal(top)
	if err != nil {
		return err
	}
	return writeSynced(filepath.Join(dir, checksumFile), text)
}

// sumsOf reads a file and sums it up.
func sumsOf(what, path string, arrays func(*file) ([]array, error)) (checksums, error) {
	f, err := openFile(what, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := arrays(f)
	if err != nil {
		return nil, err
	}
	return f.sumUp(list)
}

// sumsRoom is the most, about, that the checksums of files take on disk: blocks
// are smallest in arrays of single bytes.
func sumsRoom(files ...*layout) (n int64) {
	for _, l := range files {
		n += 512*int64(len(l.pieces)+1) + 8*(l.size/batch)
	}
	return n
}
