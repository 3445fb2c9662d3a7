package store

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// TestRefusedKinds puts things that are no files in the place of one. A pipe
// without a writer would block whoever opens it.
func TestRefusedKinds(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(syscall.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("folder"), 0o700),
		os.Symlink(at("fifo"), at("link"))); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := writeRandom(t, 20, 50, 1)
	part := filepath.Join(filepath.Dir(path), "part0", "node_feat.dgl")
	for file, kind := range map[string]string{at("fifo"): "a named pipe (FIFO)", at("folder"): "a directory",
		at("link"): "a named pipe", at("socket"): "a socket", "/dev/null": "a character device"} {
		if err := os.Remove(part); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, part); err != nil {
			t.Fatal(err)
		}
		for what, open := range map[string]func() error{
			file:       func() error { _, err := OpenPartition(file, 0, 0); return err },
			part:       func() error { _, err := OpenPartition(path, 0, Outside); return err },
			" " + file: func() error { _, err := OpenGraph(file); return err },
		} {
			var damage *disk.FormatError
			if err := open(); !errors.As(err, &damage) || damage.File != strings.TrimSpace(what) ||
				!strings.Contains(err.Error(), "a regular file") && what != " "+at("folder") ||
				!strings.Contains(err.Error(), kind) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// TestOutsidePaths gives a description paths out of its directory.
func TestOutsidePaths(t *testing.T) {
	path := writeRandom(t, 20, 50, 2)
	dir, away := filepath.Dir(path), t.TempDir()
	if err := os.Rename(filepath.Join(dir, "part1"), filepath.Join(away, "part1")); err != nil {
		t.Fatal(err)
	}
	raw := storetest.MustRead(t, path)
	name := func(folder string) {
		t.Helper()
		b := bytes.ReplaceAll(raw, []byte(`"part1/`), []byte(`"`+folder+`/`))
		b = bytes.Replace(b, []byte(`"checksum":`), []byte(`"was":`), 1)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(away, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(dir, away)
	if err != nil {
		t.Fatal(err)
	}
	for what, folder := range map[string]string{"absolute": away + "/part1", "up": relative + "/part1",
		"a link": "link/part1", "round about": "part0/../" + relative + "/part1"} {
		name(folder)
		_, err := OpenPartition(path, 1, 0)
		var damage *disk.FormatError
		if !errors.As(err, &damage) || damage.File != path || !strings.Contains(err.Error(), filepath.Join(away, "part1")) ||
			!strings.Contains(err.Error(), "sar.Config.allow_outside_paths") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := OpenPartition(path, 1, Outside); err != nil {
			t.Errorf("%s, allowed: %v", what, err)
		}
	}
	name("../nowhere")
	if _, err := OpenPartition(path, 1, 0); err == nil || !strings.Contains(err.Error(), "allow_outside_paths") {
		t.Errorf("a file that does not exist, outside: %v", err)
	}
	// What stays inside is fine, however it is written and reached.
	if err := os.Rename(filepath.Join(away, "part1"), filepath.Join(dir, "part1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(away, "dir")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(away, "g.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "part1"), filepath.Join(away, "part1")); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"part1", "part0/../part1", dir + "/part1", "link/dir/part1", "./part1"} {
		name(folder)
		for _, by := range []string{path, filepath.Join(away, "dir", "g.json"),
			filepath.Join(away, "dir", "part0", "..", "g.json")} {
			if _, err := OpenPartition(by, 1, 0); err != nil {
				t.Errorf("%s, by %s: %v", folder, by, err)
			}
		}
	}
	name("part1")
	if _, err := OpenPartition(filepath.Join(away, "g.json"), 1, 0); err != nil {
		t.Errorf("links to the description and to a part: %v", err)
	}
}
