package disk_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"sar/core/internal/dtypes"
	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// FuzzSums reads what is no file of checksums, and, with its own checksum put
// right, one that fits no file.
func FuzzSums(f *testing.F) {
	of := disk.InMemory("memory", make([]byte, 40))
	sums, err := disk.SumUp(of, []disk.Array{{File: of, Name: "an array", Offset: 16, DType: dtypes.Int32, Len: 6}})
	dir := f.TempDir()
	if err := errors.Join(err, disk.WriteSums(dir, map[string]disk.Checksums{"node_feats": sums})); err != nil {
		f.Fatal(err)
	}
	f.Add(storetest.MustRead(f, filepath.Join(dir, "checksums.crc")), uint(40))
	f.Add([]byte(`{"format": "SAR checksums 1", "method": "crc32c", "files": {
		"node_feats": {"bytes": 5, "ranges": [{"bytes": 5, "block": 4, "sums": "d2a3f2b100000002"}]}}}`), uint(5))
	f.Fuzz(func(t *testing.T, data []byte, size uint) {
		storetest.Bounded(t, data, 1024, func(b []byte) error {
			_, err := disk.ParseSums("x.crc", b)
			return err
		})
		var top map[string]json.RawMessage
		if json.Unmarshal(data, &top) != nil || len(top) == 0 {
			return
		}
		delete(top, "checksum")
		sealed, err := disk.Seal(top)
		if err != nil {
			return
		}
		size %= 1 << 16
		storetest.Bounded(t, sealed, 1024, func(b []byte) error {
			sums, err := disk.ParseSums("x.crc", b)
			if err != nil {
				return err
			}
			for _, of := range sums {
				whole := disk.InMemory("memory", make([]byte, size))
				if err := whole.Attach(of); err != nil {
					return err
				}
				if err := whole.ReadAt(make([]byte, size/2), int64(size)/3, "the middle"); err != nil {
					return err
				}
				if err := whole.Check(of); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
