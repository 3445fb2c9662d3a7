package input

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// summedDir is the small graph directory with checksums.
func summedDir(t testing.TB) string {
	t.Helper()
	dir := storetest.SmallDirectory().With("nodes/user/ids.parquet", []byte("ids of three users")).Write(t, t.TempDir())
	path := filepath.Join(dir, Description)
	text := strings.Replace(string(storetest.MustRead(t, path)), `"ids": null`,
		`"ids": {"file": "nodes/user/ids.parquet"}`, 1)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o664), SumDirectory(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The description keeps what it said, and its keys their order.
func TestSumGraphDir(t *testing.T) {
	dir := summedDir(t)
	text := string(storetest.MustRead(t, filepath.Join(dir, Description)))
	last := -1
	for _, key := range []string{"format", "name", "made by", "node_types", "edge_types", "checksums", "checksum"} {
		at := strings.Index(text, "\n    \""+key+`":`)
		if at <= last {
			t.Errorf("%q is not where it should be in %s", key, text)
		}
		last = at
	}
	again := text
	if err := SumDirectory(dir); err != nil {
		t.Fatal(err)
	}
	if text = string(storetest.MustRead(t, filepath.Join(dir, Description))); text != again {
		t.Errorf("%s\nafter\n%s", text, again)
	}
	g, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := readSource(g); err != nil {
		t.Error(err)
	}
	reports, err := VerifyDirectory(dir)
	if err != nil || len(reports) != 9 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	for _, r := range reports {
		if !r.Summed || len(r.Damage) > 0 || r.Bytes == 0 {
			t.Errorf("%+v", r)
		}
	}
}

// Any changed byte is found when the file is read, and named by verifying.
func TestDamagedGraphDir(t *testing.T) {
	for name := range storetest.SmallDirectory().With("checksums.crc", nil).With("nodes/user/ids.parquet", nil) {
		dir := summedDir(t)
		path := filepath.Join(dir, name)
		whole := storetest.MustRead(t, path)
		for at := 0; at < len(whole); at += max(1, len(whole)/50) {
			data := append([]byte(nil), whole...)
			data[at] ^= 4
			text := strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".crc")
			if text && (whole[at] == ' ' || whole[at] == '\n' || !strings.Contains(string(data), `"checksum":`)) {
				continue // spaces say nothing, and a description without a checksum may be anybody's
			}
			if err := os.WriteFile(path, data, 0o664); err != nil {
				t.Fatal(err)
			}
			g, err := Open(dir)
			if err == nil {
				_, err = readSource(g)
				g.Close()
			}
			var bad *disk.FormatError
			if parquet := strings.HasSuffix(name, ".parquet"); !parquet && !errors.As(err, &bad) || parquet && err != nil {
				t.Fatalf("%s, byte %d: %v", name, at, err)
			}
			reports, err := VerifyDirectory(dir)
			found := false
			for _, r := range reports {
				found = found || len(r.Damage) > 0
			}
			if err != nil || !found {
				t.Fatalf("%s, byte %d: nothing found, %v", name, at, err)
			}
		}
	}
}

func TestGraphDirWithoutASum(t *testing.T) {
	dir := summedDir(t)
	text := strings.Replace(string(storetest.MustRead(t, filepath.Join(dir, "checksums.crc"))), "stars.npy", "moons.npy",
		1)
	if err := os.WriteFile(filepath.Join(dir, "checksums.crc"), storetest.Resealed([]byte(text)), 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), `checksums of "edges/r/stars.npy", found none`) {
		t.Error(err)
	}
}
