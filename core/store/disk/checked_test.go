package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand"
	"strings"
	"testing"

	"sar/core/internal/dtypes"
)

// TestCheckedReads reads ranges that fit no block, of a file with checksums and
// a damaged byte: what is read is right, and a read fails if and only if it
// touches the damaged block.
func TestCheckedReads(t *testing.T) {
	r := rand.New(rand.NewSource(13))
	data := make([]byte, 400_000)
	r.Read(data)
	whole := InMemory("memory", data)
	sums, err := whole.sumUp([]Array{
		{File: whole, Name: "a", Offset: 1000, DType: dtypes.Uint8, Len: 150_000},
		{File: whole, Name: "b", Offset: 151_000, DType: dtypes.Int16, Len: 100_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(sums) != 4 || sums[3].Off+sums[3].Size != int64(len(data)) {
		t.Fatalf("ranges %v", sums)
	}
	damaged := bytes.Clone(data)
	damaged[151_000+70_000] ^= 4 // in the second block of b
	from, end := int64(151_000+65_536), int64(151_000+2*65_536)
	f := InMemory("memory", damaged)
	if err := f.Attach(sums); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		off := r.Int63n(int64(len(data)))
		n := r.Int63n(min(200_000, int64(len(data))-off) + 1)
		b := make([]byte, n)
		err := f.ReadAt(b, off, "a range")
		var damage *FormatError
		if touched := n > 0 && off < end && off+n > from; touched != errors.As(err, &damage) ||
			(!touched && !bytes.Equal(b, data[off:off+n])) {
			t.Fatalf("bytes %d to %d: %v", off, off+n, err)
		}
		if damage != nil && (damage.Offset != from || damage.End != end) {
			t.Fatalf("bytes %d to %d: %v", off, off+n, err)
		}
	}
}

// TestSumsFile reads files of checksums that say what cannot be.
func TestSumsFile(t *testing.T) {
	const one = `{"array": "a", "bytes": 5, "block": 4, "sums": "0000000100000002"}`
	for _, c := range []struct{ what, ranges, want string }{
		{"as it should be", `{"bytes": 5, "ranges": [` + one + `]}`, ""},
		{"fewer bytes", `{"bytes": 6, "ranges": [` + one + `]}`, `of all 6 bytes of "node_feats", found of 5`},
		{"more bytes", `{"bytes": 4, "ranges": [` + one + `]}`, "inside its 4 bytes"},
		{"nothing", `{"bytes": 0, "ranges": []}`, "of all 0 bytes"},
		{"too few checksums", `{"bytes": 9, "ranges": [{"bytes": 9, "block": 4, "sums": "0000000100000002"}]}`,
			"3 checksums of range 0"},
		{"half a checksum", `{"bytes": 5, "ranges": [{"bytes": 5, "block": 4, "sums": "00000001000002"}]}`,
			"2 checksums of range 0"},
		{"no digits", `{"bytes": 4, "ranges": [{"bytes": 4, "block": 4, "sums": "0000000x"}]}`, "1 checksums of range 0"},
		{"blocks of nothing", `{"bytes": 4, "ranges": [{"bytes": 4, "block": 0, "sums": ""}]}`, "blocks of 1 to"},
		{"huge blocks", `{"bytes": 4, "ranges": [{"bytes": 4, "block": 4611686018427387904, "sums": "00000000"}]}`,
			"blocks of 1 to"},
		{"as many blocks as fit no number",
			`{"bytes": 4611686018427387904, "ranges": [{"bytes": 4611686018427387904, "block": 1, "sums": ""}]}`,
			"4611686018427387904 checksums"},
		{"negative", `{"bytes": 4, "ranges": [{"bytes": -4, "block": 4, "sums": ""}]}`, "inside its 4 bytes"},
	} {
		data, err := Seal(map[string]any{"format": sumsFormat, "method": sumsMethod,
			"files": json.RawMessage(`{"node_feats": ` + c.ranges + `}`)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = parseSums("x.crc", data)
		var damage *FormatError
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.As(err, &damage) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	for _, c := range []struct{ data, want string }{
		{`[]`, "a JSON object of checksums"},
		{`{"format": "other"}`, `the format "SAR checksums 1"`},
		{`{"format": "SAR checksums 1", "method": "crc32c", "files": {}}`, `the key "checksum", the checksum of this file`},
		{`{"format": "SAR checksums 1", "method": "crc32c", "files": {}, "checksum": 5}`, "contents with the checksum 5"},
	} {
		var damage *FormatError
		if _, err := parseSums("x.crc", []byte(c.data)); !errors.As(err, &damage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.data, err)
		}
	}
}
