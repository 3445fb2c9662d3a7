package disk

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"sar/core/internal/must"
)

// SumsKey is the key of the path of a file of checksums.
const SumsKey = "checksums"

// A partition that WritePartitions wrote has a file of checksums beside DGL's
// files, part<p>/checksums.crc, which the description names as "checksums" of
// the partition. DGL reads neither. Both files carry a checksum of their
// own under the key "checksum".

const (
	SumsFile   = "checksums.crc"
	sumsFormat = "SAR checksums 1"
	sumsMethod = "crc32c" // with the Castagnoli polynomial, as iSCSI and ext4 have it
	SealKey    = "checksum"
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

func (s Checksums) json() fileSumJSON {
	out := fileSumJSON{Ranges: make([]rangeSumJSON, len(s))}
	for i, r := range s {
		digits := make([]byte, 0, 4*len(r.sums))
		for _, v := range r.sums {
			digits = binary.BigEndian.AppendUint32(digits, v)
		}
		out.Ranges[i] = rangeSumJSON{r.Array, r.Size, r.block, hex.EncodeToString(digits)}
		out.Bytes += r.Size
	}
	return out
}

// parseSums reads a file of checksums.
func parseSums(name string, data []byte) (out map[string]Checksums, err error) {
	defer must.Return(&err)
	want := func(ok bool, want, got string, args ...any) { Want(ok, name, -1, want, got, args...) }
	var top sumsJSON
	must.Do(Decode(name, 0, data, &top, "a JSON object of checksums"))
	want(top.Format == sumsFormat && top.Method == sumsMethod,
		fmt.Sprintf("the format %q with %q", sumsFormat, sumsMethod), "%q with %q", top.Format, top.Method)
	must.Do(WantSeal(name, data))
	out = map[string]Checksums{}
	for key, of := range top.Files {
		var list Checksums
		var at int64
		for i, r := range of.Ranges {
			want(r.Bytes >= 1 && r.Bytes <= of.Bytes-at && r.Block >= 1 && r.Block <= maxBlock,
				fmt.Sprintf("range %d of %q inside its %d bytes, in blocks of 1 to %d", i, key, of.Bytes, maxBlock),
				"%d bytes in blocks of %d", r.Bytes, r.Block)
			next := sumRange{Array: r.Array, Off: at, Size: r.Bytes, block: r.Block}
			digits, err := hex.DecodeString(r.Sums)
			want(err == nil && len(digits)%4 == 0 && int64(len(digits)/4) == next.blocks(),
				fmt.Sprintf("%d checksums of range %d of %q, 8 digits each", next.blocks(), i, key), "%d characters", len(r.Sums))
			next.sums = make([]uint32, len(digits)/4)
			for k := range next.sums {
				next.sums[k] = binary.BigEndian.Uint32(digits[4*k:])
			}
			list = append(list, next)
			at += r.Bytes
		}
		want(at == of.Bytes && at != 0, fmt.Sprintf("checksums of all %d bytes of %q", of.Bytes, key), "of %d", at)
		out[key] = list
	}
	return out, nil
}

// Seal writes a JSON object with its keys in order, and last a checksum of what it says. The
// object has a key.
func Seal(v any) ([]byte, error) {
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
	return fmt.Appendf(open, ",\n%s%q: \"%08x\"\n}\n", indent, SealKey, sum), nil
}

// CheckSeal holds what a JSON object says against the checksum in it, and says
// whether it has one.
func CheckSeal(name string, data []byte) (sealed bool, err error) {
	sum, found, err := sumJSON(data)
	if err != nil {
		return false, jsonError(name, 0, "a JSON object", err)
	}
	if found == nil {
		return false, nil
	}
	if want := fmt.Sprintf("%08x", sum); found != want {
		return true, &FormatError{
			File: name, Offset: -1, Want: fmt.Sprintf("contents with the checksum %v that they were written with", found),
			Got: want,
			Remedy: fmt.Sprintf("the file is damaged: copy it again, or partition the graph again; if it was edited on "+
				"purpose, remove the key %q from it", SealKey),
		}
	}
	return true, nil
}

// WantSeal is CheckSeal of what has to have a checksum.
func WantSeal(name string, data []byte) error {
	sealed, err := CheckSeal(name, data)
	if err == nil && !sealed {
		err = Bad(name, -1, fmt.Sprintf("the key %q, the checksum of this file", SealKey), "no such key")
	}
	return err
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
	found = top[SealKey]
	delete(top, SealKey)
	text, err := json.Marshal(top) // keys in order
	return crc32.Checksum(text, castagnoli), found, err
}

// OpenSums reads the file of checksums that a description names, of so many bytes.
func OpenSums(path string) (sums map[string]Checksums, size int64, err error) {
	data, err := ReadJSON("the checksums of the partition", path)
	if err != nil {
		return nil, 0, err
	}
	sums, err = parseSums(path, data)
	return sums, int64(len(data)), err
}

// SumsIn are those of a file, which sums, of the file at a path, has to have.
func SumsIn(sums map[string]Checksums, path, key string) (Checksums, error) {
	if sums[key] == nil {
		return nil, Bad(path, -1, fmt.Sprintf("checksums of %q", key), "none")
	}
	return sums[key], nil
}

// WriteSums writes a file of checksums.
func WriteSums(dir string, sums map[string]Checksums) error {
	top := sumsJSON{sumsFormat, sumsMethod, map[string]fileSumJSON{}}
	for key, of := range sums {
		top.Files[key] = of.json()
	}
	return WriteSealed(filepath.Join(dir, SumsFile), top)
}

// WriteSealed writes a file that Seal makes.
func WriteSealed(path string, v any) error {
	text, err := Seal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o664)
}

// SumsOf reads a file and sums it up.
func SumsOf(what, path string, arrays func(*File) ([]Array, error)) (Checksums, error) {
	f, err := OpenFile(what, path)
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

// Sync returns when what was written to a file is on the disk.
func Sync(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
